// fold_pads.pad_convolution on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x8x10x8xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[0, 0, 1, 1, 2, 1, 0, 0]> : tensor<8xindex>}> : () -> !tosa.shape<8>
    %1 = "tosa.const"() <{values = dense<5> : tensor<1xi8>}> : () -> tensor<1xi8>
    %2 = tosa.pad %arg0, %0, %1 : (tensor<1x6x7x4xi8>, !tosa.shape<8>, tensor<1xi8>) -> tensor<1x8x10x4xi8>
    %3 = "tosa.const"() <{values = dense<"0x4F96AEBDAF4D5E158B99D5EF1FFBC4A9313C899DF4E46304ECEE2A16AD3D417449C9D22626325ECB7081947971CDA4D18B642916BFF9B146F988C13505E0C1981C29056E6DB51C21"> : tensor<3x3x4x2xi8>}> : () -> tensor<3x3x4x2xi8>
    %4 = "tosa.const"() <{values = dense<[-50, -40, -3, 47, -42, 43, 30, -56]> : tensor<8xi32>}> : () -> tensor<8xi32>
    %5 = "tosa.const"() <{values = dense<5> : tensor<1xi8>}> : () -> tensor<1xi8>
    %6 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %7 = tosa.depthwise_conv2d %2, %3, %4, %5, %6 {pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x8x10x4xi8>, tensor<3x3x4x2xi8>, tensor<8xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x8x10x8xi32> loc("out0")
    return %7 : tensor<1x8x10x8xi32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x8x10x8xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<"0x4F96AEBDAF4D5E158B99D5EF1FFBC4A9313C899DF4E46304ECEE2A16AD3D417449C9D22626325ECB7081947971CDA4D18B642916BFF9B146F988C13505E0C1981C29056E6DB51C21"> : tensor<3x3x4x2xi8>}> : () -> tensor<3x3x4x2xi8>
    %1 = "tosa.const"() <{values = dense<[-50, -40, -3, 47, -42, 43, 30, -56]> : tensor<8xi32>}> : () -> tensor<8xi32>
    %2 = "tosa.const"() <{values = dense<5> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = tosa.depthwise_conv2d %arg0, %0, %1, %2, %3 {pad = array<i64: 2, 2, 3, 2>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x6x7x4xi8>, tensor<3x3x4x2xi8>, tensor<8xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x8x10x8xi32> loc("out0")
    return %4 : tensor<1x8x10x8xi32>
  }
}
