// data_movement.merge_concats on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}, %arg1: tensor<1x6x7x4xi8> {tosa.tensor_name = "in1"}) -> (tensor<1x18x7x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.concat %arg0, %arg1 {axis = 1 : i32} : (tensor<1x6x7x4xi8>, tensor<1x6x7x4xi8>) -> tensor<1x12x7x4xi8>
    %1 = tosa.concat %0, %arg0 {axis = 1 : i32} : (tensor<1x12x7x4xi8>, tensor<1x6x7x4xi8>) -> tensor<1x18x7x4xi8> loc("out0")
    return %1 : tensor<1x18x7x4xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}, %arg1: tensor<1x6x7x4xi8> {tosa.tensor_name = "in1"}) -> (tensor<1x18x7x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.concat %arg0, %arg1, %arg0 {axis = 1 : i32} : (tensor<1x6x7x4xi8>, tensor<1x6x7x4xi8>, tensor<1x6x7x4xi8>) -> tensor<1x18x7x4xi8> loc("out0")
    return %0 : tensor<1x18x7x4xi8>
  }
}
