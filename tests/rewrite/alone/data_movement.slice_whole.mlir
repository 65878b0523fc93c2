// data_movement.slice_whole on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<4x2xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[0, 2, 0, 1]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = "tosa.const_shape"() <{values = dense<[1, 1, 7, 3]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %2 = tosa.slice %arg0, %0, %1 : (tensor<1x6x7x4xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x1x7x3xi8>
    %3 = "tosa.const_shape"() <{values = dense<[7, 3]> : tensor<2xindex>}> : () -> !tosa.shape<2>
    %4 = tosa.reshape %2, %3 : (tensor<1x1x7x3xi8>, !tosa.shape<2>) -> tensor<7x3xi8>
    %5 = "tosa.const_shape"() <{values = dense<[3, 1]> : tensor<2xindex>}> : () -> !tosa.shape<2>
    %6 = "tosa.const_shape"() <{values = dense<[4, 2]> : tensor<2xindex>}> : () -> !tosa.shape<2>
    %7 = tosa.slice %4, %5, %6 : (tensor<7x3xi8>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<4x2xi8> loc("out0")
    return %7 : tensor<4x2xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<4x2xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[0, 2, 3, 2]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = "tosa.const_shape"() <{values = dense<[1, 1, 4, 2]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %2 = tosa.slice %arg0, %0, %1 : (tensor<1x6x7x4xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x1x4x2xi8>
    %3 = "tosa.const_shape"() <{values = dense<[4, 2]> : tensor<2xindex>}> : () -> !tosa.shape<2>
    %4 = tosa.reshape %2, %3 : (tensor<1x1x4x2xi8>, !tosa.shape<2>) -> tensor<4x2xi8> loc("out0")
    return %4 : tensor<4x2xi8>
  }
}
