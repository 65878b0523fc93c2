// float8_operands.cast_later on TOSA-1.1+FP+INT+bf16+fp8e4m3+fp8e5m2
module attributes {tosa.fbs_version = "1.1.0"} {
  func.func @main(%arg0: tensor<2x3x4xf8E4M3FN> {tosa.tensor_name = "in0"}) -> (tensor<2x4x3xf32> {tosa.tensor_name = "out0"}) {
    %0 = tosa.cast %arg0 : (tensor<2x3x4xf8E4M3FN>) -> tensor<2x3x4xf32>
    %1 = tosa.transpose %0 {perms = array<i32: 0, 2, 1>} : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32> loc("out0")
    return %1 : tensor<2x4x3xf32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.1.0"} {
  func.func @main(%arg0: tensor<2x3x4xf8E4M3FN> {tosa.tensor_name = "in0"}) -> (tensor<2x4x3xf32> {tosa.tensor_name = "out0"}) {
    %0 = tosa.transpose %arg0 {perms = array<i32: 0, 2, 1>} : (tensor<2x3x4xf8E4M3FN>) -> tensor<2x4x3xf8E4M3FN>
    %1 = tosa.cast %0 : (tensor<2x4x3xf8E4M3FN>) -> tensor<2x4x3xf32> loc("out0")
    return %1 : tensor<2x4x3xf32>
  }
}
