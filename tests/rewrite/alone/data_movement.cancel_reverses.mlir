// data_movement.cancel_reverses on TOSA-1.0+INT+FP
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x4x5x3xi8> {tosa.tensor_name = "in0"}, %arg1: tensor<1x4x5x3xi8> {tosa.tensor_name = "in1"}) -> (tensor<1x8x5x3xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.concat %arg0, %arg1 {axis = 1 : i32} : (tensor<1x4x5x3xi8>, tensor<1x4x5x3xi8>) -> tensor<1x8x5x3xi8>
    %1 = tosa.reverse %0 {axis = 2 : i32} : (tensor<1x8x5x3xi8>) -> tensor<1x8x5x3xi8>
    %2 = tosa.reverse %1 {axis = 2 : i32} : (tensor<1x8x5x3xi8>) -> tensor<1x8x5x3xi8> loc("out0")
    return %2 : tensor<1x8x5x3xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x4x5x3xi8> {tosa.tensor_name = "in0"}, %arg1: tensor<1x4x5x3xi8> {tosa.tensor_name = "in1"}) -> (tensor<1x8x5x3xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.concat %arg0, %arg1 {axis = 1 : i32} : (tensor<1x4x5x3xi8>, tensor<1x4x5x3xi8>) -> tensor<1x8x5x3xi8> loc("out0")
    return %0 : tensor<1x8x5x3xi8>
  }
}
