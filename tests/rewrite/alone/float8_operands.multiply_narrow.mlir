// float8_operands.multiply_narrow on TOSA-1.1+FP+INT+bf16+fp8e4m3+fp8e5m2
module attributes {tosa.fbs_version = "1.1.0"} {
  func.func @main(%arg0: tensor<2x3x4xf8E4M3FN> {tosa.tensor_name = "in0"}, %arg1: tensor<2x4x5xf8E5M2> {tosa.tensor_name = "in1"}) -> (tensor<2x3x5xf32> {tosa.tensor_name = "out0"}) {
    %0 = tosa.cast %arg0 : (tensor<2x3x4xf8E4M3FN>) -> tensor<2x3x4xf32>
    %1 = tosa.cast %arg1 : (tensor<2x4x5xf8E5M2>) -> tensor<2x4x5xf32>
    %2 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
    %3 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
    %4 = tosa.matmul %0, %1, %2, %3 : (tensor<2x3x4xf32>, tensor<2x4x5xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<2x3x5xf32> loc("out0")
    return %4 : tensor<2x3x5xf32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.1.0"} {
  func.func @main(%arg0: tensor<2x3x4xf8E4M3FN> {tosa.tensor_name = "in0"}, %arg1: tensor<2x4x5xf8E5M2> {tosa.tensor_name = "in1"}) -> (tensor<2x3x5xf32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<0.0> : tensor<1xf8E4M3FN>}> : () -> tensor<1xf8E4M3FN>
    %1 = "tosa.const"() <{values = dense<0.0> : tensor<1xf8E5M2>}> : () -> tensor<1xf8E5M2>
    %2 = tosa.matmul %arg0, %arg1, %0, %1 : (tensor<2x3x4xf8E4M3FN>, tensor<2x4x5xf8E5M2>, tensor<1xf8E4M3FN>, tensor<1xf8E5M2>) -> tensor<2x3x5xf32> loc("out0")
    return %2 : tensor<2x3x5xf32>
  }
}
