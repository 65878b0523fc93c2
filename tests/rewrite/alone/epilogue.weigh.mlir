// epilogue.weigh on ethos-u55-128
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<3x9x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<3x14x4xi32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<"0x020203020203020302020202020202020202030202020202020203020203020202020202020202020202020202030202020302020202020202030302020202020203020202020202030203030202030202020202020202030202020202020203020302020202030202020202020202020203020202020202020202020202020203020203020302020202020202020202030202020202020203020203020202020202020202020202020202030202020302020202020202030302020202020203020202020202030203030202030202020202020202030202020202020203020302020202030202020202020202020203020202020202020202020202020203020203020302020202020202020202030202020202020203020203020202020202020202020202020202030202020302020202020202030302020202020203020202020202030203030202030202020202020202030202020202020203020302020202030202020202020202020203020202020202020202020202"> : tensor<3x14x9xi8>}> : () -> tensor<3x14x9xi8>
    %1 = "tosa.const"() <{values = dense<2> : tensor<1xi8>}> : () -> tensor<1xi8>
    %2 = "tosa.const"() <{values = dense<-5> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = tosa.matmul %0, %arg0, %1, %2 : (tensor<3x14x9xi8>, tensor<3x9x4xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<3x14x4xi32> loc("out0")
    return %3 : tensor<3x14x4xi32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<3x9x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<3x14x4xi32> {tosa.tensor_name = "out0"}) {
    %0 = tosa.transpose %arg0 {perms = array<i32: 0, 2, 1>} : (tensor<3x9x4xi8>) -> tensor<3x4x9xi8>
    %1 = "tosa.const_shape"() <{values = dense<[1, 1, 12, 9]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %2 = tosa.reshape %0, %1 : (tensor<3x4x9xi8>, !tosa.shape<4>) -> tensor<1x1x12x9xi8>
    %3 = "tosa.const"() <{values = dense<"0x000001000001000100000000000000000000010000000000000001000001000000000000000000000000000000010000000100000000000000010100000000000001000000000000010001010000010000000000000000010000000000000001000100000000010000000000000000000001000000000000000000000000"> : tensor<14x1x1x9xi8>}> : () -> tensor<14x1x1x9xi8>
    %4 = "tosa.const"() <{values = dense<0> : tensor<14xi32>}> : () -> tensor<14xi32>
    %5 = "tosa.const"() <{values = dense<-5> : tensor<1xi8>}> : () -> tensor<1xi8>
    %6 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %7 = tosa.conv2d %2, %3, %4, %5, %6 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x1x12x9xi8>, tensor<14x1x1x9xi8>, tensor<14xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x12x14xi32>
    %8 = "tosa.const_shape"() <{values = dense<[3, 4, 14]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %9 = tosa.reshape %7, %8 : (tensor<1x1x12x14xi32>, !tosa.shape<3>) -> tensor<3x4x14xi32>
    %10 = tosa.transpose %9 {perms = array<i32: 0, 2, 1>} : (tensor<3x4x14xi32>) -> tensor<3x14x4xi32> loc("out0")
    return %10 : tensor<3x14x4xi32>
  }
}
