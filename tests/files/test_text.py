"""TOSA as MLIR text: what we print we read back, and tosa-opt reads and writes the same."""

from __future__ import annotations

import random
import re
from functools import partial

import numpy as np
import pytest
import tosa_serializer as ts

from judges import tosaopt
from judges.graphs import difference
from judges.instances import everywhere, of_row
from judges.timing import SOON, seconds, within
from tosaic.errors import InvalidGraph
from tosaic.files.parse import parse
from tosaic.files.text import print_graph
from tosaic.ir import Builder, Const, Graph, Loc, Op, Value, problems
from tosaic.spec import OPS, OpDef, TensorType, everything
from tosaic.spec.dtypes import PLAIN, SHAPE
from tosaic.spec.table import Row

FUNCTION = 'module attributes {{tosa.fbs_version = "1.1.0"}} {{\n  func.func @main() {{\n{}\n'
FUNCTION += "    return\n  }}\n}}\n"


def block_constant(defn: OpDef, row: Row) -> bool:
    """tosa-opt writes the scales of a block-scaled constant into its type; we do not follow."""
    return defn.name == "CONST" and row.types[0].kind == "block"


def instances() -> list[tuple[OpDef, Graph]]:
    return [(d, of_row(d, r)) for d, r in everywhere() if not block_constant(d, r)]


def test_every_row_of_every_operator_survives_our_own_text() -> None:
    wrong = {}
    for defn, row in everywhere():
        graph = of_row(defn, row)
        found = difference(graph, parse(print_graph(graph)))
        if found:
            wrong[defn.name, row] = found
    assert wrong == {}


@pytest.mark.parametrize("options", [(), ("--mlir-print-debuginfo",)], ids=["plain", "locations"])
def test_tosa_opt_reads_every_row_and_writes_the_same_graph(options: tuple[str, ...]) -> None:
    graphs = instances()
    texts = tosaopt.round_trips([print_graph(g) for _, g in graphs], options)
    found = [
        (defn.name, difference(graph, parse(text), names=False))
        for (defn, graph), text in zip(graphs, texts, strict=True)
    ]
    assert [f for f in found if f[1]] == []
    assert {name for name, _ in found} == set(OPS)


def test_names_and_locations_survive_tosa_opt() -> None:
    graph = decorated()
    (text,) = tosaopt.round_trips([print_graph(graph)], ["--mlir-print-debuginfo"])
    again = parse(text)
    assert [v.name for v in again.inputs] == ['in "1"', "ünï\n\\"]
    assert [v.name for v in again.outputs] == ["sum", 'in "1"', "real", "imag"]
    assert again.ops[0].loc == Loc("aten.add", "net.head", "a b.py", 12)
    assert again.ops[0].ins[1].name == "weights"
    assert [v.name for v in again.ops[1].outs] == ["real", "imag"]


def decorated() -> Graph:
    b = Builder("TOSA-1.0+FP+fft")
    x = b.input("f32", (1, 4, 2), 'in "1"')
    b.loc = Loc(node="placeholder")
    y = b.input("f32", (1, 4, 2), "ünï\n\\")
    b.loc = Loc("aten.add", "net.head", "a b.py", 12)
    weights = b.const(np.arange(8, dtype=np.float32).reshape(1, 4, 2), name="weights")
    total = b.ADD(x, weights, names=["sum"])
    b.loc = None
    b.output(total, x, *b.FFT2D(total, y, inverse=False, names=["real", "imag"]))
    b.graph.name = "odd name"
    return b.graph


def test_names_and_locations_survive_our_own_text() -> None:
    graph = decorated()
    assert difference(graph, parse(print_graph(graph))) == ""


def every_bit(kind_name: str) -> np.ndarray:
    kind = next(d for d in PLAIN if d.name == kind_name)
    if kind.kind == "bool":
        return np.arange(40).reshape(5, 8) % 3 == 0
    if kind.is_int:
        low, high = kind.range
        return np.array([low, high, 0, -1, 1] * 8, dtype=kind.array).reshape(5, 8)
    width = np.dtype(kind.array).itemsize
    patterns = np.arange(1 << min(kind.bits, 16), dtype=np.uint16)
    if width == 4:
        special = [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 1, 0x80000000, 0x7F7FFFFF]
        patterns = np.array(special, dtype=np.uint32)
    return patterns.astype(f"u{width}").view(kind.array)


CONSTANTS = [d.name for d in PLAIN if d is not SHAPE]


