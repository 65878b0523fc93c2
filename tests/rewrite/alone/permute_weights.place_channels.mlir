// permute_weights.place_channels on ethos-u55-128
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x8x8x8xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x8x2x8x2x8xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<"0xF903417389A55272C0D05EECC654C2E9250D96885D41560A51D5F44AA0CEA0F47AA3E2E767B401C3864090C800FC9E7B40769839CB0B6CC73AA9D378EC04CB9EED1FF547DD1D466AED8B38075FF6DE90F524455AB7184EC3D85715022C037B418EA60B52922F42495FB10E4DDCB1FB95B95B2B5C5760D0F91EC66B825625C138"> : tensor<2x2x8x4xi8>}> : () -> tensor<2x2x8x4xi8>
    %1 = "tosa.const"() <{values = dense<"0xEEFFFFFF4200000062000000D4FFFFFFFAFFFFFFC7FFFFFF260000001B000000440000003C0000005E0000005B0000004E000000BAFFFFFFA5FFFFFFFCFFFFFFE1FFFFFF4E0000003A000000F0FFFFFF0E000000110000004D000000A1FFFFFFFDFFFFFF22000000F6FFFFFF520000005900000040000000F8FFFFFF4C000000"> : tensor<32xi32>}> : () -> tensor<32xi32>
    %2 = "tosa.const"() <{values = dense<-4> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = tosa.depthwise_conv2d %arg0, %0, %1, %2, %3 {pad = array<i64: 1, 0, 1, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x8x8x8xi8>, tensor<2x2x8x4xi8>, tensor<32xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x8x8x32xi32>
    %5 = "tosa.const"() <{values = dense<"0x305658229BA12135C34694286D90DB27CB4EBE35F6B09738BB646E3C1C0AC62675B4E43BAECD993A5477102A04C90122C82FB3386B656A3A786BBD2EBEA44325E49AA9244634012C44AD3A3814B8222A04060221D86E1F36D8AED0375FDCB6258F06EF316721AE2CF8FE09300FB72F203DA54E344F5B66281E80BD31F6607A2D"> : tensor<32xi32>}> : () -> tensor<32xi32>
    %6 = "tosa.const"() <{values = dense<37> : tensor<32xi8>}> : () -> tensor<32xi8>
    %7 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %8 = "tosa.const"() <{values = dense<4> : tensor<1xi8>}> : () -> tensor<1xi8>
    %9 = tosa.rescale %4, %5, %6, %7, %8 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x8x8x32xi32>, tensor<32xi32>, tensor<32xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x8x8x32xi8>
    %10 = "tosa.const_shape"() <{values = dense<[1, 8, 8, 8, 2, 2]> : tensor<6xindex>}> : () -> !tosa.shape<6>
    %11 = tosa.reshape %9, %10 : (tensor<1x8x8x32xi8>, !tosa.shape<6>) -> tensor<1x8x8x8x2x2xi8>
    %12 = tosa.transpose %11 {perms = array<i32: 0, 1, 4, 2, 5, 3>} : (tensor<1x8x8x8x2x2xi8>) -> tensor<1x8x2x8x2x8xi8> loc("out0")
    return %12 : tensor<1x8x2x8x2x8xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x8x8x8xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x8x2x8x2x8xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.concat %arg0, %arg0 {axis = 3 : i32} : (tensor<1x8x8x8xi8>, tensor<1x8x8x8xi8>) -> tensor<1x8x8x16xi8>
    %1 = "tosa.const"() <{values = dense<"0xF989C0C6255D51A003A5D0540D41D5CE7A67860040CB3AECA3B440FC760BA904EDDDED5FF5B7D82C1F1D8BF6241857038E925FDCB9571E56A62FB1B15B60C625"> : tensor<2x2x16x1xi8>}> : () -> tensor<2x2x16x1xi8>
    %2 = "tosa.const"() <{values = dense<[-18, -6, 68, 78, -31, 14, -3, 89, 66, -57, 60, -70, 78, 17, 34, 64]> : tensor<16xi32>}> : () -> tensor<16xi32>
    %3 = "tosa.const"() <{values = dense<-4> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %5 = tosa.depthwise_conv2d %0, %1, %2, %3, %4 {pad = array<i64: 1, 0, 1, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x8x8x16xi8>, tensor<2x2x16x1xi8>, tensor<16xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x8x8x16xi32>
    %6 = "tosa.const"() <{values = dense<[576214576, 901664459, 1004844149, 951267272, 615095012, 553780740, 837748367, 877569341, 891396507, 949465334, 983158190, 980051307, 738276422, 908029656, 749609319, 677796687]> : tensor<16xi32>}> : () -> tensor<16xi32>
    %7 = "tosa.const"() <{values = dense<37> : tensor<16xi8>}> : () -> tensor<16xi8>
    %8 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %9 = "tosa.const"() <{values = dense<4> : tensor<1xi8>}> : () -> tensor<1xi8>
    %10 = tosa.rescale %5, %6, %7, %8, %9 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x8x8x16xi32>, tensor<16xi32>, tensor<16xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x8x8x16xi8>
    %11 = "tosa.const"() <{values = dense<"0x41525EC29656F4A07372ECE9880A4AF4E201909E986CD3CBE7C3C87B39C7789EF54638DE454E157B476A07905AC302410B420EFB2BD06BC152494D955CF98238"> : tensor<2x2x16x1xi8>}> : () -> tensor<2x2x16x1xi8>
    %12 = "tosa.const"() <{values = dense<[98, 38, 94, -91, 58, 77, -10, -8, -44, 27, 91, -4, -16, -95, 82, 76]> : tensor<16xi32>}> : () -> tensor<16xi32>
    %13 = tosa.depthwise_conv2d %0, %11, %12, %3, %4 {pad = array<i64: 1, 0, 1, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x8x8x16xi8>, tensor<2x2x16x1xi8>, tensor<16xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x8x8x16xi32>
    %14 = "tosa.const"() <{values = dense<[680806083, 1013867707, 705722196, 784165752, 943369540, 936423128, 805961464, 834502686, 668700781, 650512924, 570542340, 625190078, 706918420, 632740959, 539997967, 762994934]> : tensor<16xi32>}> : () -> tensor<16xi32>
    %15 = "tosa.const"() <{values = dense<37> : tensor<16xi8>}> : () -> tensor<16xi8>
    %16 = tosa.rescale %13, %14, %15, %8, %9 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x8x8x16xi32>, tensor<16xi32>, tensor<16xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x8x8x16xi8>
    %17 = tosa.concat %10, %16 {axis = 2 : i32} : (tensor<1x8x8x16xi8>, tensor<1x8x8x16xi8>) -> tensor<1x8x16x16xi8>
    %18 = "tosa.const_shape"() <{values = dense<[1, 8, 2, 8, 2, 8]> : tensor<6xindex>}> : () -> !tosa.shape<6>
    %19 = tosa.reshape %17, %18 : (tensor<1x8x16x16xi8>, !tosa.shape<6>) -> tensor<1x8x2x8x2x8xi8> loc("out0")
    return %19 : tensor<1x8x2x8x2x8xi8>
  }
}
