// data_movement.merge_casts on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x4xi32> {tosa.tensor_name = "out0"}) {
    %0 = tosa.cast %arg0 : (tensor<1x6x7x4xi8>) -> tensor<1x6x7x4xi16>
    %1 = tosa.cast %0 : (tensor<1x6x7x4xi16>) -> tensor<1x6x7x4xi32> loc("out0")
    return %1 : tensor<1x6x7x4xi32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x4xi32> {tosa.tensor_name = "out0"}) {
    %0 = tosa.cast %arg0 : (tensor<1x6x7x4xi8>) -> tensor<1x6x7x4xi32> loc("out0")
    return %0 : tensor<1x6x7x4xi32>
  }
}
