// arithmetic.merge_clamps on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.clamp %arg0 {min_val = -50 : i8, max_val = 90 : i8} : (tensor<1x6x7x4xi8>) -> tensor<1x6x7x4xi8>
    %1 = tosa.clamp %0 {min_val = -70 : i8, max_val = 60 : i8} : (tensor<1x6x7x4xi8>) -> tensor<1x6x7x4xi8> loc("out0")
    return %1 : tensor<1x6x7x4xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.clamp %arg0 {min_val = -50 : i8, max_val = 60 : i8} : (tensor<1x6x7x4xi8>) -> tensor<1x6x7x4xi8> loc("out0")
    return %0 : tensor<1x6x7x4xi8>
  }
}
