"""Files that break one rule each: every refusal has its sentence."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from judges.crafted import I32, SHAPE, Region, finish, good, one, start
from judges.timing import SOON, within
from tosaic.errors import InvalidGraph
from tosaic.files.flatbuffer import read, write
from tosaic.files.flatbuffer.writer import FlatbufferWriter
from tosaic.ir import Builder
from tosaic.spec import OPS


def test_a_crafted_file_without_a_fault_is_read() -> None:
    graph = read(good())
    assert [op.name for op in graph.ops] == ["ADD"]


def with_tensor(**changes: Any) -> bytes:
    region = start()
    region.tensor("x", **changes)
    return one(region, ("x",), ("x",))


def with_constant(name: str = "CONST", outs: tuple[str, ...] = ("x",), **changes: Any) -> bytes:
    region = start()
    region.tensor("x", **changes)
    region.tensor("y")
    region.shape("s", 2)
    region.op(name, (), outs)
    return one(region)


def with_shape(rank: int) -> bytes:
    region = start()
    region.shape("s", rank)
    return one(region)


def with_op(name: str | int, **changes: Any) -> bytes:
    region = start()
    region.tensor("x")
    region.tensor("y")
    region.op(name, **{"ins": ("x",), "outs": ("y",), **changes})
    return one(region, ("x",))


def with_ports(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> bytes:
    region = start()
    region.tensor("x")
    region.tensor("v", variable="state")
    return one(region, inputs, outputs)


def twice(kind: str) -> bytes:
    region = start()
    region.tensor("x")
    if kind == "tensors":
        region.tensor("x")
    elif kind == "a shape":
        region.shape("x", 1)
    else:
        region.tensor("y")
        region.add("x", "x", "y")
        region.add("x", "x", "y")
    return one(region, ("x",))


def branches(*names: tuple[str, str, str], inside: str = "main") -> bytes:
    """Regions with a COND_IF each: its name, and the two that it names."""
    file = FlatbufferWriter()
    places = []
    for name, then, other in names:
        region = Region(file, name)
        region.tensor("c", (1,), 1)
        region.tensor("y")
        if then:
            regions = ("oo", (file.string(then), file.string(other)))
            region.op("COND_IF", ("c",), ("y",), regions)
        places.append(region.end(("c",), ()))
    return finish(file, *places)


def variables(second: tuple[int, ...] = (2,), access: str = "VARIABLE_READ", **op: Any) -> bytes:
    file = FlatbufferWriter()
    main, other = Region(file), Region(file, "other")
    main.tensor("v", variable="state")
    other.tensor("w", second, variable="state")
    main.tensor("x")
    main.tensor("c", (1,), 1)
    main.op("COND_IF", ("c",), (), ("oo", (file.string("other"), file.string("other"))))
    main.op(access, **op)
    return finish(file, main.end(("x", "c")), other.end())


HUGE = (1 << 31) - 1
SENTENCES: list[tuple[bytes, str]] = [
    (
        with_tensor(shape=(-1, 2)),
        "tensor 'x' has the dynamic shape [-1, 2]; TOSA 1.0 has known sizes alone",
    ),
    (
        with_tensor(shape=(3, -(1 << 31))),
        "tensor 'x' has the shape [3, -2147483648]; TOSA 1.0 has known sizes alone",
    ),
    (
        with_tensor(unranked=1),
        "tensor 'x' has no rank; Tosaic reads graphs whose shapes are all known",
    ),
    (with_tensor(shape=(1,) * 33), "tensor 'x' has rank 33; no level of TOSA allows more than 32"),
    (with_tensor(code=0), "tensor 'x' has the type number 0, which TOSA does not define"),
    (with_tensor(code=99), "tensor 'x' has the type number 99, which TOSA does not define"),
    (
        with_tensor(code=SHAPE),
        "tensor 'x' is of type shape, which belongs in the block's list of shapes",
    ),
    (
        with_tensor(code=11, scales=(7, 32)),
        "tensor 'x' has the type number 11 with scales 7, which TOSA does not define",
    ),
    (
        with_tensor(code=I32, scales=(16, 32)),
        "tensor 'x' has the type number 5 with scales 16, which TOSA does not define",
    ),
    (with_constant(data=bytes(7)), "constant 'x' of i32[2] takes 8 bytes of data; the file has 7"),
    (with_constant(data=bytes(9)), "constant 'x' of i32[2] takes 8 bytes of data; the file has 9"),
    (
        with_constant(data=bytes(8) + bytes(7) + b"x"),
        "constant 'x' of i32[2] takes 8 bytes of data; the file has 16",
    ),
    (
        with_constant(shape=(HUGE, HUGE), data=bytes(8)),
        f"constant 'x' of i32[{HUGE},{HUGE}] takes {4 * HUGE**2} bytes of data; the file has 8",
    ),
    (with_constant(), "operator 0 (CONST) defines 'x', which has no data"),
    (
        with_constant(shape=(0, HUGE, HUGE, HUGE), data=bytes(8)),
        "operator 0 (CONST) defines 'x', which has no data",
    ),
    (
        with_constant(external=(64, 1 << 40)),
        "the file is truncated or damaged: the data of tensor 0 would lie outside of it",
    ),
    (
        with_constant(outs=("x", "y"), data=bytes(8)),
        "operator 0 (CONST) must have no input and one output; it has 0 and 2",
    ),
    (
        with_constant("CONST_SHAPE", data=bytes(8)),
        "operator 0 (CONST_SHAPE) cannot define 'x' of i32[2]",
    ),
    (with_constant(outs=("s",)), "operator 0 (CONST) cannot define 's' of shape[2]"),
    (with_shape(65), "shape 's' has 65 sizes; no level of TOSA allows more than 64"),
    (
        with_constant("CONST_SHAPE", outs=("s",)),
        "constant 's' of shape[2] takes 16 bytes of data; the file has 0",
    ),
    (with_op(12345), "operator 0 has number 12345, which TOSA does not define"),
    (with_op("ABS", union=OPS["ADD"].code), "operator 0 (ABS) has the attributes of ADD"),
    (with_op("ABS", union=255), "operator 0 (ABS) has the attributes of number 255"),
    (with_op("REVERSE", union=0), "operator 0 (REVERSE) has no attributes"),
    (with_op("REVERSE", attrs=None), "operator 0 (REVERSE) has no attributes"),
    (with_op("ARGMAX"), "attribute nan_mode of operator 0 (ARGMAX) is 0, which stands for nothing"),
    (
        with_op("MAX_POOL2D", attrs=("oooI", (None, None, None, 3))),
        "attribute nan_mode of operator 0 (MAX_POOL2D) is 3, which stands for nothing",
    ),
    (
        with_op("RFFT2D", ins=("z",)),
        "operator 0 (RFFT2D) names 'z', which the region does not declare",
    ),
    (with_op("ABS", outs=("z",)), "operator 0 (ABS) names 'z', which the region does not declare"),
    (
        with_op("ABS", ins=("y",), outs=("y",)),
        "operator 0 (ABS) reads 'y', which nothing before it defines",
    ),
    (with_op("ABS", outs=("x",)), "operator 0 (ABS) defines 'x', which is defined already"),
    (
        with_op("CLAMP", ins=()),
        ("attribute min_val of operator 0 (CLAMP) has the type of the operand, and there is none"),
    ),
    (
        with_op("CLAMP"),
        "attribute min_val of operator 0 (CLAMP) takes 4 bytes for i32; the file has 0",
    ),
    (with_ports(("x", "x"), ()), "region 'main' as an input defines 'x', which is defined already"),
    (
        with_ports(("z",), ()),
        "region 'main' as an input names 'z', which the region does not declare",
    ),
    (
        with_ports((), ("x",)),
        "region 'main' as an output reads 'x', which nothing before it defines",
    ),
    (
        with_ports((), ("v",)),
        "region 'main' as an output names variable 'v' as if it were a tensor",
    ),
    (twice("tensors"), "region 'main' has two tensors named 'x'"),
    (twice("a shape"), "region 'main' has two tensors named 'x'"),
    (twice("results"), "operator 1 (ADD) defines 'y', which is defined already"),
    (
        branches(("main", "main", "main")),
        "operator 0 (COND_IF) names region 'main', of which it is a part",
    ),
    (
        branches(("main", "a", "a"), ("a", "b", "b"), ("b", "a", "a")),
        "operator 0 (COND_IF) of region 'b' names region 'a', of which it is a part",
    ),
    (
        branches(("main", "gone", "gone")),
        "operator 0 (COND_IF) names region 'gone', which the file does not have",
    ),
    (branches(("main", "", ""), ("main", "", "")), "two regions are named 'main'"),
    (
        branches(
            ("main", "r0", "r0"),
            *((f"r{i}", f"r{i + 1}", "leaf") for i in range(300)),
            ("r300", "", ""),
            ("leaf", "", ""),
        ),
        "operator 0 (COND_IF) of region 'r255' nests regions deeper than 256",
    ),
    (
        branches(
            *((f"{'main' if i == 0 else i}", str(i + 1), str(i + 1)) for i in range(40)),
            ("40", "", ""),
        ),
        (
            "the file refers to the same parts over and over: reading it "
            "would take more than 8 times its size"
        ),
    ),
    (
        variables(second=(3,), outs=("x",), ins=("v",)),
        "operator 1 (VARIABLE_READ) defines 'x', which is defined already",
    ),
    (
        variables(second=(3,), access="VARIABLE_WRITE", ins=("x",), outs=("v",)),
        "variable 'state' is i32[2] in one block, i32[3] in another",
    ),
    (
        variables(access="VARIABLE_WRITE", ins=("x",), outs=("x",)),
        "operator 1 (VARIABLE_WRITE) must name one variable; it names 1 tensors",
    ),
    (
        variables(access="VARIABLE_WRITE", ins=("x",), outs=()),
        "operator 1 (VARIABLE_WRITE) must name one variable; it names 0 tensors",
    ),
    (
        variables(access="ABS", ins=("v",), outs=("x",)),
        "operator 1 (ABS) names variable 'v' as if it were a tensor",
    ),
    (finish(FlatbufferWriter()), "the file has no region, so no graph"),
    (finish(FlatbufferWriter(), version=None), "the file names no TOSA version"),
    (
        finish(FlatbufferWriter(), version=(0, 90, 0, 0)),
        "the file is TOSA 0.90.0; Tosaic reads 1.0 and the draft of 1.1",
    ),
    (
        finish(FlatbufferWriter(), version=(1, 0, 0, 1)),
        "the file is TOSA 1.0.0 draft; Tosaic reads 1.0 and the draft of 1.1",
    ),
    (
        finish(FlatbufferWriter(), version=(1, 1, 0, 0)),
        "the file is TOSA 1.1.0; Tosaic reads 1.0 and the draft of 1.1",
    ),
    (
        finish(FlatbufferWriter(), version=(2, 0, 0, 0)),
        "the file is TOSA 2.0.0; Tosaic reads 1.0 and the draft of 1.1",
    ),
    (
        finish(FlatbufferWriter(), features=6),
        "the file needs format features 0x4, which Tosaic lacks",
    ),
]


@pytest.mark.parametrize(("data", "sentence"), SENTENCES, ids=[s[:60] for _, s in SENTENCES])
def test_a_broken_rule_has_its_sentence(data: bytes, sentence: str) -> None:
    with within(SOON), pytest.raises(InvalidGraph) as refusal:
        read(data)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("patch", [0, 1, 7])
def test_every_1_0_is_read(patch: int) -> None:
    region = start()
    assert read(finish(region.file, region.end(), version=(1, 0, patch, 0))).version == (1, 0)


def test_a_constant_may_be_said_once_for_each_channel() -> None:
    region = start()
    region.tensor("k", (2,), 3, bytes((3, 250) * 5))
    region.op("CONST", (), ("k",))
    const = read(one(region, (), ("k",))).outputs[0].const
    assert const is not None
    assert const.array.tolist() == [3, -6]


def test_any_byte_but_zero_is_true() -> None:
    region = start()
    region.tensor("k", (4,), 1, bytes((0, 1, 2, 255)))
    region.op("CONST", (), ("k",))
    const = read(one(region, (), ("k",))).outputs[0].const
    assert const is not None
    assert const.array.tobytes() == bytes((0, 1, 1, 1))


def test_two_blocks_in_a_region_are_refused() -> None:
    region = start()
    region.blocks = 2
    with pytest.raises(InvalidGraph, match="^region 'main' has 2 blocks; it must have one$"):
        read(one(region))


def root_of(data: bytes) -> int:
    return int(struct.unpack_from("<I", data)[0])


def patched(at: int, form: str, value: int) -> bytes:
    data = bytearray(good())
    struct.pack_into(form, data, at, value)
    return bytes(data)


def root_at_the_end() -> bytes:
    """A table whose layout is that of the root, with room for its first four bytes only."""
    data = good()
    layout = ROOT - struct.unpack_from("<i", data, ROOT)[0]
    return struct.pack("<I", len(data)) + data[4:] + struct.pack("<i", len(data) - layout)


ROOT = root_of(good())
DAMAGE = [
    (patched(0, "<I", 0xFFFFFFF0), "truncated or damaged: the root would lie outside of it"),
    (patched(0, "<I", len(good()) - 2), "truncated or damaged: the root would lie outside of it"),
    (patched(ROOT, "<i", 1 << 30), "damaged: the layout of the root would lie outside of it"),
    (patched(ROOT, "<i", -(1 << 31)), "damaged: the layout of the root would lie outside of it"),
    (patched(ROOT, "<i", ROOT + 1), "damaged: the layout of the root would lie outside of it"),
    (patched(ROOT, "<i", 0), "damaged: the layout of the root is impossible"),
    (root_at_the_end(), "truncated or damaged: the root would lie outside of it"),
    (good()[:-40], "would lie outside of it"),
    (good()[: ROOT + 2], "truncated or damaged: the root would lie outside of it"),
    (good()[:9], "truncated or damaged: the root would lie outside of it"),
]


@pytest.mark.parametrize(("data", "sentence"), DAMAGE)
def test_a_damaged_file_has_its_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(InvalidGraph) as refusal:
        read(data)
    assert sentence in str(refusal.value)
    assert str(refusal.value).startswith("the file is ")


def test_a_name_that_is_no_text_is_refused() -> None:
    data = good().replace(b"main", b"m\xff\xfen")
    with pytest.raises(InvalidGraph, match="damaged: the name of region 0 is no UTF-8 text"):
        read(data)


FOREIGN = [
    (b"", "this is no .tosa file: it is empty"),
    (b"PK\x03\x04" + bytes(40), "this is no .tosa file: it looks like a zip archive"),
    (b"\x08\x08\x12\x07pytorch:", "this is no .tosa file: it looks like an ONNX model"),
    (b"\x1c\0\0\0TFL3" + bytes(40), "this is no .tosa file: it looks like a TFLite model"),
    (b"\x1c\0\0\0ET12" + bytes(40), "this is no .tosa file: it looks like an ExecuTorch program"),
    (b"module {\n  func.func @main\n}", "this is no .tosa file: it looks like text"),
    ("Maß".encode() * 200, "this is no .tosa file: it looks like text"),
    (b"\x93NUMPY\x01\x00", "this is no .tosa file: it looks like a numpy array"),
    (b"\x10\0\0\0TOS", "this is no .tosa file: it does not carry the identifier TOSA"),
    (bytes(100), "this is no .tosa file: it does not carry the identifier TOSA"),
]


@pytest.mark.parametrize(("data", "sentence"), FOREIGN)
def test_a_foreign_file_is_told_from_a_broken_one(
    data: bytes, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidGraph) as refusal:
        read(data)
    assert str(refusal.value) == sentence
    path = tmp_path / "model.tosa"
    path.write_bytes(data)
    with pytest.raises(InvalidGraph) as refusal:
        read(path)
    assert str(refusal.value) == f"{path}: {sentence}"


def test_a_graph_that_reads_what_nothing_defines_is_not_written() -> None:
    b, other = Builder("TOSA-1.0+INT"), Builder("TOSA-1.0+INT")
    x, stranger = b.input("i32", (2,), "x"), other.input("i32", (2,), "stranger")
    b.output(b.ADD(x, stranger, names=["y"]))
    with pytest.raises(InvalidGraph, match="ADD y reads 'stranger', which nothing before"):
        write(b.graph)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("min_val", 300, "CLAMP: attribute min_val cannot be 300"),
        ("min_val", 1.5, "CLAMP: attribute min_val cannot be 1.5"),
        ("max_val", float("inf"), "CLAMP: attribute max_val cannot be inf"),
        ("nan_mode", "MAYBE", "CLAMP: attribute nan_mode cannot be 'MAYBE'"),
        ("nan_mode", None, "CLAMP: attribute nan_mode cannot be None"),
    ],
)
def test_an_attribute_that_no_file_holds_is_not_written(
    name: str, value: object, sentence: str
) -> None:
    b = Builder("TOSA-1.0+INT")
    b.output(b.CLAMP(b.input("i8", (2,)), min_val=-1, max_val=1))
    b.graph.ops[0].attrs = {**b.graph.ops[0].attrs, name: value}
    with pytest.raises(InvalidGraph) as refusal:
        write(b.graph)
    assert str(refusal.value) == sentence


def test_a_graph_inside_itself_is_not_written() -> None:
    b = Builder("TOSA-1.0+INT+cf")
    x = b.input("i32", (1,), "x")
    cond, body = b.child("cond"), b.child("body")
    cond.output(cond.GREATER(cond.input("i32", (1,)), cond.const([0], "i32")))
    body.output(body.ABS(body.input("i32", (1,))))
    b.output(b.WHILE_LOOP(x, regions=(cond.graph, body.graph)))
    b.graph.ops[0].regions = (cond.graph, b.graph)
    with pytest.raises(InvalidGraph, match="main nests regions deeper than 256"):
        write(b.graph)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "g.tosa"
    path.write_bytes(b"old")
    b, other = Builder("TOSA-1.0+INT"), Builder("TOSA-1.0+INT")
    b.output(other.input("i32", (2,), "stranger"))
    with pytest.raises(InvalidGraph):
        write(b.graph, path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["g.tosa"]
