// reshape_sharing.reshape_behind on ethos-u55-128
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x3x5x24xi8> {tosa.tensor_name = "in0"}) -> (tensor<24x15xi8> {tosa.tensor_name = "out0"}, tensor<1x3x5x24xi32> {tosa.tensor_name = "out1"}) {
    %0 = "tosa.const_shape"() <{values = dense<[15, 24]> : tensor<2xindex>}> : () -> !tosa.shape<2>
    %1 = tosa.reshape %arg0, %0 : (tensor<1x3x5x24xi8>, !tosa.shape<2>) -> tensor<15x24xi8>
    %2 = tosa.transpose %1 {perms = array<i32: 1, 0>} : (tensor<15x24xi8>) -> tensor<24x15xi8> loc("out0")
    %3 = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
    %4 = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
    %5 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %6 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %7 = tosa.rescale %arg0, %3, %4, %5, %6 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x3x5x24xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x3x5x24xi32> loc("out1")
    return %2, %7 : tensor<24x15xi8>, tensor<1x3x5x24xi32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x3x5x24xi8> {tosa.tensor_name = "in0"}) -> (tensor<24x15xi8> {tosa.tensor_name = "out0"}, tensor<1x3x5x24xi32> {tosa.tensor_name = "out1"}) {
    %0 = tosa.transpose %arg0 {perms = array<i32: 0, 3, 1, 2>} : (tensor<1x3x5x24xi8>) -> tensor<1x24x3x5xi8>
    %1 = "tosa.const_shape"() <{values = dense<[24, 15]> : tensor<2xindex>}> : () -> !tosa.shape<2>
    %2 = tosa.reshape %0, %1 : (tensor<1x24x3x5xi8>, !tosa.shape<2>) -> tensor<24x15xi8> loc("out0")
    %3 = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
    %4 = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
    %5 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %6 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %7 = tosa.rescale %arg0, %3, %4, %5, %6 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x3x5x24xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x3x5x24xi32> loc("out1")
    return %2, %7 : tensor<24x15xi8>, tensor<1x3x5x24xi32>
  }
}
