// transpose_forms.merge_many_axes on ethos-u55-128
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<2x3x2x3x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<2x3x4x2x3xi8>) {
    %0 = tosa.transpose %arg0 {perms = array<i32: 0, 1, 4, 2, 3>} : (tensor<2x3x2x3x4xi8>) -> tensor<2x3x4x2x3xi8>
    return %0 : tensor<2x3x4x2x3xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<2x3x2x3x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<2x3x4x2x3xi8>) {
    %0 = "tosa.const_shape"() <{values = dense<[6, 6, 4]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %1 = tosa.reshape %arg0, %0 : (tensor<2x3x2x3x4xi8>, !tosa.shape<3>) -> tensor<6x6x4xi8>
    %2 = tosa.transpose %1 {perms = array<i32: 0, 2, 1>} : (tensor<6x6x4xi8>) -> tensor<6x4x6xi8>
    %3 = "tosa.const_shape"() <{values = dense<[2, 3, 4, 2, 3]> : tensor<5xindex>}> : () -> !tosa.shape<5>
    %4 = tosa.reshape %2, %3 : (tensor<6x4x6xi8>, !tosa.shape<5>) -> tensor<2x3x4x2x3xi8>
    return %4 : tensor<2x3x4x2x3xi8>
  }
}
