"""Damaged and hostile ``.tosa`` files: a sentence or a graph, soon, and nothing else."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from judges.crafted import Region, finish, good, one, start
from judges.instances import of_row
from judges.timing import SOON, within
from tosaic.errors import InvalidGraph
from tosaic.files.flatbuffer import read, write
from tosaic.files.flatbuffer.writer import FlatbufferWriter
from tosaic.ir import Builder, Loc, problems
from tosaic.spec import OPS, everything

MUTANTS = 10_000
PARTS = 4  # one test each, so that two processes share the work
OPERATORS = (
    "CONV2D", "CLAMP", "RESCALE", "CONCAT", "COND_IF", "WHILE_LOOP", "VARIABLE_READ", "CUSTOM",
    "CONCAT_SHAPE", "SLICE_SHAPE", "PAD", "CONST", "TRANSPOSE",
)  # fmt: skip


def deep() -> bytes:
    """Loops in loops, int4 and int48 constants, locations, a shape computed from shapes."""
    b = Builder("TOSA-1.1+INT+cf+shape+int4+int16")
    x = b.input("i32", (2, 3), "x")
    sizes = b.MUL_SHAPE(
        b.DIM(x, axis=1), b.shape((2,)), loc=Loc("aten.view", "net.head", "a.py", 3)
    )
    flag = b.const([True])
    regions = []
    for name in ("then", "else"):
        outer = b.child(name)
        y = outer.input("i32", (2, 3), "x")
        inner = [outer.child(name) for _ in range(2)]
        for child in inner:
            child.output(child.ADD(child.input("i32", (2, 3)), child.const([[1], [2]], "i32")))
        outer.output(
            outer.COND_IF(outer.const([False]), y, regions=[child.graph for child in inner])
        )
        regions.append(outer.graph)
    b.output(b.RESHAPE(b.COND_IF(flag, x, regions=regions), sizes))
    b.output(b.const(np.arange(5) - 2, "i4"), b.const([1 << 40, -1], "i48"))
    return write(b.graph)


@pytest.fixture(scope="module")
def corpus() -> list[bytes]:
    return [deep(), *(write(of_row(OPS[name], OPS[name].rows[0])) for name in OPERATORS)]


def flip(data: bytearray, draw: random.Random, other: bytes) -> bytearray:
    for _ in range(draw.randint(1, 8)):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return data


def overwrite(data: bytearray, draw: random.Random, other: bytes) -> bytearray:
    """Wrong offsets and lengths: a word becomes one that is likely to hurt."""
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(data) // 4) * 4
        word = draw.choice(
            (0, 1, 4, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, len(data), len(data) - at)
        )
        struct.pack_into("<I", data, at, (word + draw.choice((0, 0, 1, -4))) % (1 << 32))
    return data


def nudge(data: bytearray, draw: random.Random, other: bytes) -> bytearray:
    """An offset moves a little, to another part or into the middle of one."""
    at = draw.randrange(len(data) // 4) * 4
    (word,) = struct.unpack_from("<I", data, at)
    struct.pack_into("<I", data, at, (word + draw.randint(-64, 64)) % (1 << 32))
    return data


def cut(data: bytearray, draw: random.Random, other: bytes) -> bytearray:
    return data[: draw.randrange(len(data))]


def splice(data: bytearray, draw: random.Random, other: bytes) -> bytearray:
    """A stretch of another file over, or between, this one's bytes."""
    start, length = draw.randrange(len(other)), draw.randint(1, 64)
    at = draw.randrange(len(data))
    end = at + (length if draw.random() < 0.5 else 0)
    data[at:end] = other[start : start + length]
    return data


def repeat(data: bytearray, draw: random.Random, other: bytes) -> bytearray:
    """A stretch of the file over another one, so that things appear twice."""
    length = draw.choice((4, 8, 16, 32))
    source, target = (draw.randrange(0, len(data), 4) for _ in range(2))
    data[target : target + length] = data[source : source + length]
    return data


DAMAGES: tuple[Callable[[bytearray, random.Random, bytes], bytearray], ...] = (
    flip, overwrite, nudge, cut, splice, repeat,
)  # fmt: skip