@pytest.mark.parametrize("count", [1, 7, 200_000], ids=["one", "list", "hexadecimal"])
@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_keep_every_bit_through_tosa_opt(name: str, count: int) -> None:
    b = Builder(everything())
    patterns = every_bit(name).reshape(-1)
    chosen = patterns[-count:] if count > 1 else patterns[:1]
    b.output(b.const(chosen, name, "c"))
    text = print_graph(b.graph)
    assert difference(b.graph, parse(text)) == ""
    assert difference(b.graph, parse(tosaopt.round_trip(text)), names=False) == ""


@pytest.mark.parametrize("low", [float("-inf"), -0.0, 1e-45, -3.4028234663852886e38, 0.1])
def test_clamp_bounds_are_exact(low: float) -> None:
    b = Builder("TOSA-1.0+FP")
    low = float(np.float32(low))
    b.output(b.CLAMP(b.input("f32", (2,), "x"), min_val=low, max_val=float("inf")))
    text = print_graph(b.graph)
    for again in (parse(text), parse(tosaopt.round_trip(text))):
        assert np.float32(again.ops[0].attrs["min_val"]).tobytes() == np.float32(low).tobytes()
        assert again.ops[0].attrs["max_val"] == float("inf")


def test_a_graph_is_printed_in_the_form_of_tosa_opt() -> None:
    b = Builder("TOSA-1.0+INT")
    x = b.input("i8", (1, 4, 4, 2), "image")
    w = b.const(np.zeros((3, 1, 1, 2)), "i8", "w")
    zero = b.const([0], "i8")
    bias = b.const([1, 2, -3], "i32")
    b.output(
        b.CONV2D(x, w, bias, zero, zero, pad=(0,) * 4, stride=(1, 1), dilation=(1, 1),
                 acc_type="i32", names=["y"])
    )  # fmt: skip
    text = print_graph(b.graph)
    assert text == (
        'module attributes {tosa.fbs_version = "1.0.0"} {\n'
        '  func.func @main(%arg0: tensor<1x4x4x2xi8> {tosa.tensor_name = "image"})'
        ' -> (tensor<1x4x4x3xi32> {tosa.tensor_name = "y"}) {\n'
        '    %0 = "tosa.const"() <{values = dense<0> : tensor<3x1x1x2xi8>}>'
        ' : () -> tensor<3x1x1x2xi8> loc("w")\n'
        '    %1 = "tosa.const"() <{values = dense<[1, 2, -3]> : tensor<3xi32>}>'
        " : () -> tensor<3xi32>\n"
        '    %2 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>\n'
        "    %3 = tosa.conv2d %arg0, %0, %1, %2, %2 {pad = array<i64: 0, 0, 0, 0>,"
        " stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>, acc_type = i32}"
        " : (tensor<1x4x4x2xi8>, tensor<3x1x1x2xi8>, tensor<3xi32>, tensor<1xi8>, tensor<1xi8>)"
        ' -> tensor<1x4x4x3xi32> loc("y")\n'
        "    return %3 : tensor<1x4x4x3xi32>\n"
        "  }\n"
        "}\n"
    )


def test_a_value_that_nothing_computes_is_not_printed() -> None:
    graph = Graph(outputs=[Value(TensorType(PLAIN[2], (1,)), "lost")])
    with pytest.raises(InvalidGraph, match="value lost is used before it is computed"):
        print_graph(graph)


def flatbuffers() -> dict[str, bytes]:
    """Files that Arm's serializer wrote: a variable, a table of names, two versions."""
    files = {}
    for minor, draft in ((0, False), (1, True)):
        s = ts.TosaSerializer("", ts.ConstMode.EMBED, 1, minor, 0, draft)
        block = s.currRegion.currBasicBlock
        s.addInputTensor(ts.TosaSerializerTensor("left side", [2, 3], ts.DType.INT8))
        s.addConst([1], ts.DType.INT8, np.array([3], np.int8), "shift")
        s.addConst([2, 3], ts.DType.INT8, np.arange(6, dtype=np.int8).reshape(2, 3), "right")
        block.addTensor("product", [2, 3], ts.DType.INT32)
        block.addOutput("product")
        attribute = ts.TosaSerializerAttribute()
        attribute.MulAttribute()
        s.addOperator(ts.Op.MUL, ["left side", "right", "shift"], ["product"], attribute)
        files[f"1.{minor}"] = bytes(s.serialize())
    return files


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_what_tosa_opt_makes_of_a_wheel_made_file_parses(version: str) -> None:
    graph = parse(tosaopt.to_mlir(flatbuffers()[version]))
    assert [op.name for op in graph.ops] == ["MUL"]
    assert f"{graph.version[0]}.{graph.version[1]}" == version
    assert [v.name for v in graph.inputs + graph.outputs] == ["left side", "product"]
    right = graph.ops[0].operand("input2").const
    assert right is not None
    assert right.array.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_generic_variables_and_captured_constants_parse() -> None:
    text = """
    "tosa.variable"() <{initial_value = dense<[1, 2]> : tensor<2xi8>, sym_name = "a b", type = i8,
        var_shape = dense<2> : tensor<1xindex>}> : () -> ()
    func.func @main(%c: tensor<i1>) -> tensor<2xi8> {
      %k = "tosa.const"() <{values = dense<3> : tensor<2xi8>}> : () -> tensor<2xi8>  // shared
      %v = "tosa.variable_read"() <{name = "a b"}> : () -> tensor<2xi8>
      %0 = tosa.cond_if %c : tensor<i1> -> tensor<2xi8> {
        tosa.yield %k : tensor<2xi8>
      } else {
        tosa.yield %k : tensor<2xi8>
      }
      return %0 : tensor<2xi8>
    }
    """
    graph = parse(text)
    assert [op.name for op in graph.ops] == ["VARIABLE", "VARIABLE_READ", "COND_IF"]
    assert graph.ops[0].attrs["initial_value"].tolist() == [1, 2]
    outputs = [region.outputs[0].const for region in graph.ops[2].regions]
    assert isinstance(outputs[0], Const)
    assert outputs[0] is outputs[1]


