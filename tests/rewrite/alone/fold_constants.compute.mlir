// fold_constants.compute on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi32> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x4xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<-3> : tensor<1x1x1x1xi32>}> : () -> tensor<1x1x1x1xi32>
    %1 = tosa.abs %0 : (tensor<1x1x1x1xi32>) -> tensor<1x1x1x1xi32>
    %2 = tosa.add %arg0, %1 : (tensor<1x6x7x4xi32>, tensor<1x1x1x1xi32>) -> tensor<1x6x7x4xi32> loc("out0")
    return %2 : tensor<1x6x7x4xi32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi32> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x4xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<3> : tensor<1x1x1x1xi32>}> : () -> tensor<1x1x1x1xi32>
    %1 = tosa.add %arg0, %0 : (tensor<1x6x7x4xi32>, tensor<1x1x1x1xi32>) -> tensor<1x6x7x4xi32> loc("out0")
    return %1 : tensor<1x6x7x4xi32>
  }
}
