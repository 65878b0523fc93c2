// data_movement.merge_slices on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x2xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[0, 0, 0, 1]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = "tosa.const_shape"() <{values = dense<[1, 6, 7, 3]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %2 = tosa.slice %arg0, %0, %1 : (tensor<1x6x7x4xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x6x7x3xi8>
    %3 = "tosa.const_shape"() <{values = dense<[0, 0, 0, 1]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %4 = "tosa.const_shape"() <{values = dense<[1, 6, 7, 2]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %5 = tosa.slice %2, %3, %4 : (tensor<1x6x7x3xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x6x7x2xi8> loc("out0")
    return %5 : tensor<1x6x7x2xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x2xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[0, 0, 0, 2]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = "tosa.const_shape"() <{values = dense<[1, 6, 7, 2]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %2 = tosa.slice %arg0, %0, %1 : (tensor<1x6x7x4xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x6x7x2xi8> loc("out0")
    return %2 : tensor<1x6x7x2xi8>
  }
}
