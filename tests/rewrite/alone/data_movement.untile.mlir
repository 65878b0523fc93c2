// data_movement.untile on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x1xi32> {tosa.tensor_name = "in0"}, %arg1: tensor<1x6x7x4xi32> {tosa.tensor_name = "in1"}) -> (tensor<1x6x7x4xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[1, 1, 1, 4]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = tosa.tile %arg0, %0 : (tensor<1x6x7x1xi32>, !tosa.shape<4>) -> tensor<1x6x7x4xi32>
    %2 = tosa.add %arg1, %1 : (tensor<1x6x7x4xi32>, tensor<1x6x7x4xi32>) -> tensor<1x6x7x4xi32> loc("out0")
    return %2 : tensor<1x6x7x4xi32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x1xi32> {tosa.tensor_name = "in0"}, %arg1: tensor<1x6x7x4xi32> {tosa.tensor_name = "in1"}) -> (tensor<1x6x7x4xi32> {tosa.tensor_name = "out0"}) {
    %0 = tosa.add %arg1, %arg0 : (tensor<1x6x7x4xi32>, tensor<1x6x7x1xi32>) -> tensor<1x6x7x4xi32> loc("out0")
    return %0 : tensor<1x6x7x4xi32>
  }
}
