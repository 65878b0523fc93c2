// data_movement.merge_transposes on TOSA-1.0+INT+FP
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x4x5x3xf32> {tosa.tensor_name = "in0"}) -> (tensor<1x4x5x3xf32> {tosa.tensor_name = "out0"}) {
    %0 = tosa.transpose %arg0 {perms = array<i32: 0, 3, 2, 1>} : (tensor<1x4x5x3xf32>) -> tensor<1x3x5x4xf32>
    %1 = tosa.transpose %0 {perms = array<i32: 0, 3, 2, 1>} : (tensor<1x3x5x4xf32>) -> tensor<1x4x5x3xf32> loc("out0")
    return %1 : tensor<1x4x5x3xf32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x4x5x3xf32> {tosa.tensor_name = "in0"}) -> (tensor<1x4x5x3xf32> {tosa.tensor_name = "out0"}) {
    %0 = tosa.transpose %arg0 {perms = array<i32: 0, 1, 2, 3>} : (tensor<1x4x5x3xf32>) -> tensor<1x4x5x3xf32> loc("out0")
    return %0 : tensor<1x4x5x3xf32>
  }
}
