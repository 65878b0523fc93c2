// data_movement.slice_whole_parts on ethos-u55-128
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x8x8x16xi8> {tosa.tensor_name = "in0"}, %arg1: tensor<1x8x8x16xi8> {tosa.tensor_name = "in1"}, %arg2: tensor<1x8x8x16xi8> {tosa.tensor_name = "in2"}, %arg3: tensor<1x8x8x16xi8> {tosa.tensor_name = "in3"}, %arg4: tensor<1x8x8x16xi8> {tosa.tensor_name = "in4"}, %arg5: tensor<1x8x8x16xi8> {tosa.tensor_name = "in5"}) -> (tensor<2x64x16xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.concat %arg0, %arg1, %arg2, %arg3, %arg4, %arg5 {axis = 1 : i32} : (tensor<1x8x8x16xi8>, tensor<1x8x8x16xi8>, tensor<1x8x8x16xi8>, tensor<1x8x8x16xi8>, tensor<1x8x8x16xi8>, tensor<1x8x8x16xi8>) -> tensor<1x48x8x16xi8>
    %1 = "tosa.const_shape"() <{values = dense<[6, 64, 16]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %2 = tosa.reshape %0, %1 : (tensor<1x48x8x16xi8>, !tosa.shape<3>) -> tensor<6x64x16xi8>
    %3 = "tosa.const_shape"() <{values = dense<[2, 0, 0]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %4 = "tosa.const_shape"() <{values = dense<[2, 64, 16]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %5 = tosa.slice %2, %3, %4 : (tensor<6x64x16xi8>, !tosa.shape<3>, !tosa.shape<3>) -> tensor<2x64x16xi8> loc("out0")
    return %5 : tensor<2x64x16xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x8x8x16xi8> {tosa.tensor_name = "in0"}, %arg1: tensor<1x8x8x16xi8> {tosa.tensor_name = "in1"}, %arg2: tensor<1x8x8x16xi8> {tosa.tensor_name = "in2"}, %arg3: tensor<1x8x8x16xi8> {tosa.tensor_name = "in3"}, %arg4: tensor<1x8x8x16xi8> {tosa.tensor_name = "in4"}, %arg5: tensor<1x8x8x16xi8> {tosa.tensor_name = "in5"}) -> (tensor<2x64x16xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.concat %arg2, %arg3 {axis = 1 : i32} : (tensor<1x8x8x16xi8>, tensor<1x8x8x16xi8>) -> tensor<1x16x8x16xi8>
    %1 = "tosa.const_shape"() <{values = dense<[2, 64, 16]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %2 = tosa.reshape %0, %1 : (tensor<1x16x8x16xi8>, !tosa.shape<3>) -> tensor<2x64x16xi8> loc("out0")
    return %2 : tensor<2x64x16xi8>
  }
}
