// fold_pads.reshape_first on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x9x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[0, 0, 2, 0, 0, 0]> : tensor<6xindex>}> : () -> !tosa.shape<6>
    %1 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %2 = tosa.pad %arg0, %0, %1 : (tensor<6x7x4xi8>, !tosa.shape<6>, tensor<1xi8>) -> tensor<6x9x4xi8>
    %3 = "tosa.const_shape"() <{values = dense<[1, 6, 9, 4]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %4 = tosa.reshape %2, %3 : (tensor<6x9x4xi8>, !tosa.shape<4>) -> tensor<1x6x9x4xi8> loc("out0")
    return %4 : tensor<1x6x9x4xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x9x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[1, 6, 7, 4]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = tosa.reshape %arg0, %0 : (tensor<6x7x4xi8>, !tosa.shape<4>) -> tensor<1x6x7x4xi8>
    %2 = "tosa.const_shape"() <{values = dense<[0, 0, 0, 0, 2, 0, 0, 0]> : tensor<8xindex>}> : () -> !tosa.shape<8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = tosa.pad %1, %2, %3 : (tensor<1x6x7x4xi8>, !tosa.shape<8>, tensor<1xi8>) -> tensor<1x6x9x4xi8> loc("out0")
    return %4 : tensor<1x6x9x4xi8>
  }
}
