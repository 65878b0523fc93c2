"""The container of a ``.vgf`` file: modules, resources, the sequence of segments, constants.

A file is a header of 128 bytes and four sections: three flatbuffers and a table of raw constants.
Nothing of it is trusted: offsets, sizes and indices are checked before anything is read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tosaic.errors import InvalidGraph
from tosaic.files.flatbuffer.reader import FlatbufferReader, Table
from tosaic.files.flatbuffer.writer import FlatbufferWriter

MAGIC = b"VGF1"
HEADER_SIZE = 128
GRAPH, COMPUTE = 1, 0  # kinds of modules
INPUT, OUTPUT, INTERMEDIATE, CONSTANT = range(4)  # categories of resources
TENSOR_DESCRIPTOR = 1000460000  # VK_DESCRIPTOR_TYPE_TENSOR_ARM
BUFFER_DESCRIPTOR = 7  # VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
LANGUAGES = ("", "SPIR-V", "GLSL", "HLSL")
_HEADER = struct.Struct("<4sHHBBBx4x8Q")
_CONSTANTS = struct.Struct("<8sQ")
_CONSTANT = struct.Struct("<IiQQ")
_CONSTANTS_MAGIC = b"CONST00\0"
_MOST_AXES = 32
_UNSET = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Module:
    """Code of one kind; ``code`` is SPIR-V words as bytes, or source text in UTF-8."""

    kind: int
    name: str
    entry: str
    language: str
    code: bytes


@dataclass(frozen=True, slots=True)
class Resource:
    """A tensor, or a buffer, that segments read and write."""

    category: int
    descriptor: int
    format: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """A resource at a binding."""

    binding: int
    resource: int


@dataclass(frozen=True, slots=True)
class Segment:
    """One dispatch: a module with its resources; ``constants`` are by the graph's own numbers."""

    kind: int
    name: str
    module: int
    sets: tuple[tuple[int, tuple[Slot, ...]], ...]
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    constants: tuple[tuple[int, int], ...]
    dispatch: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Dispatches:
    """The segments in their order, and the boundary of all of them with its names."""

    segments: tuple[Segment, ...]
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConstantData:
    """Bytes of a constant; ``sparsity`` is the axis of its 2:4 pattern, or -1."""

    resource: int
    sparsity: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class Container:
    """What a file holds, section by section."""

    version: tuple[int, int, int]
    modules: tuple[Module, ...]
    resources: tuple[Resource, ...]
    sequence: Dispatches
    constants: tuple[ConstantData, ...]
    buffer: memoryview
    extents: tuple[tuple[int, int], ...]  # of modules, sequence, resources, constants


def read_container(buffer: memoryview) -> Container:
    """The parts of a file; InvalidGraph says what is wrong with it."""
    if len(buffer) < HEADER_SIZE or bytes(buffer[:4]) != MAGIC:
        raise InvalidGraph("this is no .vgf file: it does not begin with VGF1 and a header")
    _, _, _, major, minor, patch, *numbers = _HEADER.unpack_from(buffer)
    version = (major, minor, patch)
    if major != 0:
        raise InvalidGraph(f"the file is VGF {major}.{minor}.{patch}; Tosaic reads 0.x")
    extents = tuple(zip(numbers[::2], numbers[1::2]))
    for (start, size), what in zip(extents, ("modules", "sequence", "resources", "constants")):
        if start < HEADER_SIZE or start + size > len(buffer):
            raise InvalidGraph(f"the file is truncated or damaged: its {what} lie outside of it")
    parts = [buffer[start : start + size] for start, size in extents]
    modules = tuple(_module(t) for t in _rows(parts[0], "module"))
    resources = tuple(_resource(t) for t in _rows(parts[2], "resource"))
    constants = tuple(_constants(parts[3]))
    sequence = _sequence(_root(parts[1], "the sequence"))
    made = Container(version, modules, resources, sequence, constants, buffer, extents)
    _check(made)
    return made


def _root(part: memoryview, what: str) -> Table:
    if len(part) < 8:
        raise InvalidGraph(f"the file is truncated or damaged: {what} is empty")
    return FlatbufferReader(part).root()


def _rows(part: memoryview, what: str) -> list[Table]:
    return list(_root(part, f"the table of {what}s").tables(0, f"the {what}s", what))


def _module(table: Table) -> Module:
    kind, language = table.u8(0), table.u8(3)
    if kind not in (GRAPH, COMPUTE) or language >= len(LANGUAGES):
        raise InvalidGraph(f"the file is damaged: {table.what} is of kind {kind}, {language}")
    code = b""
    held = table.table(4, f"the code of {table.what}") if language else None
    if held is not None and language == 1:
        words = held.ints(0, f"the code of {table.what}")
        code = struct.pack(f"<{len(words)}i", *words)
    elif held is not None:
        code = held.string(0, f"the code of {table.what}").encode()
    name = table.string(1, f"the name of {table.what}")
    entry = table.string(2, f"the entry point of {table.what}")
    return Module(kind, name, entry, LANGUAGES[language], code)


def _resource(table: Table) -> Resource:
    description = table.table(3, f"the description of {table.what}")
    shape = () if description is None else description.longs(0, f"the shape of {table.what}")
    if len(shape) > _MOST_AXES:
        raise InvalidGraph(f"{table.what} has {len(shape)} axes; TOSA has {_MOST_AXES} at most")
    category = table.u8(2)
    if category > CONSTANT:
        raise InvalidGraph(f"the file is damaged: {table.what} is of category {category}")
    return Resource(category, table.u32(0), table.u32(1), shape)


