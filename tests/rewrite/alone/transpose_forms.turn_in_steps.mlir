// transpose_forms.turn_in_steps on ethos-u55-128
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<15x17x18x6x12xi8> {tosa.tensor_name = "in0"}) -> (tensor<17x15x12x18x6xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.transpose %arg0 {perms = array<i32: 1, 0, 4, 2, 3>} : (tensor<15x17x18x6x12xi8>) -> tensor<17x15x12x18x6xi8> loc("out0")
    return %0 : tensor<17x15x12x18x6xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<15x17x18x6x12xi8> {tosa.tensor_name = "in0"}) -> (tensor<17x15x12x18x6xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const_shape"() <{values = dense<[15, 17, 1296]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %1 = tosa.reshape %arg0, %0 : (tensor<15x17x18x6x12xi8>, !tosa.shape<3>) -> tensor<15x17x1296xi8>
    %2 = tosa.transpose %1 {perms = array<i32: 1, 0, 2>} : (tensor<15x17x1296xi8>) -> tensor<17x15x1296xi8>
    %3 = "tosa.const_shape"() <{values = dense<[255, 108, 12]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %4 = tosa.reshape %2, %3 : (tensor<17x15x1296xi8>, !tosa.shape<3>) -> tensor<255x108x12xi8>
    %5 = tosa.transpose %4 {perms = array<i32: 0, 2, 1>} : (tensor<255x108x12xi8>) -> tensor<255x12x108xi8>
    %6 = "tosa.const_shape"() <{values = dense<[17, 15, 12, 18, 6]> : tensor<5xindex>}> : () -> !tosa.shape<5>
    %7 = tosa.reshape %5, %6 : (tensor<255x12x108xi8>, !tosa.shape<5>) -> tensor<17x15x12x18x6xi8> loc("out0")
    return %7 : tensor<17x15x12x18x6xi8>
  }
}
