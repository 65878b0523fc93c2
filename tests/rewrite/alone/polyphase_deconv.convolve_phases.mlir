// polyphase_deconv.convolve_phases on ethos-u55-128
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x8x8x16xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x15x15x8xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<"0xAF4D5E158B99D5EF1FFBC4A9313C899DF4E46304ECEE2A16AD3D417449C9D22626325ECB7081947971CDA4D18B642916BFF9B146F988C13505E0C1981C29056E6DB51C21C0CDFD3ECB3927B8E3545728822FBA5269EE7542D461E39B185928E567FBE3A6B7334CCB215FA6C70610E6E6A11D6EB34CAE8C3FAF40D511706BFAB5"> : tensor<8x1x1x16xi8>}> : () -> tensor<8x1x1x16xi8>
    %1 = "tosa.const"() <{values = dense<[-498, 701, 177, -662, 771, 927, 936, 247]> : tensor<8xi32>}> : () -> tensor<8xi32>
    %2 = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = tosa.transpose_conv2d %arg0, %0, %1, %2, %3 {out_pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>, acc_type = i32} : (tensor<1x8x8x16xi8>, tensor<8x1x1x16xi8>, tensor<8xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x15x15x8xi32> loc("out0")
    return %4 : tensor<1x15x15x8xi32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x8x8x16xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x15x15x8xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<"0xAF4D5E158B99D5EF1FFBC4A9313C899DF4E46304ECEE2A16AD3D417449C9D22626325ECB7081947971CDA4D18B642916BFF9B146F988C13505E0C1981C29056E6DB51C21C0CDFD3ECB3927B8E3545728822FBA5269EE7542D461E39B185928E567FBE3A6B7334CCB215FA6C70610E6E6A11D6EB34CAE8C3FAF40D511706BFAB50000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"> : tensor<16x1x1x16xi8>}> : () -> tensor<16x1x1x16xi8>
    %1 = "tosa.const"() <{values = dense<[-498, 701, 177, -662, 771, 927, 936, 247, -498, 701, 177, -662, 771, 927, 936, 247]> : tensor<16xi32>}> : () -> tensor<16xi32>
    %2 = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = tosa.conv2d %arg0, %0, %1, %2, %3 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x8x8x16xi8>, tensor<16x1x1x16xi8>, tensor<16xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x8x8x16xi32>
    %5 = "tosa.const"() <{values = dense<0> : tensor<16x1x1x16xi8>}> : () -> tensor<16x1x1x16xi8>
    %6 = "tosa.const"() <{values = dense<[-498, 701, 177, -662, 771, 927, 936, 247, -498, 701, 177, -662, 771, 927, 936, 247]> : tensor<16xi32>}> : () -> tensor<16xi32>
    %7 = tosa.conv2d %arg0, %5, %6, %2, %3 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x8x8x16xi8>, tensor<16x1x1x16xi8>, tensor<16xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x8x8x16xi32>
    %8 = tosa.concat %4, %7 {axis = 2 : i32} : (tensor<1x8x8x16xi32>, tensor<1x8x8x16xi32>) -> tensor<1x8x16x16xi32>
    %9 = "tosa.const_shape"() <{values = dense<[1, 16, 16, 8]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %10 = tosa.reshape %8, %9 : (tensor<1x8x16x16xi32>, !tosa.shape<4>) -> tensor<1x16x16x8xi32>
    %11 = "tosa.const_shape"() <{values = dense<0> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %12 = "tosa.const_shape"() <{values = dense<[1, 15, 15, 8]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %13 = tosa.slice %10, %11, %12 : (tensor<1x16x16x8xi32>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x15x15x8xi32> loc("out0")
    return %13 : tensor<1x15x15x8xi32>
  }
}
