// arithmetic.narrow_product on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi16> {tosa.tensor_name = "in0"}, %arg1: tensor<1x6x7x4xi16> {tosa.tensor_name = "in1"}) -> (tensor<1x6x7x4xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
    %1 = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
    %2 = "tosa.const"() <{values = dense<0> : tensor<1xi16>}> : () -> tensor<1xi16>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %4 = tosa.rescale %arg0, %0, %1, %2, %3 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x6x7x4xi16>, tensor<1xi32>, tensor<1xi8>, tensor<1xi16>, tensor<1xi32>) -> tensor<1x6x7x4xi32>
    %5 = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
    %6 = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
    %7 = "tosa.const"() <{values = dense<0> : tensor<1xi16>}> : () -> tensor<1xi16>
    %8 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %9 = tosa.rescale %arg1, %5, %6, %7, %8 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x6x7x4xi16>, tensor<1xi32>, tensor<1xi8>, tensor<1xi16>, tensor<1xi32>) -> tensor<1x6x7x4xi32>
    %10 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %11 = tosa.mul %4, %9, %10 : (tensor<1x6x7x4xi32>, tensor<1x6x7x4xi32>, tensor<1xi8>) -> tensor<1x6x7x4xi32> loc("out0")
    return %11 : tensor<1x6x7x4xi32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi16> {tosa.tensor_name = "in0"}, %arg1: tensor<1x6x7x4xi16> {tosa.tensor_name = "in1"}) -> (tensor<1x6x7x4xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %1 = tosa.mul %arg0, %arg1, %0 : (tensor<1x6x7x4xi16>, tensor<1x6x7x4xi16>, tensor<1xi8>) -> tensor<1x6x7x4xi32> loc("out0")
    return %1 : tensor<1x6x7x4xi32>
  }
}
