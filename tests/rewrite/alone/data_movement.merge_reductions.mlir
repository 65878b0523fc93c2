// data_movement.merge_reductions on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x1x1x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.reduce_max %arg0 {axis = 2 : i32} : (tensor<1x6x7x4xi8>) -> tensor<1x6x1x4xi8>
    %1 = tosa.reduce_max %0 {axis = 1 : i32} : (tensor<1x6x1x4xi8>) -> tensor<1x1x1x4xi8> loc("out0")
    return %1 : tensor<1x1x1x4xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x1x1x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[1, 42, 1, 4]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = tosa.reshape %arg0, %0 : (tensor<1x6x7x4xi8>, !tosa.shape<4>) -> tensor<1x42x1x4xi8>
    %2 = tosa.reduce_max %1 {axis = 1 : i32} : (tensor<1x42x1x4xi8>) -> tensor<1x1x1x4xi8> loc("out0")
    return %2 : tensor<1x1x1x4xi8>
  }
}