@pytest.mark.parametrize("part", range(PARTS))
def test_a_mutated_file_raises_a_sentence_or_loads(corpus: list[bytes], part: int) -> None:
    draw = random.Random(f"tosa {part}")
    env = everything(level="none")
    counts: Counter[str] = Counter()
    short = longest = 0
    for number in range(MUTANTS // PARTS):
        damage = draw.choice(DAMAGES)
        data = bytes(damage(bytearray(draw.choice(corpus)), draw, draw.choice(corpus)))
        with within(SOON, (part, number, damage.__name__)):
            try:
                graph = read(data)
            except InvalidGraph as refusal:
                counts["refused"] += 1
                short += len(refusal.reason.split()) < 4
                longest = max(longest, len(refusal.reason))
            else:
                counts["loaded"] += 1
                list(problems(graph, env))
                read(write(graph))
    assert short == 0
    assert longest < 400
    assert counts["refused"] > MUTANTS // PARTS // 4
    assert counts["loaded"] > MUTANTS // PARTS // 10


def test_a_vector_that_claims_four_billion_elements_is_refused() -> None:
    data = bytearray(good())
    length = struct.pack("<I", 1)
    place = data.rindex(b"main")  # the name's length, then other vectors, lie before it
    for at in range(8, place, 4):
        if data[at : at + 4] == length:
            hostile = bytearray(data)
            hostile[at : at + 4] = b"\xff" * 4
            with pytest.raises(InvalidGraph, match="the file is|operator|tensor|region"):
                read(bytes(hostile))


def test_operators_that_share_a_long_list_cost_no_more_than_the_file() -> None:
    """Ten thousand operators with one list of a hundred thousand inputs: a billion names."""
    file = FlatbufferWriter()
    region = Region(file)
    region.tensor("x")
    names = file.offsets([file.string("x")] * 100_000)
    empty = file.offsets([])
    code = OPS["CUSTOM"].code
    attributes = file.table("ooo", file.string(""), file.string(""), None)
    region.operators = [file.table("IBooo", code, code, attributes, names, empty)] * 10_000
    data = one(region, ("x",))
    with within(SOON), pytest.raises(InvalidGraph, match="the same parts over and over"):
        read(data)


def test_constants_that_share_their_data_are_unpacked_once() -> None:
    file = FlatbufferWriter()
    region = Region(file)
    data = file.data(bytes(10_000))
    for i in range(100):
        name = file.string(f"k{i}")
        region.tensors.append(file.table("ooIo", name, file.ints((20_000,)), 2, data))
        region.op("CONST", (), (f"k{i}",))
    graph = read(one(region, (), tuple(f"k{i}" for i in range(100))))
    assert len({id(v.const) for v in graph.outputs}) == 1


def test_constants_that_unpack_the_same_data_in_many_ways_are_refused() -> None:
    file = FlatbufferWriter()
    region = Region(file)
    data = file.data(bytes(100_000))
    for i in range(20):
        name = file.string(f"k{i}")
        shape = file.ints((200_000,) + (1,) * i)
        region.tensors.append(file.table("ooIo", name, shape, 2, data))
        region.op("CONST", (), (f"k{i}",))
    with pytest.raises(InvalidGraph, match="the same parts over and over"):
        read(one(region))


def test_shapes_that_double_forever_stay_unknown() -> None:
    """CONCAT_SHAPE of a shape with itself, a hundred times: nobody computes 2^100 numbers."""
    region = start()
    region.shape("s0", 1, struct.pack("<q", 3))
    region.op("CONST_SHAPE", (), ("s0",))
    for i in range(100):
        region.shape(f"s{i + 1}", min(2 << i, 64))
        region.op("CONCAT_SHAPE", (f"s{i}", f"s{i}"), (f"s{i + 1}",))
    graph = read(finish(region.file, region.end(), version=(1, 1, 0, 1)))
    known = [op.outs[0].const for op in graph.ops]
    assert known[5] is not None
    assert known[5].array.tolist() == [3] * 64
    assert known[6] is None
    assert list(problems(graph, "TOSA-1.1+INT+shape"))


@pytest.mark.parametrize(
    "text", ['{"' + "[" * 100_000, '{"line":1e999}', '{"node":1}', "{", '{"x":1}']
)
def test_a_hostile_location_is_only_text(text: str) -> None:
    region = start()
    region.tensor("x")
    region.tensor("y")
    region.op("ABS", ("x",), ("y",), location=text)
    loc = read(one(region, ("x",))).ops[0].loc
    assert loc is not None
    assert loc.node == text


def test_operators_that_share_a_long_location_cost_no_more_than_the_file() -> None:
    file = FlatbufferWriter()
    region = Region(file)
    text = file.string('{"module":"' + "\\u00e4" * 100_000 + '"}')
    place = file.table("o", text)
    code = OPS["CUSTOM"].code
    attributes = file.table("ooo", file.string(""), file.string(""), None)
    for _ in range(2000):
        region.operators.append(file.table("IBoooo", code, code, attributes, None, None, place))
    data = one(region)
    with within(SOON):
        graph = read(data)
    assert graph.ops[-1].loc == Loc(module="ä" * 100_000)


def test_a_shape_made_of_an_unknown_one_is_unknown() -> None:
    region = start()
    for name, sizes in (("a", (3,)), ("b", (4, 5))):
        region.shape(name, len(sizes), struct.pack(f"<{len(sizes)}q", *sizes))
        region.op("CONST_SHAPE", (), (name,))
    region.shape("c", 1)
    region.op("ADD_SHAPE", ("a", "b"), ("c",))
    region.shape("d", 2)
    region.op("CONCAT_SHAPE", ("a", "c"), ("d",))
    graph = read(finish(region.file, region.end(), version=(1, 1, 0, 1)))
    assert [op.outs[0].const for op in graph.ops] == [None, None]
