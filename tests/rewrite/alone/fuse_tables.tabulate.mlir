// fuse_tables.tabulate on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<"0xC4C4C4C4C4C4C4C4C4C4C4C4C4C4C4C4C4C4C4C5C5C5C5C5C5C5C5C5C5C5C5C5C5C5C5C5C5C5C5C5C5C6C6C6C6C6C6C6C6C6C6C7C7C7C7C7C7C7C8C8C8C8C8C8C9C9C9C9CACACACBCBCBCCCCCCCDCDCECECECFCFD0D1D1D2D2D3D4D4D5D6D7D7D8D9DADBDCDDDEDFE0E1E2E3E4E5E7E8E9EAECEDEFF0F1F3F4F6F7F9FAFCFDFF000103040607090A0C0D0F10111314161718191B1C1D1E1F20212223242526272829292A2B2C2C2D2E2E2F2F303131323232333334343435353536363637373737383838383838393939393939393A3A3A3A3A3A3A3A3A3A3B3B3B3B3B3B3B3B3B3B3B3B3B3B3B3B3B3B3B3B3B3B3C3C3C3C3C3C3C3C3C3C3C3C3C3C3C3C3C3C"> : tensor<256xi8>}> : () -> tensor<256xi8>
    %1 = tosa.table %arg0, %0 : (tensor<1x6x7x4xi8>, tensor<256xi8>) -> tensor<1x6x7x4xi8>
    %2 = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
    %3 = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = "tosa.const"() <{values = dense<-3> : tensor<1xi8>}> : () -> tensor<1xi8>
    %5 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %6 = tosa.rescale %arg0, %2, %3, %4, %5 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x6x7x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x6x7x4xi32>
    %7 = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
    %8 = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
    %9 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %10 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %11 = tosa.rescale %1, %7, %8, %9, %10 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x6x7x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x6x7x4xi32>
    %12 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %13 = tosa.mul %6, %11, %12 : (tensor<1x6x7x4xi32>, tensor<1x6x7x4xi32>, tensor<1xi8>) -> tensor<1x6x7x4xi32>
    %14 = tosa.clamp %arg0 {min_val = -100 : i8, max_val = 30 : i8} : (tensor<1x6x7x4xi8>) -> tensor<1x6x7x4xi8>
    %15 = "tosa.const"() <{values = dense<1342177280> : tensor<1xi32>}> : () -> tensor<1xi32>
    %16 = "tosa.const"() <{values = dense<25> : tensor<1xi8>}> : () -> tensor<1xi8>
    %17 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %18 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %19 = tosa.rescale %14, %15, %16, %17, %18 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x6x7x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi32>) -> tensor<1x6x7x4xi32>
    %20 = tosa.maximum %13, %19 : (tensor<1x6x7x4xi32>, tensor<1x6x7x4xi32>) -> tensor<1x6x7x4xi32>
    %21 = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
    %22 = "tosa.const"() <{values = dense<36> : tensor<1xi8>}> : () -> tensor<1xi8>
    %23 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %24 = "tosa.const"() <{values = dense<5> : tensor<1xi8>}> : () -> tensor<1xi8>
    %25 = tosa.rescale %20, %21, %22, %23, %24 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x6x7x4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x6x7x4xi8> loc("out0")
    return %25 : tensor<1x6x7x4xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<"0x7A79787776767574737271706F6E6D6C6B6A6967666564636261605F5E5E5D5C5B5A5958575655545351504F4E4E4D4C4B4A4947464544434242403F3E3D3C3B393938373534333231302E2E2D2B2A292827262524222220201E1D1C1B1A19181716151413121110100F0E0D0C0C0B0A0A09080807070706060605050505050505060607080809090A0B0B0C0D0D0E0E0F10101112121313141515161718191A1B1C1D1E1F21212324252627282A2B2C2D2E2F3032333335363738393A3C3D3E3F4141424344454748494A4A4B4C4E4F5051525354555657595A5B5C5D5E5E5F60616263646566676869696A6B6C6F70717273747576767778797A7B7C7D7E7F"> : tensor<256xi8>}> : () -> tensor<256xi8>
    %1 = tosa.table %arg0, %0 : (tensor<1x6x7x4xi8>, tensor<256xi8>) -> tensor<1x6x7x4xi8> loc("out0")
    return %1 : tensor<1x6x7x4xi8>
  }
}
