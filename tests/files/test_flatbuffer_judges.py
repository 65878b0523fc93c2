"""``.tosa`` files before Arm's own tools: the schema, the serializer, tosa-opt, the model."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from judges import wheel
from judges.arrays import patterns
from judges.generate import cases
from judges.graphs import difference
from judges.instances import of_row
from judges.recipes import BEYOND_1_0, FLOAT, INTEGER, Recipe
from judges.reference import run_reference
from judges.tosaopt import to_mlir
from tosaic.files.flatbuffer import read, schema, write
from tosaic.ir import Builder, Graph
from tosaic.spec import OPS, OpDef
from tosaic.spec.dtypes import PLAIN

FIRST_ROWS = {defn.name: of_row(defn, defn.rows[0]) for defn in OPS.values()}


def serializer(version: tuple[int, int, int, bool] = (1, 1, 0, True)) -> Any:
    import tosa_serializer

    return tosa_serializer.TosaSerializer("", tosa_serializer.ConstMode.EMBED, *version)


WHEEL_TYPES = {
    "i4": "INT4", "i48": "INT48", "i64": "INT64", "bf16": "BF16", "f8e4m3": "FP8E4M3",
    "f8e5m2": "FP8E5M2", "bool": "BOOL", "f6e2m3": "FP6E2M3", "f6e3m2": "FP6E3M2",
    "f4e2m1": "FP4E2M1", "mxi8": "MXINT8",
}  # fmt: skip
WHEEL_ARRAYS = {
    "f6e2m3": ml_dtypes.float6_e2m3fn, "f6e3m2": ml_dtypes.float6_e3m2fn,
    "f4e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip


@pytest.mark.parametrize("name", WHEEL_TYPES)
def test_constants_are_packed_as_arm_packs_them(name: str) -> None:
    """The wheel's serializer writes numbers, we read them, and write the same bytes."""
    import tosa_serializer
    from tosa.TosaGraph import TosaGraph

    kind = next(k for k in PLAIN if k.name == name)
    array = patterns(kind, 64).reshape(2, 32)
    if name == "i4":
        array = np.maximum(array, -7)  # the wheel has no -8
    given = array.view(WHEEL_ARRAYS[name]) if name in WHEEL_ARRAYS else array
    s = serializer()
    s.addConst([2, 32], getattr(tosa_serializer.DType, WHEEL_TYPES[name]), given, "k")
    s.currRegion.currBasicBlock.addOutput("k")
    theirs = bytes(s.serialize())
    (value,) = read(theirs).outputs
    assert value.const is not None
    assert value.const.array.tobytes() == array.tobytes()
    graph = Graph(version=(1, 1), outputs=[value])
    data = [
        TosaGraph.GetRootAs(file, 0).Regions(0).Blocks(0).Tensors(0).DataAsNumpy().tobytes()
        for file in (theirs, write(graph))
    ]
    assert data[0] == data[1]


def fields_of(table: str) -> list[str]:
    """The fields of a table in the schema that Arm ships."""
    text = (wheel.site_packages() / "bin" / "tosa.fbs").read_text()
    found = re.search(rf"^table {table} {{(.*?)^}}", text, re.DOTALL | re.MULTILINE)
    assert found, table
    lines = re.sub(r"//.*", "", found[1])
    return [f.strip("_ ") for f in re.findall(r"(\w+)\s*:\s*[^;]*;", lines)]


@pytest.mark.parametrize(
    ("table", "ours"),
    [
        ("TosaGraph", schema.GRAPH),
        ("Version", schema.VERSION),
        ("SerializationCompatibility", schema.COMPATIBILITY),
        ("TosaRegion", schema.REGION),
        ("TosaBasicBlock", schema.BLOCK),
        ("TosaOperator", schema.OPERATOR),
        ("TosaTensor", schema.TENSOR),
        ("TosaShape", schema.SHAPE),
    ],
)
def test_fields_have_the_numbers_of_arms_schema(table: str, ours: type) -> None:
    fields = fields_of(table)
    if "attribute" in fields:  # a union takes two numbers
        fields.insert(fields.index("attribute"), "attribute_type")
    numbers = {name.lower(): n for name, n in vars(ours).items() if not name.startswith("_")}
    assert numbers == {name: number for number, name in enumerate(fields)}


@pytest.mark.parametrize("defn", OPS.values(), ids=lambda d: d.name)
def test_attributes_have_the_order_of_arms_schema(defn: OpDef) -> None:
    from tosa.Attribute import Attribute
    from tosa.Op import Op

    tables = {number: name for name, number in vars(Attribute).items() if isinstance(number, int)}
    assert getattr(Op, defn.name) == defn.code
    assert [a.name for a in schema.attributes(defn)] == fields_of(tables[defn.code])