def const(data: str, kind: str) -> str:
    line = f'%0 = "tosa.const"() <{{values = dense<{data}> : tensor<{kind}>}}>'
    return f"    {line} : () -> tensor<{kind}>"


REFUSALS = [
    ("", "one function is needed; the text has 0 (at line 1, column 1)"),
    (
        "module {\n  oops",
        "a function or a variable is needed here, not 'oops' (at line 2, column 3)",
    ),
    ("module {", "the text ends early (at line 1, column 9)"),
    (
        'module attributes {tosa.fbs_version = "2.0.0"} {}',
        "the version of TOSA is none of 1.0, 1.1 (at line 1, column 46)",
    ),
    (FUNCTION.format("    tosa.frobnicate"), "'tosa.frobnicate' is no operator of TOSA"),
    (
        FUNCTION.format("    %0 = tosa.abs %1 : (tensor<1xi8>) -> tensor<1xi8>"),
        "'%1' is used before it is defined (at line 3, column 19)",
    ),
    (FUNCTION.format(const("300", "1xi8")), "'300' is no number of i8 (at line 3, column 42)"),
    (FUNCTION.format(const("1", "1xf32")), "'1' is no number of f32"),
    (FUNCTION.format(const('"0x01"', "2xi16")), "the constant has 1 bytes; i16[2] has 4"),
    (FUNCTION.format(const('"0x0G"', "2xi8")), "the constant is not in hexadecimal digits"),
    (
        FUNCTION.format(const("[[1, 2], [3]]", "2x2xi8")),
        "the constant's brackets do not agree with i8[2,2]",
    ),
    (FUNCTION.format(const("1", "?xi8")), "a constant of i8[-1] has an unknown size"),
    (
        FUNCTION.format(const("0", "1000000x1000000xi8")),
        "a constant of i8[1000000,1000000] is too large for one number",
    ),
    (
        FUNCTION.format(f"{const('1', '1xi8')}\n{const('1', '1xi8')}"),
        "'%0' is defined twice (at line 4, column 5)",
    ),
    (
        FUNCTION.format(f"{const('1', '2xi8')}\n%1 = tosa.abs %0 : (tensor<1xi8>) -> tensor<1xi8>"),
        "operand 0 of 'tosa.abs' is i8[2], not i8[1]",
    ),
    (
        FUNCTION.format(
            f"{const('1', '2xi8')}\n%1 = tosa.argmax %0 {{nan_mode = MAYBE}} :"
        ),
        "nan_mode is one of PROPAGATE, IGNORE, not 'MAYBE'",
    ),
    (
        FUNCTION.format(f"{const('1', '2xi8')}\n%1 = tosa.abs %0 {{size = 1 : i32}} :"),
        "ABS has no attribute 'size'",
    ),
    (
        FUNCTION.format("    return loc(#loc0)"),
        "the location '#loc0' is defined nowhere",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), REFUSALS)
def test_a_refusal_says_what_and_where(text: str, sentence: str) -> None:
    with pytest.raises(InvalidGraph) as refusal:
        parse(text)
    assert str(refusal.value).startswith(sentence)
    assert re.search(r" \(at line \d+, column \d+\)$", str(refusal.value))


