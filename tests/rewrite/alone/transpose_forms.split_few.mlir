// transpose_forms.split_few on ethos-u85-256
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<6x2x4xi8> {tosa.tensor_name = "x"}) -> (tensor<2x6x4xi8> {tosa.tensor_name = "y"}) {
    %0 = tosa.transpose %arg0 {perms = array<i32: 1, 0, 2>} : (tensor<6x2x4xi8>) -> tensor<2x6x4xi8> loc("y")
    return %0 : tensor<2x6x4xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<6x2x4xi8> {tosa.tensor_name = "x"}) -> (tensor<2x6x4xi8> {tosa.tensor_name = "y"}) {
    %0 = "tosa.const_shape"() <{values = dense<[6, 2, 4]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %1 = tosa.reshape %arg0, %0 : (tensor<6x2x4xi8>, !tosa.shape<3>) -> tensor<6x2x4xi8>
    %2 = "tosa.const_shape"() <{values = dense<0> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %3 = "tosa.const_shape"() <{values = dense<[6, 1, 4]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %4 = tosa.slice %1, %2, %3 : (tensor<6x2x4xi8>, !tosa.shape<3>, !tosa.shape<3>) -> tensor<6x1x4xi8>
    %5 = "tosa.const_shape"() <{values = dense<[1, 6, 4]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %6 = tosa.reshape %4, %5 : (tensor<6x1x4xi8>, !tosa.shape<3>) -> tensor<1x6x4xi8>
    %7 = "tosa.const_shape"() <{values = dense<[0, 1, 0]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %8 = "tosa.const_shape"() <{values = dense<[6, 1, 4]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %9 = tosa.slice %1, %7, %8 : (tensor<6x2x4xi8>, !tosa.shape<3>, !tosa.shape<3>) -> tensor<6x1x4xi8>
    %10 = "tosa.const_shape"() <{values = dense<[1, 6, 4]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %11 = tosa.reshape %9, %10 : (tensor<6x1x4xi8>, !tosa.shape<3>) -> tensor<1x6x4xi8>
    %12 = tosa.concat %6, %11 {axis = 0 : i32} : (tensor<1x6x4xi8>, tensor<1x6x4xi8>) -> tensor<2x6x4xi8>
    %13 = "tosa.const_shape"() <{values = dense<[2, 6, 4]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %14 = tosa.reshape %12, %13 : (tensor<2x6x4xi8>, !tosa.shape<3>) -> tensor<2x6x4xi8> loc("y")
    return %14 : tensor<2x6x4xi8>
  }
}
