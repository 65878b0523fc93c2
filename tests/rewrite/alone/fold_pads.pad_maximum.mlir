// fold_pads.pad_maximum on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x8x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[0, 0, 1, 1, 2, 1, 0, 0]> : tensor<8xindex>}> : () -> !tosa.shape<8>
    %1 = "tosa.const"() <{values = dense<-128> : tensor<1xi8>}> : () -> tensor<1xi8>
    %2 = tosa.pad %arg0, %0, %1 : (tensor<1x6x7x4xi8>, !tosa.shape<8>, tensor<1xi8>) -> tensor<1x8x10x4xi8>
    %3 = tosa.max_pool2d %2 {kernel = array<i64: 3, 3>, stride = array<i64: 1, 1>, pad = array<i64: 0, 0, 0, 0>} : (tensor<1x8x10x4xi8>) -> tensor<1x6x8x4xi8> loc("out0")
    return %3 : tensor<1x6x8x4xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x8x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.max_pool2d %arg0 {kernel = array<i64: 3, 3>, stride = array<i64: 1, 1>, pad = array<i64: 1, 1, 2, 1>} : (tensor<1x6x7x4xi8>) -> tensor<1x6x8x4xi8> loc("out0")
    return %0 : tensor<1x6x8x4xi8>
  }
}
