// arithmetic.merge_factors on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xf32> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x4xf32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<[[[[1.707504391670227, 1.7119112014770508, 1.2729883193969727, 0.9287020564079285]]]]> : tensor<1x1x1x4xf32>}> : () -> tensor<1x1x1x4xf32>
    %1 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %2 = tosa.mul %arg0, %0, %1 : (tensor<1x6x7x4xf32>, tensor<1x1x1x4xf32>, tensor<1xi8>) -> tensor<1x6x7x4xf32>
    %3 = "tosa.const"() <{values = dense<3.0> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %4 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %5 = tosa.mul %2, %3, %4 : (tensor<1x6x7x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x6x7x4xf32> loc("out0")
    return %5 : tensor<1x6x7x4xf32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xf32> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x4xf32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<[[[[5.122513294219971, 5.135733604431152, 3.818964958190918, 2.7861061096191406]]]]> : tensor<1x1x1x4xf32>}> : () -> tensor<1x1x1x4xf32>
    %1 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %2 = tosa.mul %arg0, %0, %1 : (tensor<1x6x7x4xf32>, tensor<1x1x1x4xf32>, tensor<1xi8>) -> tensor<1x6x7x4xf32> loc("out0")
    return %2 : tensor<1x6x7x4xf32>
  }
}
