// transpose_forms.gather_by_product on ethos-u85-256
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x3x4xi8> {tosa.tensor_name = "x"}) -> (tensor<1x5x4xi8> {tosa.tensor_name = "y"}) {
    %0 = "tosa.const"() <{values = dense<[[2, 0, 1, 2, 2]]> : tensor<1x5xi32>}> : () -> tensor<1x5xi32>
    %1 = tosa.gather %arg0, %0 : (tensor<1x3x4xi8>, tensor<1x5xi32>) -> tensor<1x5x4xi8> loc("y")
    return %1 : tensor<1x5x4xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x3x4xi8> {tosa.tensor_name = "x"}) -> (tensor<1x5x4xi8> {tosa.tensor_name = "y"}) {
    %0 = tosa.transpose %arg0 {perms = array<i32: 0, 2, 1>} : (tensor<1x3x4xi8>) -> tensor<1x4x3xi8>
    %1 = "tosa.const_shape"() <{values = dense<[1, 1, 4, 3]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %2 = tosa.reshape %0, %1 : (tensor<1x4x3xi8>, !tosa.shape<4>) -> tensor<1x1x4x3xi8>
    %3 = "tosa.const"() <{values = dense<[[[[0, 0, 1]]], [[[1, 0, 0]]], [[[0, 1, 0]]], [[[0, 0, 1]]], [[[0, 0, 1]]]]> : tensor<5x1x1x3xi8>}> : () -> tensor<5x1x1x3xi8>
    %4 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %5 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %6 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %7 = tosa.conv2d %2, %3, %4, %5, %6 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x1x4x3xi8>, tensor<5x1x1x3xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x4x5xi32>
    %8 = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
    %9 = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
    %10 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %11 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %12 = tosa.rescale %7, %8, %9, %10, %11 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x1x4x5xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x1x4x5xi8>
    %13 = "tosa.const_shape"() <{values = dense<[1, 4, 5]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %14 = tosa.reshape %12, %13 : (tensor<1x1x4x5xi8>, !tosa.shape<3>) -> tensor<1x4x5xi8>
    %15 = tosa.transpose %14 {perms = array<i32: 0, 2, 1>} : (tensor<1x4x5xi8>) -> tensor<1x5x4xi8> loc("y")
    return %15 : tensor<1x5x4xi8>
  }
}
