// rescale_as_depthwise.scale_by_convolution on ethos-u55-128
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<4x40x80xi8> {tosa.tensor_name = "in0"}) -> (tensor<4x40x80xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<595553836> : tensor<1xi32>}> : () -> tensor<1xi32>
    %1 = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
    %2 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = "tosa.const"() <{values = dense<-9> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = tosa.rescale %arg0, %0, %1, %2, %3 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<4x40x80xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<4x40x80xi8> loc("out0")
    return %4 : tensor<4x40x80xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<4x40x80xi8> {tosa.tensor_name = "in0"}) -> (tensor<4x40x80xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[1, 1, 800, 16]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = tosa.reshape %arg0, %0 : (tensor<4x40x80xi8>, !tosa.shape<4>) -> tensor<1x1x800x16xi8>
    %2 = "tosa.const"() <{values = dense<1> : tensor<1x1x16x1xi8>}> : () -> tensor<1x1x16x1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %4 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %5 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %6 = tosa.depthwise_conv2d %1, %2, %3, %4, %5 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x1x800x16xi8>, tensor<1x1x16x1xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x800x16xi32>
    %7 = "tosa.const"() <{values = dense<595553836> : tensor<1xi32>}> : () -> tensor<1xi32>
    %8 = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
    %9 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %10 = "tosa.const"() <{values = dense<-9> : tensor<1xi8>}> : () -> tensor<1xi8>
    %11 = tosa.rescale %6, %7, %8, %9, %10 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x1x800x16xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x1x800x16xi8>
    %12 = "tosa.const_shape"() <{values = dense<[4, 40, 80]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %13 = tosa.reshape %11, %12 : (tensor<1x1x800x16xi8>, !tosa.shape<3>) -> tensor<4x40x80xi8> loc("out0")
    return %13 : tensor<4x40x80xi8>
  }
}