MANY = 100_000
HOSTILE = {
    "unclosed strings": '"\\' * MANY,
    "open brackets": "(" * MANY,
    "open types": "tensor<" * MANY,
    "types in a type": "tensor<" + "tensor<y>" * MANY,
    "type list": "(tensor<1xi8>, " * MANY,
    "array": "array<i64: 1, " * MANY,
    "dashes": "-" * MANY,
    "nested attributes": FUNCTION.format('"tosa.abs"() {x.y = ' + "{" * MANY),
    "nested list": FUNCTION.format(const("[" * MANY, "1xi8")),
    "long number": FUNCTION.format(const("9" * MANY, "1xi8")),
    "many results": FUNCTION.format("%0:99999999999 = tosa.custom"),
    "rank": FUNCTION.format(const("0", "1x" * MANY + "i8")),
    "long shape": FUNCTION.format(const("0", f"{MANY}xindex")),
    "circular locations": "#loc0 = loc(#loc1)\n#loc1 = loc(#loc0)\nfunc.func @f() { return }",
    "nested locations": FUNCTION.format("    return loc(" + "callsite(" * MANY),
    "nested regions": FUNCTION.format('"tosa.while_loop"() ({\n' * MANY),
    "many functions": "func.func @f() { return }\n" * (MANY // 10),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_refused_soon(text: str) -> None:
    with within(SOON), pytest.raises(InvalidGraph):
        parse(text)


def test_regions_nest_as_deep_as_any_level_allows() -> None:
    outermost = graph = Graph()
    for _ in range(256):
        graph.inputs.append(Value(TensorType(PLAIN[0], (1,)), "x"))
        inner = Graph("then_graph")
        graph.ops.append(Op(OPS["COND_IF"], graph.inputs[:], [], {}, (inner, Graph("else_graph"))))
        graph = inner
    text = print_graph(outermost)
    again = parse(text)
    assert len(list(again.walk())) == 256
    assert print_graph(again) == text


def mutants(count: int) -> list[str]:
    draw = random.Random(20)
    texts = [print_graph(of_row(defn, defn.rows[0])) for defn in OPS.values()]
    texts += tosaopt.round_trips(texts, ["--mlir-print-debuginfo"])
    words = re.compile(r"\s+|\w+|.", re.DOTALL)
    pieces = sorted({w for t in texts for w in words.findall(t)})
    pieces += ["9" * 30, "-1", "\0", '"', "loc(", "#loc", "dense<", "tensor<", "\ud800", "?", "//"]
    found = []
    for _ in range(count):
        parts = words.findall(draw.choice(texts))
        for _ in range(draw.choice((1, 1, 2, 5))):
            at, other = draw.randrange(len(parts)), draw.randrange(len(parts))
            change = draw.randrange(4)
            if change == 0:
                parts[at] = draw.choice(pieces)
            elif change == 1:
                parts[at] = ""
            elif change == 2:
                parts.insert(at, draw.choice(pieces))
            else:
                parts[at], parts[other] = parts[other], parts[at]
        found.append("".join(parts))
    return found


def test_mutated_text_is_refused_with_a_place_or_gives_a_graph_that_can_be_verified() -> None:
    refusals = []
    for text in mutants(2000):
        with within(SOON, text):
            try:
                graph = parse(text)
            except InvalidGraph as refusal:
                refusals.append(str(refusal))
            else:
                list(problems(graph, everything()))
                print_graph(graph)
    assert all(re.search(r" \(at line \d+, column \d+\)$", r) for r in refusals)
    assert 1000 < len(refusals) < 2000


def chain(count: int) -> Graph:
    b = Builder("TOSA-1.0+INT")
    x = b.input("i32", (1, 8, 8, 8), "x")
    for i in range(count):
        b.loc = Loc(f"add_{i}", "net.layer", "net.py", i)
        x = b.ADD(x, b.const([[[[i]]]], "i32"), names=[f"v{i}"])
    b.output(x)
    return b.graph


def test_printing_and_parsing_grow_in_step_with_the_graph() -> None:
    printing, parsing = {}, {}
    for count in (2000, 20_000):
        graph = chain(count)
        text = print_graph(graph)
        assert len(parse(text).ops) == count
        printing[count] = seconds(partial(print_graph, graph), 2)
        parsing[count] = seconds(partial(parse, text), 2)
    assert printing[20_000] < 25 * printing[2000]
    assert parsing[20_000] < 25 * parsing[2000]
    assert printing[20_000] + parsing[20_000] < 20


def test_large_constants_are_printed_and_parsed_in_seconds() -> None:
    b = Builder("TOSA-1.0+INT")
    data = np.random.default_rng(3).integers(-128, 128, (14, 1 << 20), dtype=np.int8)
    b.output(b.const(data, "i8", "weights"))
    with within(3 * SOON):
        again = parse(print_graph(b.graph))
    assert difference(b.graph, again) == ""
