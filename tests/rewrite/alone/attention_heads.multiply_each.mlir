// attention_heads.multiply_each on ethos-u85-256
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x1x4x24xi8> {tosa.tensor_name = "in0"}, %arg1: tensor<4x4x7xi8> {tosa.tensor_name = "in1"}) -> (tensor<4x4x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<"0xEA50F498D61A503A7EB0618F0FC7B428CE10C3A740EF2E2B72ECB9226F775E2FE1E48BB0D5D91403316460467AD2686CBAF91231339CFA9B75B4F362062E00591825F4E818044918F95CB7F0FC64F11D9454F200993122D745068FB8C29A008A063314F5C565D355F2E3317949179C4449E8DDB37BACFEAF491AA99D99865B55E19AC7F30AFD1E1F2001F27052408F13611EB1020D770CBA9C307C0E998B48CCFC6DC149968489CCFB831D54019D538F037BDCF2C1D2BE8D3DE47FDE480620825EA675B644F145CEC21D81C92D68F776CA902EB679107645309157B097F59D2B7B676D5EBF4BC08E457A501D75969CC2931F8BE303F2194E6353410C184BF8E85479E11B8C774F8CE162220F9E3620B2FB0C0FCA029B16818668532CFAB5EEC2B1F70751099E9F77A67123BFEE241ADCE432219739F858170920E231CE6434BE61A86BE4DF12867559369A3DE17946C5B4C315ECF4CC5F27927381A8AD05532D96FE106AB93CF0614F9DC5B2AE915754EF7641842D4A2F3A0B6876C5C637BCBD1A94A93F248B39330AC9B2FDAE6465BF7EF800DB6BB1BCF9FAAF6E4C2A1D6CC9BC7990D9932C663B58C499838864BB74A4ACC6A80EEFCA19507D5E76547CD8BF511916F0EABCA191B1ACD5DC3A97ABA7068C7B1FBAFEA8BF0A076CED5D295E6EBDDB4D25A9B8CE70281E51A978C273A926AE57CF3052DBF52BC70AEBC8C59E3C078F66CABAD3D1AF7A3D18AE23CDD48F76411EDDF128F2B8D886F0D3C347C55611D9FC58858DB406E7C2DFF0D1B9ED6485CE4A72479CA3EE84F22D35A8D8A4FE8C927ED0D939099CECF673BD95ABA79FF150FE3086E1B4E4383A551B186A5C6B18FBD3290A0B8AD077F4F338590D2B222BFDC4744C4620A2E050BA6A7651B1D8A2DEEDBF478FA0F91359D745042931598629FFB90C4D47DE3F633CD4B298AF3B609CE55EE6EA4E47A98E530B812D37A25B1CFBA5A7CEF4DE6C1E19A2C7B07C48E43718F439C80F3161F87ED054603EB4F94E3C1E8B25902E453F5261FD6B71C25FAA41654AB4B5B9BA4E5677F5581B042CE0B57DA23C9B21AA8357B29B84C168A9BDFFAC5A15FCB4AF0C7F731A5D62BF156A75E65006E0D34B7F24CFE63D4A1F6C30F99B2609B67FC910ABB30D8E0FD5933F7987EC8D6D28E46101F0932003C204C6CBFAEEB873F4E8A6216C8826E099BBB2765425DF7AC316867A2DFB12525707ACEB4041535F537E3FF1F1558D0C25FE873A9694E9689F96F4F15AC1ADE04C347FDA8A76ECD035BE3B94C8D44F6EDF8AB49F05221DFF56DD2AD896C213D5D80D34948C9028C44AFF8BC78410649065E8AE5D6C06E84A0554F9C6D6C1620A1C786E241F9B6CE504C2FA10123F82264449A45F713B8CDD35FA44F80BC899DF4F5BD223CAD131A9784F999FF0C72C4CC7576CFD1AE394F8A851A5BDF58369E79D8EA794B6BE1370EE1BEB66A54953D7FBEB5D8288C3F5E4DE4057A931320571AA0C2FD2650C47D577EF17A8D17BB92F4CA450E1222948C8FCC55AC33281BE2516C128E7B46C6F3D4E71A6B5B9BC817F70AAAD6B55C103578F52B695C2F6430CDED8A54D7228049A911079662D5FF150A65A315D995E7061405F36A145965D8AF8DA4F9B9DEB33724085B6149DA26A10642F9D8F17E5AF14B5766DB52A1C42B5C8A946212B82D930FF24C0531887B0FEF34C5B2228541A1B9D8652761E4472A86F056EF7093745879A578CC5491B2C88724ECE2CFFEF49EF1CFE59E5E5B2580E5CE16756E6F76893CF3018527A102596186EDD330360FE9D2D870A90D2A1B1DE7C0F1E0AAD73D7FF26C3BD4B65A60A352EDA2AA9AA6C6E5D5820A6F912CB07D7CF53E00EC34A21A8EEFD9A6EBA98A73E21BA0E14E5CD0C252131B8788FE17689B05CBECB34D47C9EA05BE7FD5B2C9637C0361D5154699B98EBE217590C2309047E177BF0B626C28BE7249ADBA65011A07CB9CB23B3581EC4CCAD8489982160689C342493EB86451E02F3BBE1B6C2BC88BC40C093CD0E192C071292A9EC8C6E107088D253A825CB96A2A9C2496C256065F4D50D873354331B31A93CAF171AA2BC306E2B79AAA6B22B2343E35E4F73C7D82A441DE59D10C809DBBECD659839BDD909E1BA8623C6EA79F5F1B548490F94F8712B17CA71830DFDDAD9DFFC6D960525E519A821A769EB46F4044E84A040F4A8A23EC134FE2B605DA2DCADF03529077C97E52E9475453D2C7F353EABD43C4D8211A298C9DDC272C4283ADFC035A92F66A916F6284EB99ECC0CA89FDFC7BE44A0DC79524E3ACE23F3A782F4C960EF22109216017DF8D5FD55EA76509508095B5074EF657245B686558128AC330495CDBDA25E6D99EE79B379034E7B1739826CB49EFA3D02D75BDCE6F549F7E94A61CC8FF6E9EFB61F1E0F408DA15A93247BA78EFF25664A62B1E7C6BDA8730F3C8B2AD9E9C85DB5B24954164DA906B8DDFC2FC5E4E0EA22C563487FA8DCFF00F1BE7C7A9D7E1125B9557339A1AC6A502535B165EACBC71AFAB853F1FB207CFD69F5B82AA2CB2F19DC94C4126D6E14A4C5DE10F80D7A4C16EA7901DAA78D59F36B5881BC419679B75CB34C5FB77C7D84E06F5BC947EE1B00770F75E1F22FF97F6769F4605EE4BA92C196E3EACF5AF4B5B9AFAADCE24BAE7FD81DE6D671E0EBC617DA6C2EF2B6C7A5115D5356C98A3D0FFB1407D525E2F89BB090BC9F8D7B613327C370AED1CD0FA912B7A4470E6E1B64EF0DDAE8BD33944A19D9B3DA95C47B0664E4DDD3F9E6B5817CC9CDBF56143FA285EE8A75F15B88DD6BBF78611D28CE64B7E5A3481152A981B9F538055E5422D7746E5122EFABDC36B37A4D4801B560DAFE8D600939"> : tensor<84x1x1x24xi8>}> : () -> tensor<84x1x1x24xi8>
    %1 = "tosa.const"() <{values = dense<"0x47FDFFFF8B0000003C010000DB010000ED020000D50100002303000076FCFFFF530000006902000092030000F1FCFFFF57FEFFFF5000000031000000E4FFFFFFE6FFFFFF0B0200006DFCFFFFCDFDFFFF8E0000008B01000014000000410200003DFFFFFFC9FEFFFF58FEFFFF9F0000002B03000053FFFFFFBFFEFFFFFE010000F9020000FC02000039FDFFFF120000008E03000030FCFFFF3D010000480300006BFDFFFFAD0000000101000081FDFFFF30FDFFFFD001000082FFFFFFA1FFFFFFC1FEFFFF75FDFFFF55010000C3FEFFFF6DFDFFFFDA00000003FEFFFFB4FEFFFF8EFDFFFF31FDFFFFC8FFFFFF88FCFFFF2A0300001AFFFFFF2EFFFFFFCA01000060FEFFFFCAFEFFFF3CFFFFFF4DFFFFFF0DFEFFFF5D020000D9FDFFFF1601000011FFFFFFC5030000330200009A02000089FFFFFF6E030000D5FFFFFF120000003C020000220200006FFDFFFFE6030000"> : tensor<84xi32>}> : () -> tensor<84xi32>
    %2 = "tosa.const"() <{values = dense<-5> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = tosa.conv2d %arg0, %0, %1, %2, %3 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x1x4x24xi8>, tensor<84x1x1x24xi8>, tensor<84xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x4x84xi32>
    %5 = "tosa.const"() <{values = dense<"0xE0BE5D20C524F9272F70052F33552625F644CD378330073BE96065278A2ADF2A2455422299473235F11820309FA6782D312316222CB73831D2AC0C25CD394D2267329C214552C123BBF66337C1DFAA3274EE9221EAAA06296F036F3D9D80783F2B84DC31D59EC6224DA1DA2C2A3C6E384814B724ECBB64277272902C9E233627BE9926281CC46D2D725EAB3BC75F883D4EA74E30B3B40F2842D49C203A719D374784F83DED23E3305871963F7873D03FD7F4C23F49A1B13BE243B6284F51403ADB1602302EC6D638F226E636F32DA92BC2388623249DA93A9C44B62DA576943B41B64A2AF0E46C35865E8D3BCB893E218DCBD720C0588738A73F9A3DA16C2C3FD6CA9E2015875B26F51C953DA72B983270CA8E2EDE4E742A6090ED25B847FD289211062A85711432E098083EC9011732B26B1226E1AB5922F45E0C3ADEAFC33B5972743C7FDE903FCF578629BB693C2B"> : tensor<84xi32>}> : () -> tensor<84xi32>
    %6 = "tosa.const"() <{values = dense<38> : tensor<84xi8>}> : () -> tensor<84xi8>
    %7 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %8 = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
    %9 = tosa.rescale %4, %5, %6, %7, %8 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x1x4x84xi32>, tensor<84xi32>, tensor<84xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x1x4x84xi8>
    %10 = "tosa.const_shape"() <{values = dense<[4, 3, 4, 7]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %11 = tosa.reshape %9, %10 : (tensor<1x1x4x84xi8>, !tosa.shape<4>) -> tensor<4x3x4x7xi8>
    %12 = tosa.transpose %11 {perms = array<i32: 1, 2, 0, 3>} : (tensor<4x3x4x7xi8>) -> tensor<3x4x4x7xi8>
    %13 = "tosa.const_shape"() <{values = dense<[1, 0, 0, 0]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %14 = "tosa.const_shape"() <{values = dense<[1, 4, 4, 7]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %15 = tosa.slice %12, %13, %14 : (tensor<3x4x4x7xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x4x4x7xi8>
    %16 = "tosa.const_shape"() <{values = dense<[4, 4, 7]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %17 = tosa.reshape %15, %16 : (tensor<1x4x4x7xi8>, !tosa.shape<3>) -> tensor<4x4x7xi8>
    %18 = tosa.transpose %17 {perms = array<i32: 0, 2, 1>} : (tensor<4x4x7xi8>) -> tensor<4x7x4xi8>
    %19 = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
    %20 = tosa.matmul %arg1, %18, %19, %19 : (tensor<4x4x7xi8>, tensor<4x7x4xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<4x4x4xi32>
    %21 = "tosa.const"() <{values = dense<576867694> : tensor<1xi32>}> : () -> tensor<1xi32>
    %22 = "tosa.const"() <{values = dense<40> : tensor<1xi8>}> : () -> tensor<1xi8>
    %23 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %24 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %25 = tosa.rescale %20, %21, %22, %23, %24 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<4x4x4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<4x4x4xi8> loc("out0")
    return %25 : tensor<4x4x4xi8>
  }
}
// -----
module attributes {tosa.fbs_version = "1.0.0"} {
  func.func @main(%arg0: tensor<1x1x4x24xi8> {tosa.tensor_name = "in0"}, %arg1: tensor<4x4x7xi8> {tosa.tensor_name = "in1"}) -> (tensor<4x4x4xi8> {tosa.tensor_name = "out0"}) {
    %0 = "tosa.const"() <{values = dense<"0x609CE55EE6EA4E47A98E530B812D37A25B1CFBA5A7CEF4DE6C1E19A2C7B07C48E43718F439C80F3161F87ED054603EB4F94E3C1E8B25902E453F5261FD6B71C25FAA41654AB4B5B9BA4E5677F5581B042CE0B57DA23C9B21AA8357B29B84C168A9BDFFAC5A15FCB4AF0C7F731A5D62BF156A75E65006E0D34B7F24CFE63D4A1F6C30F99B2609B67FC910ABB30D8E0FD5933F7987EC8D6D28E46101F0932003C204C6CBFAEEB873F4"> : tensor<7x1x1x24xi8>}> : () -> tensor<7x1x1x24xi8>
    %1 = "tosa.const"() <{values = dense<[811, -173, -321, 510, 761, 764, -711]> : tensor<7xi32>}> : () -> tensor<7xi32>
    %2 = "tosa.const"() <{values = dense<-5> : tensor<1xi8>}> : () -> tensor<1xi8>
    %3 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %4 = tosa.conv2d %arg0, %0, %1, %2, %3 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x1x4x24xi8>, tensor<7x1x1x24xi8>, tensor<7xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x4x7xi32>
    %5 = "tosa.const"() <{values = dense<[615978056, 660913132, 747663986, 657859486, 673618366, 762168348, 1001086578]> : tensor<7xi32>}> : () -> tensor<7xi32>
    %6 = "tosa.const"() <{values = dense<38> : tensor<7xi8>}> : () -> tensor<7xi8>
    %7 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %8 = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
    %9 = tosa.rescale %4, %5, %6, %7, %8 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x1x4x7xi32>, tensor<7xi32>, tensor<7xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x1x4x7xi8>
    %10 = "tosa.const_shape"() <{values = dense<[1, 4, 7]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %11 = tosa.reshape %9, %10 : (tensor<1x1x4x7xi8>, !tosa.shape<3>) -> tensor<1x4x7xi8>
    %12 = "tosa.const"() <{values = dense<"0xE8A6216C8826E099BBB2765425DF7AC316867A2DFB12525707ACEB4041535F537E3FF1F1558D0C25FE873A9694E9689F96F4F15AC1ADE04C347FDA8A76ECD035BE3B94C8D44F6EDF8AB49F05221DFF56DD2AD896C213D5D80D34948C9028C44AFF8BC78410649065E8AE5D6C06E84A0554F9C6D6C1620A1C786E241F9B6CE504C2FA10123F82264449A45F713B8CDD35FA44F80BC899DF4F5BD223CAD131A9784F999FF0C72C4CC7"> : tensor<7x1x1x24xi8>}> : () -> tensor<7x1x1x24xi8>
    %13 = "tosa.const"() <{values = dense<[18, 910, -976, 317, 840, -661, 173]> : tensor<7xi32>}> : () -> tensor<7xi32>
    %14 = tosa.conv2d %arg0, %12, %13, %2, %3 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x1x4x24xi8>, tensor<7x1x1x24xi8>, tensor<7xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x4x7xi32>
    %15 = "tosa.const"() <{values = dense<[1032347591, 810461006, 672117939, 547148866, 933065018, 1039696967, 820192237]> : tensor<7xi32>}> : () -> tensor<7xi32>
    %16 = "tosa.const"() <{values = dense<38> : tensor<7xi8>}> : () -> tensor<7xi8>
    %17 = tosa.rescale %14, %15, %16, %7, %8 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x1x4x7xi32>, tensor<7xi32>, tensor<7xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x1x4x7xi8>
    %18 = "tosa.const_shape"() <{values = dense<[1, 4, 7]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %19 = tosa.reshape %17, %18 : (tensor<1x1x4x7xi8>, !tosa.shape<3>) -> tensor<1x4x7xi8>
    %20 = "tosa.const"() <{values = dense<"0x576CFD1AE394F8A851A5BDF58369E79D8EA794B6BE1370EE1BEB66A54953D7FBEB5D8288C3F5E4DE4057A931320571AA0C2FD2650C47D577EF17A8D17BB92F4CA450E1222948C8FCC55AC33281BE2516C128E7B46C6F3D4E71A6B5B9BC817F70AAAD6B55C103578F52B695C2F6430CDED8A54D7228049A911079662D5FF150A65A315D995E7061405F36A145965D8AF8DA4F9B9DEB33724085B6149DA26A10642F9D8F17E5AF14B5"> : tensor<7x1x1x24xi8>}> : () -> tensor<7x1x1x24xi8>
    %21 = "tosa.const"() <{values = dense<[257, -639, -720, 464, -126, -95, -319]> : tensor<7xi32>}> : () -> tensor<7xi32>
    %22 = tosa.conv2d %arg0, %20, %21, %2, %3 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x1x4x24xi8>, tensor<7x1x1x24xi8>, tensor<7xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x4x7xi32>
    %23 = "tosa.const"() <{values = dense<[1066824024, 1070625656, 1069741271, 1001496905, 683033570, 977293647, 805443291]> : tensor<7xi32>}> : () -> tensor<7xi32>
    %24 = "tosa.const"() <{values = dense<38> : tensor<7xi8>}> : () -> tensor<7xi8>
    %25 = tosa.rescale %22, %23, %24, %7, %8 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x1x4x7xi32>, tensor<7xi32>, tensor<7xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x1x4x7xi8>
    %26 = "tosa.const_shape"() <{values = dense<[1, 4, 7]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %27 = tosa.reshape %25, %26 : (tensor<1x1x4x7xi8>, !tosa.shape<3>) -> tensor<1x4x7xi8>
    %28 = "tosa.const"() <{values = dense<"0x766DB52A1C42B5C8A946212B82D930FF24C0531887B0FEF34C5B2228541A1B9D8652761E4472A86F056EF7093745879A578CC5491B2C88724ECE2CFFEF49EF1CFE59E5E5B2580E5CE16756E6F76893CF3018527A102596186EDD330360FE9D2D870A90D2A1B1DE7C0F1E0AAD73D7FF26C3BD4B65A60A352EDA2AA9AA6C6E5D5820A6F912CB07D7CF53E00EC34A21A8EEFD9A6EBA98A73E21BA0E14E5CD0C252131B8788FE17689B0"> : tensor<7x1x1x24xi8>}> : () -> tensor<7x1x1x24xi8>
    %29 = "tosa.const"() <{values = dense<[-651, 341, -317, -659, 218, -509, -332]> : tensor<7xi32>}> : () -> tensor<7xi32>
    %30 = tosa.conv2d %arg0, %28, %29, %2, %3 {pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32} : (tensor<1x1x4x24xi8>, tensor<7x1x1x24xi8>, tensor<7xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x1x4x7xi32>
    %31 = "tosa.const"() <{values = dense<[953599534, 921052914, 732507635, 595998914, 984194340, 766919836, 999585445]> : tensor<7xi32>}> : () -> tensor<7xi32>
    %32 = "tosa.const"() <{values = dense<38> : tensor<7xi8>}> : () -> tensor<7xi8>
    %33 = tosa.rescale %30, %31, %32, %7, %8 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = true, input_unsigned = false, output_unsigned = false} : (tensor<1x1x4x7xi32>, tensor<7xi32>, tensor<7xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x1x4x7xi8>
    %34 = "tosa.const_shape"() <{values = dense<[1, 4, 7]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %35 = tosa.reshape %33, %34 : (tensor<1x1x4x7xi8>, !tosa.shape<3>) -> tensor<1x4x7xi8>
    %36 = "tosa.const_shape"() <{values = dense<[1, 4, 4, 7]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %37 = tosa.reshape %arg1, %36 : (tensor<4x4x7xi8>, !tosa.shape<4>) -> tensor<1x4x4x7xi8>
    %38 = "tosa.const_shape"() <{values = dense<0> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %39 = "tosa.const_shape"() <{values = dense<[1, 1, 4, 7]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %40 = tosa.slice %37, %38, %39 : (tensor<1x4x4x7xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x1x4x7xi8>
    %41 = "tosa.const_shape"() <{values = dense<[1, 4, 7]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %42 = tosa.reshape %40, %41 : (tensor<1x1x4x7xi8>, !tosa.shape<3>) -> tensor<1x4x7xi8>
    %43 = "tosa.const_shape"() <{values = dense<[0, 1, 0, 0]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %44 = "tosa.const_shape"() <{values = dense<[1, 1, 4, 7]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %45 = tosa.slice %37, %43, %44 : (tensor<1x4x4x7xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x1x4x7xi8>
    %46 = "tosa.const_shape"() <{values = dense<[1, 4, 7]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %47 = tosa.reshape %45, %46 : (tensor<1x1x4x7xi8>, !tosa.shape<3>) -> tensor<1x4x7xi8>
    %48 = "tosa.const_shape"() <{values = dense<[0, 2, 0, 0]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %49 = "tosa.const_shape"() <{values = dense<[1, 1, 4, 7]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %50 = tosa.slice %37, %48, %49 : (tensor<1x4x4x7xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x1x4x7xi8>
    %51 = "tosa.const_shape"() <{values = dense<[1, 4, 7]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %52 = tosa.reshape %50, %51 : (tensor<1x1x4x7xi8>, !tosa.shape<3>) -> tensor<1x4x7xi8>
    %53 = "tosa.const_shape"() <{values = dense<[0, 3, 0, 0]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %54 = "tosa.const_shape"() <{values = dense<[1, 1, 4, 7]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %55 = tosa.slice %37, %53, %54 : (tensor<1x4x4x7xi8>, !tosa.shape<4>, !tosa.shape<4>) -> tensor<1x1x4x7xi8>
    %56 = "tosa.const_shape"() <{values = dense<[1, 4, 7]> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %57 = tosa.reshape %55, %56 : (tensor<1x1x4x7xi8>, !tosa.shape<3>) -> tensor<1x4x7xi8>
    %58 = tosa.transpose %11 {perms = array<i32: 0, 2, 1>} : (tensor<1x4x7xi8>) -> tensor<1x7x4xi8>
    %59 = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
    %60 = tosa.matmul %42, %58, %59, %59 : (tensor<1x4x7xi8>, tensor<1x7x4xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x4x4xi32>
    %61 = "tosa.const"() <{values = dense<576867694> : tensor<1xi32>}> : () -> tensor<1xi32>
    %62 = "tosa.const"() <{values = dense<40> : tensor<1xi8>}> : () -> tensor<1xi8>
    %63 = "tosa.const"() <{values = dense<0> : tensor<1xi32>}> : () -> tensor<1xi32>
    %64 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
    %65 = tosa.rescale %60, %61, %62, %63, %64 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x4x4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x4x4xi8>
    %66 = "tosa.const_shape"() <{values = dense<[1, 1, 4, 4]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %67 = tosa.reshape %65, %66 : (tensor<1x4x4xi8>, !tosa.shape<4>) -> tensor<1x1x4x4xi8>
    %68 = tosa.transpose %19 {perms = array<i32: 0, 2, 1>} : (tensor<1x4x7xi8>) -> tensor<1x7x4xi8>
    %69 = tosa.matmul %47, %68, %59, %59 : (tensor<1x4x7xi8>, tensor<1x7x4xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x4x4xi32>
    %70 = tosa.rescale %69, %61, %62, %63, %64 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x4x4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x4x4xi8>
    %71 = "tosa.const_shape"() <{values = dense<[1, 1, 4, 4]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %72 = tosa.reshape %70, %71 : (tensor<1x4x4xi8>, !tosa.shape<4>) -> tensor<1x1x4x4xi8>
    %73 = tosa.transpose %27 {perms = array<i32: 0, 2, 1>} : (tensor<1x4x7xi8>) -> tensor<1x7x4xi8>
    %74 = tosa.matmul %52, %73, %59, %59 : (tensor<1x4x7xi8>, tensor<1x7x4xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x4x4xi32>
    %75 = tosa.rescale %74, %61, %62, %63, %64 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x4x4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x4x4xi8>
    %76 = "tosa.const_shape"() <{values = dense<[1, 1, 4, 4]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %77 = tosa.reshape %75, %76 : (tensor<1x4x4xi8>, !tosa.shape<4>) -> tensor<1x1x4x4xi8>
    %78 = tosa.transpose %35 {perms = array<i32: 0, 2, 1>} : (tensor<1x4x7xi8>) -> tensor<1x7x4xi8>
    %79 = tosa.matmul %57, %78, %59, %59 : (tensor<1x4x7xi8>, tensor<1x7x4xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x4x4xi32>
    %80 = tosa.rescale %79, %61, %62, %63, %64 {scale32 = true, rounding_mode = SINGLE_ROUND, per_channel = false, input_unsigned = false, output_unsigned = false} : (tensor<1x4x4xi32>, tensor<1xi32>, tensor<1xi8>, tensor<1xi32>, tensor<1xi8>) -> tensor<1x4x4xi8>
    %81 = "tosa.const_shape"() <{values = dense<[1, 1, 4, 4]> : tensor<4xindex>}> : () -> !tosa.shape<4>
    %82 = tosa.reshape %80, %81 : (tensor<1x4x4xi8>, !tosa.shape<4>) -> tensor<1x1x4x4xi8>
    %83 = tosa.concat %67, %72, %77, %82 {axis = 1 : i32} : (tensor<1x1x4x4xi8>, tensor<1x1x4x4xi8>, tensor<1x1x4x4xi8>, tensor<1x1x4x4xi8>) -> tensor<1x4x4x4xi8>
    %84 = "tosa.const_shape"() <{values = dense<4> : tensor<3xindex>}> : () -> !tosa.shape<3>
    %85 = tosa.reshape %83, %84 : (tensor<1x4x4x4xi8>, !tosa.shape<3>) -> tensor<4x4x4xi8> loc("out0")
    return %85 : tensor<4x4x4xi8>
  }
}
