// im2col.unfold on ethos-u55-128
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x1x3x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x1x1x16xi32>) {
    %0 = "tosa.const"() <{values = dense<"0xFF000408F7F90508FBFC06FEFB05FBFE0200F8F70604060005FCFF05F9FCF9FF08F9FDFE07FA00FBF704F8FCFFFFF9080408F804FC0007FB04F9FC08FE00FCF9FE02FF04FD020407FEF7030006FFFDF8FF020406FA0105FBFD06010003000804F7F90005F803040506FA0005FDFAFFF8FA0603060606FCFF02FB07F70602FB03FE0608FCFFFA03020605080807F9F7FFFD0705FE010107F7FF03FF070805FF06F802FBFB030406FA0605FCF80405FFF9F9FD04FCF70304FA01FE00F702FB00FE"> : tensor<16x1x3x4xi8>}> : () -> tensor<16x1x3x4xi8>
    %1 = "tosa.const"() <{values = dense<[1, -8, -3, 2, 4, -3, -9, 4, 0, 2, -7, -2, 6, 6, -4, 2]> : tensor<16xi32>}> : () -> tensor<16xi32>
    %2 = "tosa.const"() <{values = dense<1> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = tosa.conv2d %arg0, %0, %1, %2, %3 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x1x3x4xi8>, tensor<16x1x3x4xi8>, tensor<16xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x1x16xi32>
    return %4 : tensor<1x1x1x16xi32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x1x3x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x1x1x16xi32>) {
    %0 = "tosa.const_shape"() <{values = dense<[1, 1, 1, 12]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %1 = tosa.reshape %arg0, %0 : (tensor<1x1x3x4xi8>, !tosa.shape<4>) -> tensor<1x1x1x12xi8>
    %2 = "tosa.const"() <{values = dense<"0xFF000408F7F90508FBFC06FEFB05FBFE0200F8F70604060005FCFF05F9FCF9FF08F9FDFE07FA00FBF704F8FCFFFFF9080408F804FC0007FB04F9FC08FE00FCF9FE02FF04FD020407FEF7030006FFFDF8FF020406FA0105FBFD06010003000804F7F90005F803040506FA0005FDFAFFF8FA0603060606FCFF02FB07F70602FB03FE0608FCFFFA03020605080807F9F7FFFD0705FE010107F7FF03FF070805FF06F802FBFB030406FA0605FCF80405FFF9F9FD04FCF70304FA01FE00F702FB00FE"> : tensor<16x1x1x12xi8>}> : () -> tensor<16x1x1x12xi8>
    %3 = "tosa.const"() <{values = dense<[1, -8, -3, 2, 4, -3, -9, 4, 0, 2, -7, -2, 6, 6, -4, 2]> : tensor<16xi32>}> : () -> tensor<16xi32>
    %4 = "tosa.const"() <{values = dense<1> : tensor<1xi8>}> : () -> tensor<1xi8>
    %5 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %6 = tosa.conv2d %1, %2, %3, %4, %5 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x1x1x12xi8>, tensor<16x1x1x12xi8>, tensor<16xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x1x16xi32>
    return %6 : tensor<1x1x1x16xi32>
  }
}
