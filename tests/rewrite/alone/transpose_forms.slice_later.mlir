// transpose_forms.slice_later on ethos-u55-128
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x3x16x16xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x15x15x3xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[0, 0, 1, 0]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = "tosa.const_shape"() <{values = dense<[1, 3, 15, 15]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %2 = tosa.slice %arg0, %0, %1 : (tensor<1x3x16x16xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x3x15x15xi8>
    %3 = tosa.transpose %2 {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x3x15x15xi8>) -> tensor<1x15x15x3xi8> loc("out0")
    return %3 : tensor<1x15x15x3xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x3x16x16xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x15x15x3xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.transpose %arg0 {perms = array<i32: 0, 2, 3, 1>} : (tensor<1x3x16x16xi8>) -> tensor<1x16x16x3xi8>
    %1 = "tosa.const_shape"() <{values = dense<[0, 1, 0, 0]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %2 = "tosa.const_shape"() <{values = dense<[1, 15, 15, 3]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %3 = tosa.slice %0, %1, %2 : (tensor<1x16x16x3xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x15x15x3xi8> loc("out0")
    return %3 : tensor<1x15x15x3xi8>
  }
}
