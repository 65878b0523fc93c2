// transpose_forms.merge_axes on ethos-u55-128
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<10x1x1x12xi8> {tosa.tensor_name = "in0"}) -> (tensor<12x1x10x1xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.transpose %arg0 {perms = array<i32: 3, 2, 0, 1>} : (tensor<10x1x1x12xi8>) -> tensor<12x1x10x1xi8> loc("out0")
    return %0 : tensor<12x1x10x1xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<10x1x1x12xi8> {tosa.tensor_name = "in0"}) -> (tensor<12x1x10x1xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[10, 12]> : tensor<2xindex>}> : () -> !tosa.shape<2>
    %1 = tosa.reshape %arg0, %0 : (tensor<10x1x1x12xi8>, !tosa.shape<2>) -> tensor<10x12xi8>
    %2 = tosa.transpose %1 {perms = array<i32: 1, 0>} : (tensor<10x12xi8>) -> tensor<12x10xi8>
    %3 = "tosa.const_shape"() <{values = dense<[12, 1, 10, 1]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %4 = tosa.reshape %2, %3 : (tensor<12x10xi8>, !tosa.shape<4>) -> tensor<12x1x10x1xi8> loc("out0")
    return %4 : tensor<12x1x10x1xi8>
  }
}
