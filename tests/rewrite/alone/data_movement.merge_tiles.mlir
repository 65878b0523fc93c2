// data_movement.merge_tiles on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<2x24x7x12xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[1, 2, 1, 3]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = tosa.tile %arg0, %0 : (tensor<1x6x7x4xi8>, !tosa.shape<4>) -> tensor<1x12x7x12xi8>
    %2 = "tosa.const_shape"() <{values = dense<[2, 2, 1, 1]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %3 = tosa.tile %1, %2 : (tensor<1x12x7x12xi8>, !tosa.shape<4>) -> tensor<2x24x7x12xi8> loc("out0")
    return %3 : tensor<2x24x7x12xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<2x24x7x12xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[2, 4, 1, 3]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = tosa.tile %arg0, %0 : (tensor<1x6x7x4xi8>, !tosa.shape<4>) -> tensor<2x24x7x12xi8> loc("out0")
    return %1 : tensor<2x24x7x12xi8>
  }
}
