// data_movement.merge_reshapes on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<28x6xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[6, 28]> : tensor<2xindex>}> : () -> !tosa.shape<2>
    %1 = tosa.reshape %arg0, %0 : (tensor<1x6x7x4xi8>, !tosa.shape<2>) -> tensor<6x28xi8>
    %2 = "tosa.const_shape"() <{values = dense<[28, 6]> : tensor<2xindex>}> : () -> !tosa.shape<2>
    %3 = tosa.reshape %1, %2 : (tensor<6x28xi8>, !tosa.shape<2>) -> tensor<28x6xi8> loc("out0")
    return %3 : tensor<28x6xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<28x6xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[28, 6]> : tensor<2xindex>}> : () -> !tosa.shape<2>
    %1 = tosa.reshape %arg0, %0 : (tensor<1x6x7x4xi8>, !tosa.shape<2>) -> tensor<28x6xi8> loc("out0")
    return %1 : tensor<28x6xi8>
  }
}
