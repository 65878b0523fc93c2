// data_movement.merge_pads on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x10x13x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[0, 0, 1, 1, 2, 1, 0, 0]> : tensor<8xindex>}> : () -> !tosa.shape<8>
    %1 = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
    %2 = tosa.pad %arg0, %0, %1 : (tensor<1x6x7x4xi8>, !tosa.shape<8>, tensor<1xi8>) -> tensor<1x8x10x4xi8>
    %3 = "tosa.const_shape"() <{values = dense<[0, 0, 1, 1, 2, 1, 0, 0]> : tensor<8xindex>}> : () -> !tosa.shape<8>
    %4 = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
    %5 = tosa.pad %2, %3, %4 : (tensor<1x8x10x4xi8>, !tosa.shape<8>, tensor<1xi8>) -> tensor<1x10x13x4xi8> loc("out0")
    return %5 : tensor<1x10x13x4xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x10x13x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[0, 0, 2, 2, 4, 2, 0, 0]> : tensor<8xindex>}> : () -> !tosa.shape<8>
    %1 = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
    %2 = tosa.pad %arg0, %0, %1 : (tensor<1x6x7x4xi8>, !tosa.shape<8>, tensor<1xi8>) -> tensor<1x10x13x4xi8> loc("out0")
    return %2 : tensor<1x10x13x4xi8>
  }
}
