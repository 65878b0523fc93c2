// table_of_slice.table_again on ethos-u55-128
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x1x4x16xi32> {tosa.tensor_name = "in0"}, %arg1: tensor<1x1x4x16xi32> {tosa.tensor_name = "in1"}) -> (tensor<1x1x8x16xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.add %arg0, %arg1 : (tensor<1x1x4x16xi32>, tensor<1x1x4x16xi32>) -> tensor<1x1x4x16xi32>
    %1 = "tosa.const"() <{values = dense<993546315> : tensor<1xi32>}> : () -> tensor<1xi32>
    %2 = "tosa.const"() <{values = dense<50> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %4 = "tosa.const"() <{values = dense<5> : tensor<1xi8>}> : () -> tensor<1xi8>
    %5 = tosa.rescale %0, %1, %2, %3, %4 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x1x4x16xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x1x4x16xi8>
    %6 = "tosa.const"() <{values = dense<"0xDBDD2EB64C16F5C4D4C680A4D3CBF4E65AC11D867F91650C337DFE57A7770299A9FCC8E20375855EFA1B050A7048EA4E438D52682124DC2BB45447C717E11553BC32FBCA4473E7603518E48A41F60B0EA355697EDE142D42ED8FD966D0AA6264F74DB50DB22C72135D89EF9CDAE32AD792A525310490AFE9ABAC886BC06CEED2749E27017B20813E825F5B5CF08B10B05134D80797221FA6B79409A29BF2B9191A08A8566396933D4AEC7A8458D1CF11D58337500F1EC22345EB6F1C1206C340987939954B3A492F003C46BEADD6BFFD9AB3E5B1613B7C28E06ABD8C4FA0B859AEBA8EC9266E76F39F71E830CDCC876D673FDFC5F1FFF9CEF8BB369D293878A1"> : tensor<256xi8>}> : () -> tensor<256xi8>
    %7 = tosa.table %5, %6 : (tensor<1x1x4x16xi8>, tensor<256xi8>) -> tensor<1x1x4x16xi8>
    %8 = tosa.concat %5, %7 {axis = 2 : i32} : (tensor<1x1x4x16xi8>, tensor<1x1x4x16xi8>) -> tensor<1x1x8x16xi8> loc("out0")
    return %8 : tensor<1x1x8x16xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x1x4x16xi32> {tosa.tensor_name = "in0"}, %arg1: tensor<1x1x4x16xi32> {tosa.tensor_name = "in1"}) -> (tensor<1x1x8x16xi8> {tosa.tensor_name = "out0"}) {
    %0 = tosa.add %arg0, %arg1 : (tensor<1x1x4x16xi32>, tensor<1x1x4x16xi32>) -> tensor<1x1x4x16xi32>
    %1 = "tosa.const"() <{values = dense<993546315> : tensor<1xi32>}> : () -> tensor<1xi32>
    %2 = "tosa.const"() <{values = dense<50> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %4 = "tosa.const"() <{values = dense<5> : tensor<1xi8>}> : () -> tensor<1xi8>
    %5 = tosa.rescale %0, %1, %2, %3, %4 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x1x4x16xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x1x4x16xi8>
    %6 = "tosa.const"() <{values = dense<1> : tensor<1x1x1x1xi8>}> : () -> tensor<1x1x1x1xi8>
    %7 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %8 = tosa.mul %5, %6, %7 : (tensor<1x1x4x16xi8>, tensor<1x1x1x1xi8>, tensor<1xi8>) -> tensor<1x1x4x16xi32>
    %9 = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
    %10 = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
    %11 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %12 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %13 = tosa.rescale %8, %9, %10, %11, %12 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x1x4x16xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x1x4x16xi8>
    %14 = "tosa.const"() <{values = dense<"0xDBDD2EB64C16F5C4D4C680A4D3CBF4E65AC11D867F91650C337DFE57A7770299A9FCC8E20375855EFA1B050A7048EA4E438D52682124DC2BB45447C717E11553BC32FBCA4473E7603518E48A41F60B0EA355697EDE142D42ED8FD966D0AA6264F74DB50DB22C72135D89EF9CDAE32AD792A525310490AFE9ABAC886BC06CEED2749E27017B20813E825F5B5CF08B10B05134D80797221FA6B79409A29BF2B9191A08A8566396933D4AEC7A8458D1CF11D58337500F1EC22345EB6F1C1206C340987939954B3A492F003C46BEADD6BFFD9AB3E5B1613B7C28E06ABD8C4FA0B859AEBA8EC9266E76F39F71E830CDCC876D673FDFC5F1FFF9CEF8BB369D293878A1"> : tensor<256xi8>}> : () -> tensor<256xi8>
    %15 = tosa.table %13, %14 : (tensor<1x1x4x16xi8>, tensor<256xi8>) -> tensor<1x1x4x16xi8>
    %16 = tosa.concat %5, %15 {axis = 2 : i32} : (tensor<1x1x4x16xi8>, tensor<1x1x4x16xi8>) -> tensor<1x1x8x16xi8> loc("out0")
    return %16 : tensor<1x1x8x16xi8>
  }
}
