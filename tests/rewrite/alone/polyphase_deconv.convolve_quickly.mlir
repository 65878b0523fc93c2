// polyphase_deconv.convolve_quickly on cortex-m4
#loc0 = loc(fused<{node = "aten.conv_transpose2d.input", module = "0"}>[unknown])
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x3x4x2xi8> {tosa.tensor_name = "input"}) -> (tensor<1x5x7x3xi8> {tosa.tensor_name = "relu"}) {
    %0 = "tosa.const"() <{values = dense<"0x071FBC52167F859AA0D0BC34536E4E73C575FB1951917F0C33B011895571B56118819D1885E2A4E350AF474497973641615AEA7F0742"> : tensor<3x3x3x2xi8>}> : () -> tensor<3x3x3x2xi8> loc(#loc0)
    %1 = "tosa.const"() <{values = dense<[-3819, -2407, 2582]> : tensor<3xi32>}> : () -> tensor<3xi32> loc(#loc0)
    %2 = "tosa.const"() <{values = dense<9> : tensor<1xi8>}> : () -> tensor<1xi8> loc(#loc0)
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8> loc(#loc0)
    %4 = tosa.transpose_conv2d %arg0, %0, %1, %2, %3 {out_pad = array<i64: -1, -1, -1, -1>, stride = array<i64: 2, 2>, acc_type = i32} : (tensor<1x3x4x2xi8>, tensor<3x3x3x2xi8>, tensor<3xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x5x7x3xi32> loc(#loc0)
    %5 = "tosa.const"() <{values = dense<[1635118245, 1698694031, 1219060448]> : tensor<3xi32>}> : () -> tensor<3xi32> loc(#loc0)
    %6 = "tosa.const"() <{values = dense<37> : tensor<3xi8>}> : () -> tensor<3xi8> loc(#loc0)
    %7 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32> loc(#loc0)
    %8 = "tosa.const"() <{values = dense<-128> : tensor<1xi8>}> : () -> tensor<1xi8> loc(#loc0)
    %9 = tosa.rescale %4, %5, %6, %7, %8 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x5x7x3xi32>, tensor<3xi32>, tensor<3xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x5x7x3xi8> loc("relu"(#loc0))
    return %9 : tensor<1x5x7x3xi8>
  }
}
// -----
#loc0 = loc(fused<{node = "aten.conv_transpose2d.input", module = "0"}>[unknown])
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x3x4x2xi8> {tosa.tensor_name = "input"}) -> (tensor<1x5x7x3xi8> {tosa.tensor_name = "relu"}) {
    %0 = "tosa.const"() <{values = dense<"0xA0D000001189000097970000BC34859A557133B036414744"> : tensor<6x1x2x2xi8>}> : () -> tensor<6x1x2x2xi8> loc(#loc0)
    %1 = "tosa.const"() <{values = dense<[-3819, -2407, 2582, -3819, -2407, 2582]> : tensor<6xi32>}> : () -> tensor<6xi32> loc(#loc0)
    %2 = "tosa.const"() <{values = dense<9> : tensor<1xi8>}> : () -> tensor<1xi8> loc(#loc0)
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8> loc(#loc0)
    %4 = tosa.conv2d %arg0, %0, %1, %2, %3 {pad = array<i64: 0, 0, 0, 1>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x3x4x2xi8>, tensor<6x1x2x2xi8>, tensor<6xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x3x4x6xi32> loc(#loc0)
    %5 = "tosa.const"() <{values = dense<[1635118245, 1698694031, 1219060448, 1635118245, 1698694031, 1219060448]> : tensor<6xi32>}> : () -> tensor<6xi32> loc(#loc0)
    %6 = "tosa.const"() <{values = dense<37> : tensor<6xi8>}> : () -> tensor<6xi8> loc(#loc0)
    %7 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32> loc(#loc0)
    %8 = "tosa.const"() <{values = dense<-128> : tensor<1xi8>}> : () -> tensor<1xi8> loc(#loc0)
    %9 = tosa.rescale %4, %5, %6, %7, %8 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x3x4x6xi32>, tensor<6xi32>, tensor<6xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x3x4x6xi8> loc(#loc0)
    %10 = "tosa.const"() <{values = dense<"0x4E730000BC5200001881000051910000EA7F0000A4E30000C575536E167F071F9D18B5617F0CFB190742615A50AF85E2"> : tensor<6x2x2x2xi8>}> : () -> tensor<6x2x2x2xi8> loc(#loc0)
    %11 = "tosa.const"() <{values = dense<[-3819, -2407, 2582, -3819, -2407, 2582]> : tensor<6xi32>}> : () -> tensor<6xi32> loc(#loc0)
    %12 = tosa.conv2d %arg0, %10, %11, %2, %3 {pad = array<i64: 0, 1, 0, 1>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x3x4x2xi8>, tensor<6x2x2x2xi8>, tensor<6xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x3x4x6xi32> loc(#loc0)
    %13 = "tosa.const"() <{values = dense<[1635118245, 1698694031, 1219060448, 1635118245, 1698694031, 1219060448]> : tensor<6xi32>}> : () -> tensor<6xi32> loc(#loc0)
    %14 = "tosa.const"() <{values = dense<37> : tensor<6xi8>}> : () -> tensor<6xi8> loc(#loc0)
    %15 = tosa.rescale %12, %13, %14, %7, %8 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x3x4x6xi32>, tensor<6xi32>, tensor<6xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x3x4x6xi8> loc(#loc0)
    %16 = tosa.concat %9, %15 {axis = 2 : i32} : (tensor<1x3x4x6xi8>, tensor<1x3x4x6xi8>) -> tensor<1x3x8x6xi8> loc(#loc0)
    %17 = "tosa.const_shape"() <{values = dense<[1, 6, 8, 3]> : tensor<4xindex>}> : () -> !tosa.shape<4> loc(#loc0)
    %18 = tosa.reshape %16, %17 : (tensor<1x3x8x6xi8>, !tosa.shape<4>) -> tensor<1x6x8x3xi8> loc(#loc0)
    %19 = "tosa.const_shape"() <{values = dense<0> : tensor<4xindex>}> : () -> !tosa.shape<4> loc(#loc0)
    %20 = "tosa.const_shape"() <{values = dense<[1, 5, 7, 3]> : tensor<4xindex>}> : () -> !tosa.shape<4> loc(#loc0)
    %21 = tosa.slice %18, %19, %20 : (tensor<1x6x8x3xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x5x7x3xi8> loc("relu"(#loc0))
    return %21 : tensor<1x5x7x3xi8>
  }
}
