// permute_channels.order_outputs on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<3x1x1x8xi8> {tosa.tensor_name = "in0"}) -> (tensor<3x2x3x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<"0x4F96AEBDAF4D5E158B99D5EF1FFBC4A9313C899DF4E46304ECEE2A16AD3D417449C9D22626325ECB7081947971CDA4D18B642916BFF9B146F988C13505E0C1981C29056E6DB51C21C0CDFD3ECB3927B8E3545728822FBA5269EE7542D461E39B185928E567FBE3A6B7334CCB215FA6C70610E6E6A11D6EB34CAE8C3FAF40D511706BFAB5C05917AC62767820791B00781B49D74A798E09DF8E96C5B237B7205BFFA191CCEAFECE5911776F3587B73F0B7135528ECC2E22DEA917972B4D2B9106"> : tensor<24x1x1x8xi8>}> : () -> tensor<24x1x1x8xi8>
    %1 = "tosa.const"() <{values = dense<"0xD9FFFFFF0A00000024000000C4FFFFFFA4FFFFFFFFFFFFFF17000000B5FFFFFF53000000FCFFFFFF5C000000070000002D00000036000000FFFFFFFFEAFFFFFF21000000A0FFFFFF1700000005000000BAFFFFFFC5FFFFFFA3FFFFFF2F000000"> : tensor<24xi32>}> : () -> tensor<24xi32>
    %2 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = tosa.conv2d %arg0, %0, %1, %2, %3 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<3x1x1x8xi8>, tensor<24x1x1x8xi8>, tensor<24xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<3x1x1x24xi32>
    %5 = "tosa.const"() <{values = dense<1374389534> : tensor<1xi32>}> : () -> tensor<1xi32>
    %6 = "tosa.const"() <{values = dense<37> : tensor<1xi8>}> : () -> tensor<1xi8>
    %7 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %8 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %9 = tosa.rescale %4, %5, %6, %7, %8 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<3x1x1x24xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<3x1x1x24xi8>
    %10 = "tosa.const_shape"() <{values = dense<[3, 4, 2, 3]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %11 = tosa.reshape %9, %10 : (tensor<3x1x1x24xi8>, !tosa.shape<4>) -> tensor<3x4x2x3xi8>
    %12 = tosa.transpose %11 {perms = array<i32: 0, 2, 3, 1>} : (tensor<3x4x2x3xi8>) -> tensor<3x2x3x4xi8> loc("out0")
    return %12 : tensor<3x2x3x4xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<3x1x1x8xi8> {tosa.tensor_name = "in0"}) -> (tensor<3x2x3x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<"0x4F96AEBDAF4D5E158B642916BFF9B146185928E567FBE3A61B49D74A798E09DF8B99D5EF1FFBC4A9F988C13505E0C198B7334CCB215FA6C78E96C5B237B7205B313C899DF4E463041C29056E6DB51C210610E6E6A11D6EB3FFA191CCEAFECE59ECEE2A16AD3D4174C0CDFD3ECB3927B84CAE8C3FAF40D51111776F3587B73F0B49C9D22626325ECBE3545728822FBA52706BFAB5C05917AC7135528ECC2E22DE7081947971CDA4D169EE7542D461E39B62767820791B0078A917972B4D2B9106"> : tensor<24x1x1x8xi8>}> : () -> tensor<24x1x1x8xi8>
    %1 = "tosa.const"() <{values = dense<"0xD9FFFFFF170000002D000000170000000A000000B5FFFFFF36000000050000002400000053000000FFFFFFFFBAFFFFFFC4FFFFFFFCFFFFFFEAFFFFFFC5FFFFFFA4FFFFFF5C00000021000000A3FFFFFFFFFFFFFF07000000A0FFFFFF2F000000"> : tensor<24xi32>}> : () -> tensor<24xi32>
    %2 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = tosa.conv2d %arg0, %0, %1, %2, %3 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<3x1x1x8xi8>, tensor<24x1x1x8xi8>, tensor<24xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<3x1x1x24xi32>
    %5 = "tosa.const"() <{values = dense<1374389534> : tensor<1xi32>}> : () -> tensor<1xi32>
    %6 = "tosa.const"() <{values = dense<37> : tensor<1xi8>}> : () -> tensor<1xi8>
    %7 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %8 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %9 = tosa.rescale %4, %5, %6, %7, %8 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<3x1x1x24xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<3x1x1x24xi8>
    %10 = "tosa.const_shape"() <{values = dense<[3, 2, 3, 4]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %11 = tosa.reshape %9, %10 : (tensor<3x1x1x24xi8>, !tosa.shape<4>) -> tensor<3x2x3x4xi8> loc("out0")
    return %11 : tensor<3x2x3x4xi8>
  }
}
