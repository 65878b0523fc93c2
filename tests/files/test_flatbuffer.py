"""``.tosa`` files: what is written is what is read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from judges.arrays import patterns
from judges.graphs import difference
from judges.instances import everywhere, of_row
from judges.reference import run_reference
from tosaic.errors import InvalidGraph
from tosaic.files.flatbuffer import read, write
from tosaic.files.flatbuffer.writer import FlatbufferWriter
from tosaic.ir import Builder, Const, Graph, Loc, Value, verify
from tosaic.spec import OPS, TensorType
from tosaic.spec.dtypes import BLOCKS, F32, PLAIN, SHAPE, DType

FIRST_ROWS = {defn.name: of_row(defn, defn.rows[0]) for defn in OPS.values()}


def again(graph: Graph) -> Graph:
    return read(write(graph))


def test_every_row_of_every_operator_survives() -> None:
    different = [
        f"{defn.name} {row}: {said}"
        for defn, row in everywhere()
        if (said := difference(graph := of_row(defn, row), again(graph), names=False))
    ]
    assert different == []


def test_writing_what_was_read_gives_the_same_bytes() -> None:
    for graph in FIRST_ROWS.values():
        data = write(graph)
        assert write(graph) == data
        assert write(read(data)) == data


@pytest.mark.parametrize("count", [5, 32, 33])
@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_a_constant_keeps_every_bit(kind: DType, count: int) -> None:
    array = patterns(kind, count)
    shape = (count,) if kind is SHAPE else (1, count)
    graph = Graph(version=(1, 1))
    const = Const(array.reshape(shape))
    graph.outputs.append(Value(TensorType(kind, shape), "k", const))
    (value,) = again(graph).outputs
    assert value.type == TensorType(kind, shape)
    assert value.const is not None
    assert value.const.array.dtype == array.dtype
    assert value.const.array.shape == shape
    assert value.const.array.tobytes() == array.tobytes()


@pytest.mark.parametrize("kind", BLOCKS, ids=str)
def test_a_block_scaled_constant_keeps_elements_and_scales(kind: DType) -> None:
    array = np.arange(3 * 64 * kind.bits // 8 + 6, dtype=np.uint8)
    graph = Graph(version=(1, 1))
    graph.outputs.append(Value(TensorType(kind, (3, 64)), "k", Const(array)))
    (value,) = again(graph).outputs
    assert value.dtype is kind
    assert value.const is not None
    assert np.array_equal(value.const.array, array)


def names_of(values: list[Value]) -> list[str]:
    return [v.name for v in values]


def test_names_of_inputs_and_outputs_survive_and_others_make_room() -> None:
    b = Builder("TOSA-1.0+INT")
    x, y = b.input("i32", (2,), "b"), b.input("i32", (2,), "a ü\n\"'")
    t = b.ADD(x, b.const([1, 2], "i32", "a"), names=["b"])
    u = b.ADD(t, b.const([3, 4], "i32"), names=[""])
    b.output(b.SUB(u, y, names=["a"]), b.SUB(u, x, names=["out"]))
    graph = again(b.graph)
    assert names_of(graph.inputs) == ["b", "a ü\n\"'"]
    assert names_of(graph.outputs) == ["a", "out"]
    everything = names_of(list(graph.values()))
    assert len(set(everything)) == len(everything)
    assert "" not in everything


def test_equal_and_empty_names_of_inputs_become_different_ones() -> None:
    b = Builder("TOSA-1.0+INT")
    ins = [b.input("i32", (2,), name) for name in ("x", "x", "", "", "x_1")]
    b.output(b.ADD(ins[0], ins[1]), b.ADD(ins[2], ins[3]))
    graph = again(b.graph)
    assert names_of(graph.inputs) == ["x", "x_1", "input", "input_1", "x_1_1"]
    assert difference(b.graph, graph, names=False, top=False) == ""


def test_an_output_may_be_an_input_a_constant_or_listed_twice() -> None:
    b = Builder("TOSA-1.0+INT")
    x, k = b.input("i32", (2,), "x"), b.const([5, 6], "i32", "k")
    y = b.ADD(x, k, names=["y"])
    b.output(y, x, k, y)
    graph = again(b.graph)
    assert names_of(graph.outputs) == ["y", "x", "k", "y"]
    assert graph.outputs[0] is graph.outputs[3]
    assert graph.outputs[1] is graph.inputs[0]
    assert graph.outputs[2].is_const
    verify(graph, "TOSA-1.0+INT")
    outs = run_reference(write(graph), [np.array([1, 2], np.int32)])
    assert [o.tolist() for o in outs] == [[6, 8], [1, 2], [5, 6], [6, 8]]


LOCATIONS = [
    None,
    Loc("aten.add.Tensor"),
    Loc("aten.add.Tensor", "net.0", "a/b.py", 12),
    Loc(module="net"),
    Loc(file="x.py", line=3),
    Loc('{"node":"n"}'),
    Loc("{}"),
    Loc(),
    Loc('loc("var.mlir":5:5)'),
    Loc("ä\U0001f600\n\0"),
    Loc('{"', "ü"),
]


@pytest.mark.parametrize("loc", LOCATIONS, ids=repr)
def test_a_location_survives(loc: Loc | None) -> None:
    b = Builder("TOSA-1.0+INT")
    b.output(b.ABS(b.input("i32", (2,), "x"), loc=loc))
    (op,) = again(b.graph).ops
    assert op.loc == loc
    assert op.outs[0].loc == loc


def test_constants_are_views_of_the_bytes_and_cannot_be_written() -> None:
    b = Builder("TOSA-1.1+INT+FP+bf16+int64")
    kinds = ("i8", "i64", "i16", "i64", "i32", "f32", "bf16", "i64")
    b.output(*(b.const(np.ones((3, 5)), kind) for kind in kinds))
    data = bytearray(write(b.graph))
    whole = np.frombuffer(data, np.uint8)
    for value in read(data).outputs:
        assert value.const is not None
        array = value.const.array
        assert np.shares_memory(array, whole)
        assert (array.ctypes.data - whole.ctypes.data) % 8 == 0
        assert not array.flags.writeable


@pytest.mark.parametrize("before", range(8))
def test_a_wide_field_is_aligned(before: int) -> None:
    file = FlatbufferWriter()
    file.string("x" * before)
    data = file.finish(file.table("BQ", 1, 0x1122334455667788), b"TOSA")
    assert data.index(bytes.fromhex("8877665544332211")) % 8 == 0


def test_a_bytearray_and_a_strided_view_are_read_too() -> None:
    data = write(FIRST_ROWS["ADD"])
    doubled = bytearray(2 * len(data))
    doubled[::2] = data
    for source in (bytearray(data), memoryview(doubled)[::2]):
        assert difference(FIRST_ROWS["ADD"], read(source), names=False) == ""


def test_data_that_lie_badly_are_copied() -> None:
    b = Builder("TOSA-1.0+INT")
    b.output(b.const([1, 2, 3], "i32", "k"))
    data = np.zeros(len(write(b.graph)) + 1, np.uint8)
    data[1:] = np.frombuffer(write(b.graph), np.uint8)
    const = read(memoryview(data)[1:]).outputs[0].const
    assert const is not None
    assert const.array.flags.aligned
    assert const.array.tolist() == [1, 2, 3]


def test_a_constant_in_two_regions_is_stored_once() -> None:
    b = Builder("TOSA-1.0+INT+cf")
    x = b.input("i32", (4096,), "x")
    weights = b.const(np.arange(4096), "i32", "weights")
    regions = []
    for name in ("then", "else"):
        inner = b.child(name)
        inner.output(inner.ADD(inner.input("i32", (4096,)), weights))
        regions.append(inner.graph)
    b.output(b.COND_IF(b.const([True]), x, regions=regions, names=["y"]))
    data = write(b.graph)
    assert len(data) < 1.2 * 4 * 4096
    assert difference(b.graph, read(data), names=False) == ""


def test_a_path_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "graph.tosa"
    path.write_bytes(b"older and longer" * 1000)
    data = write(FIRST_ROWS["CONV2D"], path)
    assert path.read_bytes() == data
    assert [p.name for p in tmp_path.iterdir()] == ["graph.tosa"]
    for source in (path, str(path)):
        assert difference(FIRST_ROWS["CONV2D"], read(source), names=False) == ""


def test_a_graph_stays_what_it_was_when_its_file_is_overwritten(tmp_path: Path) -> None:
    """Had it a map of the file, one that is cut off in between would end the process."""
    b = Builder("TOSA-1.0+INT")
    b.output(b.const(np.arange(1 << 14), "i32"))
    path = tmp_path / "graph.tosa"
    size = len(write(b.graph, path))
    graph = read(path)
    with path.open("r+b") as file:
        file.write(bytes(size))
    (kept,) = graph.outputs
    assert kept.const is not None
    assert np.array_equal(kept.const.array, np.arange(1 << 14))


def test_a_link_is_followed_and_a_device_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link.tosa").symlink_to(tmp_path / "real.tosa")
    data = write(FIRST_ROWS["ADD"], tmp_path / "link.tosa")
    assert (tmp_path / "link.tosa").is_symlink()
    assert (tmp_path / "real.tosa").read_bytes() == data
    write(FIRST_ROWS["ADD"], os.devnull)
    assert Path(os.devnull).is_char_device()


def nested(depth: int) -> Graph:
    """Loops of one name inside each other, each counting."""
    b = Builder("TOSA-1.0+INT+cf+level-none")

    def level(b: Builder, x: Value, left: int) -> Value:
        x = b.ADD(x, b.const([1], "i32"))
        if left == 0:
            return x
        cond, body = b.child("loop"), b.child("loop")
        cond.output(cond.GREATER(cond.const([40], "i32"), cond.input("i32", (1,), "x")))
        body.output(level(body, body.input("i32", (1,), "x"), left - 1))
        result: Value = b.WHILE_LOOP(x, regions=(cond.graph, body.graph))
        return result

    b.output(level(b, b.input("i32", (1,), "x"), depth))
    b.graph.outputs[0].name = "y"
    return b.graph


@pytest.mark.parametrize("depth", [0, 1, 3, 256])
def test_regions_nest(depth: int) -> None:
    graph = nested(depth)
    read_graph = again(graph)
    assert difference(graph, read_graph, names=False) == ""
    verify(read_graph, "TOSA-1.0+INT+cf+level-none")


def test_regions_that_nest_too_deep_are_not_written() -> None:
    write(nested(256))
    with pytest.raises(InvalidGraph, match="^main nests regions deeper than 256$"):
        write(nested(257))


def test_regions_of_one_name_are_told_apart_by_the_reference_model() -> None:
    data = write(nested(3))
    (result,) = run_reference(data, [np.array([0], np.int32)])
    (expected,) = run_reference(write(read(data)), [np.array([0], np.int32)])
    assert result.tolist() == expected.tolist() == [40]


def stateful() -> Graph:
    b = Builder("TOSA-1.0+FP+var")
    x, kind = b.input("f32", (2,), "variable_state"), TensorType(F32, (2,))
    b.VARIABLE(name="state", type=kind, initial_value=np.array([10, 20], np.float32))
    before = b.VARIABLE_READ(name="state", out=kind, names=["before"])
    b.VARIABLE_WRITE(b.ADD(before, x), name="state")
    b.output(before, b.VARIABLE_READ(name="state", out=kind, names=["after"]))
    return b.graph


def test_variables_survive() -> None:
    b = Builder("TOSA-1.0+FP+var", stateful())
    b.VARIABLE(name="unset", type=TensorType(F32, ()))
    graph = again(b.graph)
    assert difference(b.graph, graph, names=False) == ""
    assert "initial_value" not in graph.ops[1].attrs
    verify(graph, "TOSA-1.0+FP+var")


def test_the_reference_model_runs_variables() -> None:
    outs = run_reference(write(stateful()), [np.array([1, 2], np.float32)])
    assert [o.tolist() for o in outs] == [[10, 20], [11, 22]]


def test_shapes_that_operators_compute_are_known_after_reading() -> None:
    b = Builder("TOSA-1.1+INT+shape")
    x = b.input("i32", (2, 6), "x")
    length = b.MUL_SHAPE(b.DIM(x, axis=1), b.DIM(x, axis=0))
    b.output(b.RESHAPE(x, b.CONCAT_SHAPE(b.shape((1,)), length)))
    graph = again(b.graph)
    verify(graph, "TOSA-1.1+INT+shape")
    known = [op.outs[0].const.array.tolist() for op in graph.ops[:4] if op.outs[0].const]
    assert known == [[6], [2], [12], [1, 12]]
    assert graph.version == (1, 1)
