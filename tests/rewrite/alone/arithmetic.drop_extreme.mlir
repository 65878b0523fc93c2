// arithmetic.drop_extreme on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x1xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %1 = tosa.mul %arg0, %arg0, %0 : (tensor<1x6x7x4xi8>, tensor<1x6x7x4xi8>, tensor<1xi8>) -> tensor<1x6x7x4xi32>
    %2 = tosa.reduce_sum %1 {axis = 3 : i32} : (tensor<1x6x7x4xi32>) -> tensor<1x6x7x1xi32>
    %3 = "tosa.const"() <{values = dense<65536> : tensor<1x1x1x1xi32>}> : () -> tensor<1x1x1x1xi32>
    %4 = tosa.minimum %2, %3 : (tensor<1x6x7x1xi32>, tensor<1x1x1x1xi32>) -> tensor<1x6x7x1xi32> loc("out0")
    return %4 : tensor<1x6x7x1xi32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x1xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %1 = tosa.mul %arg0, %arg0, %0 : (tensor<1x6x7x4xi8>, tensor<1x6x7x4xi8>, tensor<1xi8>) -> tensor<1x6x7x4xi32>
    %2 = tosa.reduce_sum %1 {axis = 3 : i32} : (tensor<1x6x7x4xi32>) -> tensor<1x6x7x1xi32> loc("out0")
    return %2 : tensor<1x6x7x1xi32>
  }
}
