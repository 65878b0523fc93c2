// sink_below_concat.apply_once on vgf
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x2x2x3xi32> {tosa.tensor_name = "in0"}, %arg1: tensor<1x2x2x2xi32> {tosa.tensor_name = "in1"}) -> (tensor<1x2x2x5xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<[1073741824, 1073742824, 1073743824]> : tensor<3xi32>}> : () -> tensor<3xi32>
    %1 = "tosa.const"() <{values = dense<[33, 34, 35]> : tensor<3xi8>}> : () -> tensor<3xi8>
    %2 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %3 = "tosa.const"() <{values = dense<-4> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = tosa.rescale %arg0, %0, %1, %2, %3 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x2x2x3xi32>, tensor<3xi32>, tensor<3xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x2x2x3xi8>
    %5 = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
    %6 = "tosa.const"() <{values = dense<34> : tensor<1xi8>}> : () -> tensor<1xi8>
    %7 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %8 = "tosa.const"() <{values = dense<-4> : tensor<1xi8>}> : () -> tensor<1xi8>
    %9 = tosa.rescale %arg1, %5, %6, %7, %8 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x2x2x2xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x2x2x2xi8>
    %10 = tosa.concat %4, %9 {axis = 3 : i32} : (tensor<1x2x2x3xi8>, tensor<1x2x2x2xi8>) -> tensor<1x2x2x5xi8> loc("out0")
    return %10 : tensor<1x2x2x5xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x2x2x3xi32> {tosa.tensor_name = "in0"}, %arg1: tensor<1x2x2x2xi32> {tosa.tensor_name = "in1"}) -> (tensor<1x2x2x5xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.concat %arg0, %arg1 {axis = 3 : i32} : (tensor<1x2x2x3xi32>, tensor<1x2x2x2xi32>) -> tensor<1x2x2x5xi32>
    %1 = "tosa.const"() <{values = dense<[1073741824, 1073742824, 1073743824, 1073741824, 1073741824]> : tensor<5xi32>}> : () -> tensor<5xi32>
    %2 = "tosa.const"() <{values = dense<[33, 34, 35, 34, 34]> : tensor<5xi8>}> : () -> tensor<5xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %4 = "tosa.const"() <{values = dense<-4> : tensor<1xi8>}> : () -> tensor<1xi8>
    %5 = tosa.rescale %0, %1, %2, %3, %4 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x2x2x5xi32>, tensor<5xi32>, tensor<5xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x2x2x5xi8> loc("out0")
    return %5 : tensor<1x2x2x5xi8>
  }
}
