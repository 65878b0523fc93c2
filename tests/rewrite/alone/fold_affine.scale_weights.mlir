// fold_affine.scale_weights on TOSA-1.0+INT+FP+int16
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xf32> {tosa.tensor_name = "in0"}) -> (tensor<1x4x5x8xf32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<"0x6B9E0240049023C00D11D63E595911BFA6C1E7BE81C55CBE744701C0AE7F6DBE9B7E5DBF06AC54409B34673E068CB4BEE80490BE16052BBF2C0F87BF1117C8BE8CC1F63E664774BEAD2F753FEE984CBEFFBBC63C75DDC53F098C0B3FAC5601BF243A3BBEDB5F0A3FF7B0F73FAD0B8ABE726779BED04B803F0AEF62BF5B5C95BE13EE613FD291143F1C6DBB3DF68B2B3F9C0035C02FBA823F47AB75BF5695D5BF4C8A8D3EE956333F8FB8E3BEABC789BFBF03D63C900D58BDA4EAB33F21563F3F9C77463EFF498E3FA27452BEC1076DBFD884153F3D21153F1CFC5BBE256648BF52A76A3EF79B1FC004AC303F9F94FB3E12C6D1BFD14D7B3D3CCF76BF3DD9413FCC2F02C0501C6ABF09A7353FF304943FC31C0AC014FFFEBE40F2A73E97F51BBF"> : tensor<3x3x4x2xf32>}> : () -> tensor<3x3x4x2xf32>
    %1 = "tosa.const"() <{values = dense<[1.5906401872634888, -1.1912267208099365, 0.3545319437980652, -1.0484055280685425, 1.4059629440307617, -0.02165122888982296, -0.3722505569458008, -1.7181849479675293]> : tensor<8xf32>}> : () -> tensor<8xf32>
    %2 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
    %3 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
    %4 = tosa.depthwise_conv2d %arg0, %0, %1, %2, %3 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = f32} : (tensor<1x6x7x4xf32>, tensor<3x3x4x2xf32>, tensor<8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x5x8xf32>
    %5 = "tosa.const"() <{values = dense<[[[[1.707504391670227, 1.7119112014770508, 1.2729883193969727, 0.9287020564079285, 0.5808960795402527, 1.075053334236145, 1.1127097606658936, 0.5679128170013428]]]]> : tensor<1x1x1x8xf32>}> : () -> tensor<1x1x1x8xf32>
    %6 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %7 = tosa.mul %4, %5, %6 : (tensor<1x4x5x8xf32>, tensor<1x1x1x8xf32>, tensor<1xi8>) -> tensor<1x4x5x8xf32> loc("out0")
    return %7 : tensor<1x4x5x8xf32>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x6x7x4xf32> {tosa.tensor_name = "in0"}) -> (tensor<1x4x5x8xf32> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<"0x3F085F4096008CC08C40083F66FC06BF5CA086BE55576DBEA2D90FC0EBE006BEF919BDBFAB09B6403429933EA1ACA7BE025227BE01DB37BF224896BF794463BE24AB523F8617D1BE420F9C3F90023EBE55E3663C2BB7D43F7C461B3FF3E792BE76D89FBE7FE26C3F70A71D40083480BEBBE010BEDAEC893FEB827CBFD5A529BE62E3C03F86567E3F6497EE3DD8501F3F8249D2BFEF898C3FDEAD88BFEB9772BF39AEF13EB381993F6BF110BFBEE97FBFF9A3783CBB4468BDE631C83F2853D93E1C71A93E1296F33F2AF485BE6A215CBFBDB5AD3E9152203F7CC774BE4A9EE3BE0656C83E519E88C0BCE6603FB4A4E93EA5B673BF2415873D4D5089BF9E2DDC3E5C4B5EC06663C8BFD23D673F4377893F3575A0BF3F1109BF1FE0BA3E8224B1BE"> : tensor<3x3x4x2xf32>}> : () -> tensor<3x3x4x2xf32>
    %1 = "tosa.const"() <{values = dense<[2.7160251140594482, -2.0392744541168213, 0.4513150155544281, -0.9736563563346863, 0.816718339920044, -0.023276226595044136, -0.4142068326473236, -0.9757792353630066]> : tensor<8xf32>}> : () -> tensor<8xf32>
    %2 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
    %3 = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
    %4 = tosa.depthwise_conv2d %arg0, %0, %1, %2, %3 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = f32} : (tensor<1x6x7x4xf32>, tensor<3x3x4x2xf32>, tensor<8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x5x8xf32> loc("out0")
    return %4 : tensor<1x4x5x8xf32>
  }
}
