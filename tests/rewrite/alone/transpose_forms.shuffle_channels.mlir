// transpose_forms.shuffle_channels on ethos-u85-256
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x4x5x6xi8> {tosa.tensor_name = "x"}) -> (tensor<1x4x5x6xi8> {tosa.tensor_name = "y"}) {
    %0 = "tosa.const_shape"() <{values = dense<[20, 2, 3]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %1 = tosa.reshape %arg0, %0 : (tensor<1x4x5x6xi8>, !tosa.shape<3>) -> tensor<20x2x3xi8>
    %2 = tosa.transpose %1 {perms = array<i32: 0, 2, 1>} : (tensor<20x2x3xi8>) -> tensor<20x3x2xi8>
    %3 = "tosa.const_shape"() <{values = dense<[1, 4, 5, 6]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %4 = tosa.reshape %2, %3 : (tensor<20x3x2xi8>, !tosa.shape<4>) -> tensor<1x4x5x6xi8> loc("y")
    return %4 : tensor<1x4x5x6xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x4x5x6xi8> {tosa.tensor_name = "x"}) -> (tensor<1x4x5x6xi8> {tosa.tensor_name = "y"}) {
    %0 = "tosa.const_shape"() <{values = dense<[20, 2, 3]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %1 = tosa.reshape %arg0, %0 : (tensor<1x4x5x6xi8>, !tosa.shape<3>) -> tensor<20x2x3xi8>
    %2 = "tosa.const_shape"() <{values = dense<[1, 1, 20, 6]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %3 = tosa.reshape %1, %2 : (tensor<20x2x3xi8>, !tosa.shape<4>) -> tensor<1x1x20x6xi8>
    %4 = "tosa.const"() <{values = dense<"0x010000000000000000010000000100000000000000000100000001000000000000000001"> : tensor<6x1x1x6xi8>}> : () -> tensor<6x1x1x6xi8>
    %5 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %6 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %7 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %8 = tosa.conv2d %3, %4, %5, %6, %7 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x1x20x6xi8>, tensor<6x1x1x6xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x20x6xi32>
    %9 = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
    %10 = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
    %11 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %12 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %13 = tosa.rescale %8, %9, %10, %11, %12 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x1x20x6xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x1x20x6xi8>
    %14 = "tosa.const_shape"() <{values = dense<[20, 3, 2]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %15 = tosa.reshape %13, %14 : (tensor<1x1x20x6xi8>, !tosa.shape<3>) -> tensor<20x3x2xi8>
    %16 = "tosa.const_shape"() <{values = dense<[1, 4, 5, 6]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %17 = tosa.reshape %15, %16 : (tensor<20x3x2xi8>, !tosa.shape<4>) -> tensor<1x4x5x6xi8> loc("y")
    return %17 : tensor<1x4x5x6xi8>
  }
}
