// float8_operands.cast_back on TOSA-1.1+FP+INT+bf16+fp8e4m3+fp8e5m2
module attributes {tosa.fbs_version = "1.1.0"} {
  func.func @main(%arg0: tensor<2x3x4xf8E4M3FN> {tosa.tensor_name = "in0"}) -> (tensor<2x3x4xf8E4M3FN> {tosa.tensor_name = "out0"}) {
    %0 = tosa.cast %arg0 : (tensor<2x3x4xf8E4M3FN>) -> tensor<2x3x4xf32>
    %1 = tosa.clamp %0 {min_val = -448.0 : f32, max_val = 448.0 : f32} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
    %2 = tosa.cast %1 : (tensor<2x3x4xf32>) -> tensor<2x3x4xf8E4M3FN>
    %3 = tosa.reverse %2 {axis = 1 : i32} : (tensor<2x3x4xf8E4M3FN>) -> tensor<2x3x4xf8E4M3FN> loc("out0")
    return %3 : tensor<2x3x4xf8E4M3FN>
  }
}
// -----
module attributes {tosa.fbs_version = "1.1.0"} {
  func.func @main(%arg0: tensor<2x3x4xf8E4M3FN> {tosa.tensor_name = "in0"}) -> (tensor<2x3x4xf8E4M3FN> {tosa.tensor_name = "out0"}) {
    %0 = tosa.reverse %arg0 {axis = 1 : i32} : (tensor<2x3x4xf8E4M3FN>) -> tensor<2x3x4xf8E4M3FN> loc("out0")
    return %0 : tensor<2x3x4xf8E4M3FN>
  }
}
