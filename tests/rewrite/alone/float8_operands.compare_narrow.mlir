// float8_operands.compare_narrow on TOSA-1.1+FP+INT+bf16+fp8e4m3+fp8e5m2
module attributes {tosa.fbs_version = "1.1.0"} {
  func.func @main(%arg0: tensor<1x6x6x4xf8E5M2> {tosa.tensor_name = "in0"}) -> (tensor<1x3x3x4xf32> {tosa.tensor_name = "out0"}) {
    %0 = tosa.cast %arg0 : (tensor<1x6x6x4xf8E5M2>) -> tensor<1x6x6x4xf32>
    %1 = tosa.max_pool2d %0 {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>} : (tensor<1x6x6x4xf32>) -> tensor<1x3x3x4xf32> loc("out0")
    return %1 : tensor<1x3x3x4xf32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.1.0"} {
  func.func @main(%arg0: tensor<1x6x6x4xf8E5M2> {tosa.tensor_name = "in0"}) -> (tensor<1x3x3x4xf32> {tosa.tensor_name = "out0"}) {
    %0 = tosa.max_pool2d %arg0 {kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>} : (tensor<1x6x6x4xf8E5M2>) -> tensor<1x3x3x4xf8E5M2>
    %1 = tosa.cast %0 : (tensor<1x3x3x4xf8E5M2>) -> tensor<1x3x3x4xf32> loc("out0")
    return %1 : tensor<1x3x3x4xf32>
  }
}
