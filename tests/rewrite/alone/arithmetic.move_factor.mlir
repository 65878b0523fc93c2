// arithmetic.move_factor on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xf32> {tosa.tensor_name = "in0"}, %arg1: tensor<1x6x7x4xf32> {tosa.tensor_name = "in1"}) -> (tensor<1x6x7x4xf32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<0.25> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %1 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %2 = tosa.mul %arg0, %0, %1 : (tensor<1x6x7x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x6x7x4xf32>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = tosa.mul %arg1, %2, %3 : (tensor<1x6x7x4xf32>, tensor<1x6x7x4xf32>, tensor<1xi8>) -> tensor<1x6x7x4xf32> loc("out0")
    return %4 : tensor<1x6x7x4xf32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xf32> {tosa.tensor_name = "in0"}, %arg1: tensor<1x6x7x4xf32> {tosa.tensor_name = "in1"}) -> (tensor<1x6x7x4xf32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %1 = tosa.mul %arg1, %arg0, %0 : (tensor<1x6x7x4xf32>, tensor<1x6x7x4xf32>, tensor<1xi8>) -> tensor<1x6x7x4xf32>
    %2 = "tosa.const"() <{values = dense<0.25> : tensor<1x1x1x1xf32>}> : () -> tensor<1x1x1x1xf32>
    %3 = tosa.mul %1, %2, %0 : (tensor<1x6x7x4xf32>, tensor<1x1x1x1xf32>, tensor<1xi8>) -> tensor<1x6x7x4xf32> loc("out0")
    return %3 : tensor<1x6x7x4xf32>
  }
}