@pytest.mark.parametrize(("name", "features"), [("bs32_f4e2m1", 2), ("f4e2m1", 0), ("i8", 0)])
def test_a_file_with_blocks_says_so_as_the_wheels_does(name: str, features: int) -> None:
    from tosa.TosaGraph import TosaGraph

    row = next(r for r in OPS["CONST"].rows if r.types[0].name == name)
    data = write(of_row(OPS["CONST"], row))
    assert TosaGraph.GetRootAs(data, 0).Compatibility().Features() == features


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The wheel's loader writes its remarks to the descriptor itself."""
    kept = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@pytest.mark.parametrize("name", FIRST_ROWS)
def test_the_wheels_serializer_reads_every_operator(name: str) -> None:
    graph = FIRST_ROWS[name]
    s = serializer()
    with tempfile.NamedTemporaryFile(suffix=".tosa") as file, quiet():
        file.write(write(graph))
        file.flush()
        s.loadTosaFlatbuffer(file.name)
    block = s.regions[0].basicBlocks[0]
    variable = ("VARIABLE_READ", "VARIABLE_WRITE")
    wanted = ["IDENTITY" if op.name in variable else op.name for op in graph.ops]
    found = [op.op.name for op in block.operators]
    assert [n for n in found if not n.startswith("CONST")] == [n for n in wanted if n != "VARIABLE"]
    assert list(block.inputs) == [v.name for v in graph.inputs]


@pytest.mark.parametrize("name", FIRST_ROWS)
def test_tosa_opt_reads_every_operator(name: str) -> None:
    text = to_mlir(write(FIRST_ROWS[name]))
    assert OPS[name].mlir in text


def wheel_file() -> bytes:
    """x * 3 clamped to 0 to 6, as the wheel's own serializer writes it."""
    import tosa_serializer as ts

    s = serializer((1, 0, 0, False))
    s.addInputTensor(ts.TosaSerializerTensor("x", [2, 3], ts.DType.FP32))
    block = s.currRegion.currBasicBlock
    three = s.addConst([1, 1], ts.DType.FP32, np.array([[3]], np.float32), "three")
    shift = s.addConst([1], ts.DType.INT8, np.array([0], np.int8), "shift")
    for name in ("p", "y"):
        block.addTensor(name, [2, 3], ts.DType.FP32)
    mul, clamp = ts.TosaSerializerAttribute(), ts.TosaSerializerAttribute()
    mul.MulAttribute()
    bounds = [list(np.float32(n).tobytes()) for n in (0, 6)]
    clamp.ClampAttribute(*bounds, ts.NanPropagationMode.PROPAGATE)
    s.addOperator(ts.Op.MUL, ["x", three.name, shift.name], ["p"], mul)
    s.addOperator(ts.Op.CLAMP, ["p"], ["y"], clamp)
    block.addOutput("y")
    return bytes(s.serialize())


def test_the_reference_model_agrees_on_our_file_and_the_wheels() -> None:
    b = Builder("TOSA-1.0+FP")
    x = b.input("f32", (2, 3), "x")
    p = b.MUL(x, b.const([[3]], "f32", "three"), b.const([0], "i8", "shift"), names=["p"])
    b.output(b.CLAMP(p, min_val=0.0, max_val=6.0, names=["y"]))
    given = [np.array([[-1, 0.5, 1], [1.5, 2.25, 9]], np.float32)]
    (ours,), (theirs,) = run_reference(write(b.graph), given), run_reference(wheel_file(), given)
    assert ours.tolist() == theirs.tolist() == [[0, 1.5, 3], [4.5, 6, 6]]
    assert difference(b.graph, read(wheel_file())) == ""


CONFORMANCE = [
    *((INTEGER[0], o) for o in ("rescale", "conv2d_3x3", "clamp", "pad", "table", "const")),
    *((INTEGER[0], o) for o in ("matmul", "cond_if_binary", "while_loop", "resize")),
    *((FLOAT[0], o) for o in ("clamp", "cast", "transpose_conv2d_3x3", "argmax", "cond_if_const")),
    *((BEYOND_1_0[0], o) for o in ("concat_shape", "slice_shape", "matmul_t", "row_gather")),
]


@pytest.mark.parametrize(("recipe", "operator"), CONFORMANCE, ids=lambda p: getattr(p, "name", p))
def test_a_conformance_file_written_again_gives_the_same_result(
    recipe: Recipe, operator: str
) -> None:
    tests = [c for c in cases(recipe, operator, "small") if c.status == "TOSA_VALID"]
    assert tests
    for case in tests[:: max(1, len(tests) // 4)]:
        given = case.inputs
        for a, b in zip(
            run_reference(case.graph, given),
            run_reference(write(read(case.graph)), given),
            strict=True,
        ):
            assert a.tobytes() == b.tobytes(), case