def _slots(table: Table, field: int, what: str) -> tuple[Slot, ...]:
    return tuple(Slot(t.u32(0), t.u32(1)) for t in table.tables(field, what, "slot"))


def _sequence(root: Table) -> Dispatches:
    return Dispatches(
        tuple(_segment(t) for t in root.tables(0, "the segments", "segment")),
        _slots(root, 1, "the inputs"),
        _slots(root, 2, "the outputs"),
        tuple(root.strings(3, "the names of inputs")),
        tuple(root.strings(4, "the names of outputs")),
    )


def _segment(table: Table) -> Segment:
    what = table.what
    sets = []
    for number, each in enumerate(table.tables(3, f"the sets of {what}", "set")):
        index = each.i32(1, -1) & _UNSET
        sets.append((number if index == _UNSET else index, _slots(each, 0, "the bindings")))
    bound = tuple(
        (t.u32(0), t.u32(1)) for t in table.tables(9, f"the constants of {what}", "constant")
    )
    listed = tuple(enumerate(table.ints(6, f"the constants of {what}")))
    return Segment(
        table.u8(0), table.string(1, f"the name of {what}"), table.u32(2), tuple(sets),
        _slots(table, 4, f"the inputs of {what}"), _slots(table, 5, f"the outputs of {what}"),
        bound or listed, tuple(n & _UNSET for n in table.ints(7, f"the dispatch of {what}")),
        tuple((t.u32(0), t.u32(1), t.u32(2))
              for t in table.tables(8, f"the push constants of {what}", "range")),
    )  # fmt: skip


def _constants(part: memoryview) -> list[ConstantData]:
    if not len(part):
        return []
    if len(part) < _CONSTANTS.size or bytes(part[:8]) != _CONSTANTS_MAGIC:
        raise InvalidGraph("the file's constants are of an older form: convert the model again")
    _, count = _CONSTANTS.unpack_from(part)
    start = _CONSTANTS.size + _CONSTANT.size * count
    if start > len(part):
        raise InvalidGraph("the file is truncated or damaged: its constants would lie outside")
    found = []
    for number in range(count):
        row = _CONSTANT.unpack_from(part, _CONSTANTS.size + _CONSTANT.size * number)
        resource, sparsity, size, offset = row
        if start + offset + size > len(part):
            raise InvalidGraph(f"the file is truncated or damaged: constant {number} lies outside")
        found.append(ConstantData(resource, sparsity, part[start + offset :][:size]))
    return found


def _check(made: Container) -> None:
    """Indices of one section into another."""
    sequence, count = made.sequence, len(made.resources)
    slots = [*sequence.inputs, *sequence.outputs]
    for segment in sequence.segments:
        if segment.module >= len(made.modules):
            raise InvalidGraph(f"segment {segment.name!r} names a module that the file lacks")
        slots += [*segment.inputs, *segment.outputs]
        slots += [slot for _, held in segment.sets for slot in held]
        if any(constant >= len(made.constants) for _, constant in segment.constants):
            raise InvalidGraph(f"segment {segment.name!r} names a constant that the file lacks")
    if any(slot.resource >= count for slot in slots):
        raise InvalidGraph(f"the file names a resource beyond the {count} that it has")
    if any(constant.resource >= count for constant in made.constants):
        raise InvalidGraph(f"a constant names a resource beyond the {count} that the file has")


def with_names(data: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """A file whose inputs and outputs have these names; the other sections stay as they are."""
    held = read_container(memoryview(data))
    named = replace(held.sequence, input_names=tuple(inputs), output_names=tuple(outputs))
    parts = [bytes(held.buffer[start : start + size]) for start, size in held.extents]
    parts[1] = _sequence_bytes(named)
    body, extents = b"", []
    for part in parts:
        body += bytes(-len(body) % 16)
        extents += [HEADER_SIZE + len(body), len(part)]
        body += part
    header = bytearray(held.buffer[:HEADER_SIZE])
    struct.pack_into("<8Q", header, 16, *extents)
    return bytes(header) + body


def _sequence_bytes(sequence: Dispatches) -> bytes:
    file = FlatbufferWriter()

    def slots(found: Sequence[Slot]) -> int:
        return file.offsets([file.table("II", s.binding, s.resource) for s in found])

    def segment(s: Segment) -> int:
        sets = [file.table("oI", slots(held), index) for index, held in s.sets]
        ranges = [file.table("III", *each) for each in s.ranges]
        bound = [file.table("II", *pair) for pair in s.constants]
        return file.table(
            "BoIooooooo", s.kind, file.string(s.name), s.module, file.offsets(sets),
            slots(s.inputs), slots(s.outputs), file.ints(tuple(c for _, c in s.constants)),
            file.ints(s.dispatch), file.offsets(ranges), file.offsets(bound),
        )  # fmt: skip

    def names(found: Sequence[str]) -> int:
        return file.offsets([file.string(name) for name in found])

    root = file.table(
        "ooooo", file.offsets([segment(s) for s in sequence.segments]), slots(sequence.inputs),
        slots(sequence.outputs), names(sequence.input_names), names(sequence.output_names),
    )  # fmt: skip
    return file.finish(root, bytes(4))
