// reshape_sharing.fill_channels on ethos-u55-128
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x3x32x1xi32> {tosa.tensor_name = "in0"}, %arg1: tensor<1x1x32x1xi32> {tosa.tensor_name = "in1"}) -> (tensor<1x3x32x1xi32> {tosa.tensor_name = "out0"}) {
    %0 = tosa.sub %arg0, %arg1 : (tensor<1x3x32x1xi32>, tensor<1x1x32x1xi32>) -> tensor<1x3x32x1xi32> loc("out0")
    return %0 : tensor<1x3x32x1xi32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x3x32x1xi32> {tosa.tensor_name = "in0"}, %arg1: tensor<1x1x32x1xi32> {tosa.tensor_name = "in1"}) -> (tensor<1x3x32x1xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[1, 1, 3, 32]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = tosa.reshape %arg0, %0 : (tensor<1x3x32x1xi32>, !tosa.shape<4>) -> tensor<1x1x3x32xi32>
    %2 = "tosa.const_shape"() <{values = dense<[1, 1, 1, 32]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %3 = tosa.reshape %arg1, %2 : (tensor<1x1x32x1xi32>, !tosa.shape<4>) -> tensor<1x1x1x32xi32>
    %4 = tosa.sub %1, %3 : (tensor<1x1x3x32xi32>, tensor<1x1x1x32xi32>) -> tensor<1x1x3x32xi32>
    %5 = "tosa.const_shape"() <{values = dense<[1, 3, 32, 1]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %6 = tosa.reshape %4, %5 : (tensor<1x1x3x32xi32>, !tosa.shape<4>) -> tensor<1x3x32x1xi32> loc("out0")
    return %6 : tensor<1x3x32x1xi32>
  }
}
