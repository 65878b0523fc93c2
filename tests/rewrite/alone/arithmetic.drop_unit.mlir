// arithmetic.drop_unit on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
    %1 = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
    %2 = "tosa.const"() <{values = dense<7> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = "tosa.const"() <{values = dense<7> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = tosa.rescale %arg0, %0, %1, %2, %3 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x6x7x4xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x6x7x4xi8>
    %5 = "tosa.const"() <{values = dense<"0x592302C5CE8A9384AC502669001B783A210B0F6FC7502B80E45B0D88433A58AC965C850A94CCFBECE787819F822B0625C11D43E2F57F4E7BE12F7326573034E360A214385806E0CFECFC3863926F08DB2C12C1D2381801D642E4D463C3BA361F8C95E055E649D1BD4A60948E2BD612A65CF3654B34BB448D11E77FB272971F1466CC662C63B342718CDD229B0221436DE8F0F974B2FF8CEC721ED97E1A7284F55541E8FFEB07BA4993EAC83C3F366C6EAF9DA13A786D2B775F839E5D957B5375DCA60478DE63E252BAFAD3BB644DA36C78C4ED0928F1A66E318A503BAE1D00876D38CF849742A603666DC490FE571F9126D8B9EE5F77A40F42C2C5BDB563B7B9"> : tensor<256xi8>}> : () -> tensor<256xi8>
    %6 = tosa.table %4, %5 : (tensor<1x6x7x4xi8>, tensor<256xi8>) -> tensor<1x6x7x4xi8> loc("out0")
    return %6 : tensor<1x6x7x4xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xi8> {tosa.tensor_name = "in0"}) -> (tensor<1x6x7x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<"0x592302C5CE8A9384AC502669001B783A210B0F6FC7502B80E45B0D88433A58AC965C850A94CCFBECE787819F822B0625C11D43E2F57F4E7BE12F7326573034E360A214385806E0CFECFC3863926F08DB2C12C1D2381801D642E4D463C3BA361F8C95E055E649D1BD4A60948E2BD612A65CF3654B34BB448D11E77FB272971F1466CC662C63B342718CDD229B0221436DE8F0F974B2FF8CEC721ED97E1A7284F55541E8FFEB07BA4993EAC83C3F366C6EAF9DA13A786D2B775F839E5D957B5375DCA60478DE63E252BAFAD3BB644DA36C78C4ED0928F1A66E318A503BAE1D00876D38CF849742A603666DC490FE571F9126D8B9EE5F77A40F42C2C5BDB563B7B9"> : tensor<256xi8>}> : () -> tensor<256xi8>
    %1 = tosa.table %arg0, %0 : (tensor<1x6x7x4xi8>, tensor<256xi8>) -> tensor<1x6x7x4xi8> loc("out0")
    return %1 : tensor<1x6x7x4xi8>
  }
}
