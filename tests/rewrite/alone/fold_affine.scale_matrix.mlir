// fold_affine.scale_matrix on TOSA-1.0+FP
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x2x3xf32> {tosa.tensor_name = "in0"}) -> (tensor<1x2x2xf32>) {
    %0 = "tosa.const"() <{values = dense<[[[-4.0, 2.0], [-2.0, -2.0], [3.0, 0.0]]]> : tensor<1x3x2xf32>}> : () -> tensor<1x3x2xf32>
    %1 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
    %2 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
    %3 = tosa.matmul %arg0, %0, %1, %2 : (tensor<1x2x3xf32>, tensor<1x3x2xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x2x2xf32>
    %4 = "tosa.const"() <{values = dense<[[[2.0, 0.5]]]> : tensor<1x1x2xf32>}> : () -> tensor<1x1x2xf32>
    %5 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %6 = tosa.mul %3, %4, %5 : (tensor<1x2x2xf32>, tensor<1x1x2xf32>, tensor<1xi8>) -> tensor<1x2x2xf32>
    return %6 : tensor<1x2x2xf32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x2x3xf32> {tosa.tensor_name = "in0"}) -> (tensor<1x2x2xf32>) {
    %0 = "tosa.const"() <{values = dense<[[[-8.0, 1.0], [-4.0, -1.0], [6.0, 0.0]]]> : tensor<1x3x2xf32>}> : () -> tensor<1x3x2xf32>
    %1 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
    %2 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
    %3 = tosa.matmul %arg0, %0, %1, %2 : (tensor<1x2x3xf32>, tensor<1x3x2xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x2x2xf32>
    return %3 : tensor<1x2x2xf32>
  }
}
