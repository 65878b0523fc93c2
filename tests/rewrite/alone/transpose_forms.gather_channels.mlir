// transpose_forms.gather_channels on ethos-u85-256
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<16x5xi16> {tosa.tensor_name = "in0"}) -> (tensor<5x16xi16> {tosa.tensor_name = "out0"}) {
    %0 = tosa.transpose %arg0 {perms = array<i32: 1, 0>} : (tensor<16x5xi16>) -> tensor<5x16xi16> loc("out0")
    return %0 : tensor<5x16xi16>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<16x5xi16> {tosa.tensor_name = "in0"}) -> (tensor<5x16xi16> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[1, 16, 5, 1]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = tosa.reshape %arg0, %0 : (tensor<16x5xi16>, !tosa.shape<4>) -> tensor<1x16x5x1xi16>
    %2 = "tosa.const"() <{values = dense<"0x01000000000000000000000000000000000100000000000000000000000000000000010000000000000000000000000000000001000000000000000000000000000000000100000000000000000000000000000000010000000000000000000000000000000001000000000000000000000000000000000100000000000000000000000000000000010000000000000000000000000000000001000000000000000000000000000000000100000000000000000000000000000000010000000000000000000000000000000001000000000000000000000000000000000100000000000000000000000000000000010000000000000000000000000000000001"> : tensor<16x16x1x1xi8>}> : () -> tensor<16x16x1x1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi48>}> : () -> tensor<1xi48>
    %4 = "tosa.const"() <{values = dense<0> : tensor<1xi16>}> : () -> tensor<1xi16>
    %5 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %6 = tosa.conv2d %1, %2, %3, %4, %5 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i48} : (tensor<1x16x5x1xi16>, tensor<16x16x1x1xi8>, tensor<1xi48>, tensor<1xi16>, tensor<1xi8>) -> tensor<1x1x5x16xi48>
    %7 = "tosa.const"() <{values = dense<16384> : tensor<1xi16>}> : () -> tensor<1xi16>
    %8 = "tosa.const"() <{values = dense<14> : tensor<1xi8>}> : () -> tensor<1xi8>
    %9 = "tosa.const"() <{values = dense<0> : tensor<1xi48>}> : () -> tensor<1xi48>
    %10 = "tosa.const"() <{values = dense<0> : tensor<1xi16>}> : () -> tensor<1xi16>
    %11 = tosa.rescale %6, %7, %8, %9, %10 {scale32 = false, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x1x5x16xi48>, tensor<1xi16>, tensor<1xi8>, tensor<1xi48>, tensor<1xi16>) -> tensor<1x1x5x16xi16>
    %12 = "tosa.const_shape"() <{values = dense<[5, 16]> : tensor<2xindex>}> : () -> !tosa.shape<2>
    %13 = tosa.reshape %11, %12 : (tensor<1x1x5x16xi16>, !tosa.shape<2>) -> tensor<5x16xi16> loc("out0")
    return %13 : tensor<5x16xi16>
  }
}
