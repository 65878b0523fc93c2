// peak_memory.sum_windows on ethos-u55-128
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x9x3x48xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x1x3x48xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
    %1 = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
    %2 = "tosa.const"() <{values = dense<2> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %4 = tosa.rescale %arg0, %0, %1, %2, %3 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x9x3x48xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x9x3x48xi32>
    %5 = tosa.reduce_sum %4 {axis = 1 : i32} : (tensor<1x9x3x48xi32>) -> tensor<1x1x3x48xi32> loc("out0")
    return %5 : tensor<1x1x3x48xi32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x9x3x48xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x1x3x48xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[1, 9, 1, 144]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = tosa.reshape %arg0, %0 : (tensor<1x9x3x48xi8>, !tosa.shape<4>) -> tensor<1x9x1x144xi8>
    %2 = "tosa.const"() <{values = dense<1> : tensor<9x1x144x1xi8>}> : () -> tensor<9x1x144x1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %4 = "tosa.const"() <{values = dense<2> : tensor<1xi8>}> : () -> tensor<1xi8>
    %5 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %6 = tosa.depthwise_conv2d %1, %2, %3, %4, %5 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x9x1x144xi8>, tensor<9x1x144x1xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x1x144xi32>
    %7 = "tosa.const_shape"() <{values = dense<[1, 1, 3, 48]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %8 = tosa.reshape %6, %7 : (tensor<1x1x1x144xi32>, !tosa.shape<4>) -> tensor<1x1x3x48xi32> loc("out0")
    return %8 : tensor<1x1x3x48xi32>
  }
}
