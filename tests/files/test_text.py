"""TOSA as MLIR text: tosa-opt reads what we print as the very graph that was printed."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest

from judges import tosaopt
from judges.graphs import difference
from judges.instances import everywhere, of_row
from judges.timing import SOON, seconds, within
from tosaic.errors import InvalidGraph
from tosaic.files.flatbuffer import read
from tosaic.files.text import print_graph
from tosaic.ir import Builder, Graph, Loc, Op, Value
from tosaic.spec import OPS, TensorType, everything
from tosaic.spec.dtypes import PLAIN, SHAPE


def read_by_tosa_opt(graph: Graph) -> Graph:
    """Printed by us, read by tosa-opt, and written by it as a file."""
    return read(tosaopt.to_file(print_graph(graph)))


@pytest.mark.parametrize("name", OPS)
def test_tosa_opt_reads_an_operator_as_it_was_printed(name: str) -> None:
    graph = of_row(OPS[name], OPS[name].rows[0])
    assert difference(graph, read_by_tosa_opt(graph), names=False) == ""


def test_tosa_opt_reads_every_row_of_every_operator() -> None:
    """A block-scaled constant has its scales in its type there, which we do not follow."""
    rows = [(d, r) for d, r in everywhere() if d.name != "CONST" or r.types[0].kind != "block"]
    texts = tosaopt.round_trips([print_graph(of_row(*each)) for each in rows])
    assert len(texts) == len(rows) > 1900
    for (defn, _), text in zip(rows, texts, strict=True):
        assert defn.mlir in text


def test_names_and_locations_survive_tosa_opt() -> None:
    (text,) = tosaopt.round_trips([print_graph(decorated())], ["--mlir-print-debuginfo"])
    named = [r'"in \221\22"', r'"\C3\BCn\C3\AF\0A\\"', '"sum"', '"real"', '"imag"']
    assert [name for name in named if f"tosa.tensor_name = {name}" not in text] == []
    kept = ['fused<{module = "net.head", node = "aten.add"}>', 'loc("a b.py":12:0)']
    kept += ['loc("weights"(#loc', 'loc("sum"(#loc', 'fused<{names = ["real", "imag"]}>']
    assert [place for place in kept if place not in text] == []


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
def test_constants_keep_every_bit(name: str, count: int) -> None:
    """But for those of a NaN, which tosa-opt keeps in text and not in a file."""
    b = Builder(everything())
    patterns = every_bit(name).reshape(-1)
    with np.errstate(invalid="ignore"):
        numbers = patterns[patterns == patterns]
    b.output(b.const(numbers[-count:] if count > 1 else numbers[:1], name, "c"))
    assert difference(b.graph, read_by_tosa_opt(b.graph), names=False) == ""


@pytest.mark.parametrize("name", ["f16", "bf16", "f8e4m3", "f8e5m2"])
def test_every_nan_is_printed_bit_by_bit(name: str) -> None:
    b = Builder(everything())
    b.output(b.const(every_bit(name).reshape(-1), name, "c"))
    text = print_graph(b.graph)
    (again,) = tosaopt.round_trips([text])
    digits = re.compile(r'dense<("0x[0-9A-F]{200,}")>')
    assert digits.findall(text) == digits.findall(again) != []


@pytest.mark.parametrize("low", [float("-inf"), -0.0, 1e-45, -3.4028234663852886e38, 0.1])
def test_clamp_bounds_are_exact(low: float) -> None:
    b = Builder("TOSA-1.0+FP")
    low = float(np.float32(low))
    b.output(b.CLAMP(b.input("f32", (2,), "x"), min_val=low, max_val=float("inf")))
    again = read_by_tosa_opt(b.graph)
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


def test_regions_nest_as_deep_as_any_level_allows() -> None:
    outermost = graph = Graph()
    for _ in range(256):
        graph.inputs.append(Value(TensorType(PLAIN[0], (1,)), "x"))
        inner = Graph("then_graph")
        graph.ops.append(Op(OPS["COND_IF"], graph.inputs[:], [], {}, (inner, Graph("else_graph"))))
        graph = inner
    assert print_graph(outermost).count("tosa.cond_if") == 256


def chain(count: int) -> Graph:
    b = Builder("TOSA-1.0+INT")
    x = b.input("i32", (1, 8, 8, 8), "x")
    for i in range(count):
        b.loc = Loc(f"add_{i}", "net.layer", "net.py", i)
        x = b.ADD(x, b.const([[[[i]]]], "i32"), names=[f"v{i}"])
    b.output(x)
    return b.graph


def test_printing_grows_in_step_with_the_graph() -> None:
    times = {n: seconds(partial(print_graph, chain(n)), 2) for n in (2000, 20_000)}
    assert times[20_000] < 25 * times[2000]


def test_large_constants_are_printed_in_seconds() -> None:
    b = Builder("TOSA-1.0+INT")
    data = np.random.default_rng(3).integers(-128, 128, (14, 1 << 20), dtype=np.int8)
    b.output(b.const(data, "i8", "weights"))
    with within(SOON):
        assert len(print_graph(b.graph)) > 2 * data.size
