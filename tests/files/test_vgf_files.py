"""``.vgf`` files: damaged ones are refused, and what they hold is what was lowered."""

import struct

import numpy as np
import pytest

import tosaic
from judges.vgf_hostile import MOST_SECONDS, files, judged
from judges.vulkan import needs_converter
from tosaic.errors import InvalidGraph
from tosaic.files import flatbuffer, vgf
from tosaic.files.vgf.container import read_container, with_names
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph
from tosaic.targets.vgf.converter import convert
from tosaic.targets.vgf.readback import difference

pytestmark = needs_converter


def test_damaged_files_are_refused_or_loaded_and_none_takes_long() -> None:
    told, longest = judged(600, seed=5)
    assert set(told) == {"loaded", "refused"}
    assert longest < MOST_SECONDS


def test_a_cut_off_file_is_refused_at_every_length() -> None:
    data = files()[0]
    for end in range(0, len(data) - 1, 97):
        with pytest.raises(InvalidGraph):
            vgf.read(data[:end])


def test_other_versions_and_shaders_get_their_sentence() -> None:
    data = bytearray(files()[0])
    data[8] = 9
    with pytest.raises(InvalidGraph, match="the file is VGF 9"):
        vgf.read(bytes(data))
    with pytest.raises(InvalidGraph, match="does not begin with VGF1"):
        vgf.read(b"VGF0" + bytes(data[4:]))
    held = read_container(memoryview(files()[0]))
    at = held.extents[0][0] + bytes(held.buffer[held.extents[0][0] :]).index(b"TOSA.001000.1")
    data = bytearray(files()[0])
    data[at : at + 13] = b"TOSA.009000.1"
    with pytest.raises(InvalidGraph, match=r"TOSA\.009000\.1.*Tosaic reads TOSA\.001000\.1"):
        vgf.read(bytes(data))


def test_names_may_be_any_text() -> None:
    names = ["an input, ünusual", "x" * 300]
    made = with_names(files()[0], names[:1], names)
    graph = vgf.read(made)
    assert [v.name for v in graph.inputs] == names[:1]
    assert [v.name for v in graph.outputs] == names
    again = with_names(made, ["input_0"], ["output_0", "output_1"])
    x = np.random.default_rng(1).integers(-128, 128, (1, 8, 8, 4)).astype(np.int8)
    for a, b in zip(tosaic.load(again).run(x), tosaic.load(files()[0]).run(x)):
        assert np.array_equal(a, b)


def _chain(factor: int = 3, swapped: bool = False, shape: tuple[int, ...] = (2, 3)) -> Graph:
    b = Builder("TOSA-1.0+INT+FP")
    x, y = b.input("i32", shape, "x"), b.input("i32", shape, "y")
    c, zero = b.const(np.full((1,) * len(shape), factor, np.int32)), b.const([0], "i8")
    added = b.SUB(y, x) if swapped else b.SUB(x, y)
    b.output(b.MUL(added, c, zero), b.ABS(x))
    return b.graph


def test_reading_back_tells_graphs_apart() -> None:
    held = vgf.read(convert(flatbuffer.write(_chain())))
    assert difference(_chain(), held) is None
    assert "does not hold MUL" in str(difference(_chain(4), held))
    assert "does not hold SUB" in str(difference(_chain(swapped=True), held))
    assert "inputs have other types" in str(difference(_chain(shape=(3, 2)), held))
    for position in (0, 1):
        other = _chain()
        other.outputs[position] = other.outputs[1 - position]
        assert difference(other, held) is not None


def test_int64_which_the_converter_makes_int32_is_noticed() -> None:
    b = Builder("TOSA-1.1+INT+int64")
    b.output(b.ADD(b.input("i64", (3,), "x"), b.input("i64", (3,), "y")))
    held = vgf.read(convert(flatbuffer.write(b.graph)))
    assert "have other types" in str(difference(b.graph, held))


def test_constants_of_a_damaged_section_are_not_read() -> None:
    data = bytearray(files()[0])
    start, _ = read_container(memoryview(files()[0])).extents[3]
    struct.pack_into("<Q", data, start + 8, 1 << 40)
    with pytest.raises(InvalidGraph, match="its constants would lie outside"):
        vgf.read(bytes(data))
