"""Reads ExecuTorch's file of a program without ExecuTorch, whose own reader takes seconds to load.

Written from the schema ``program.fbs``, identifier ET12. No number of the file is trusted; what is
damaged raises InvalidGraph.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tosaic.errors import InvalidGraph
from tosaic.files.flatbuffer.reader import FlatbufferReader, Table

_EXTENSION = struct.Struct("<4sIQQ")  # behind the identifier: magic, size, program, segments
_NULL, _INT, _BOOL, _DOUBLE, _TENSOR, _STRING, _INTS, _DOUBLES, _BOOLS, _TENSORS, _OPTIONAL = range(
    1, 12
)  # KernelTypes
KERNEL, DELEGATE, MOVE, JUMP_FALSE, FREE = range(1, 6)  # InstructionArguments
_INLINE, _EXTERNAL = 0, 1


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor. ``memory`` is the arena that is planned for it and the offset there.

    ``data`` is what it holds before the first run; ``outside`` names it in another file.
    """

    scalar_type: int
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    storage_offset: int
    memory: tuple[int, int] | None
    data: bytes | None
    outside: str | None


@dataclass(frozen=True, slots=True)
class Items:
    """A list by the indices of its values; a negative one is None."""

    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Instruction:
    """``first`` and ``second`` are the numbers that an instruction of its kind has."""

    kind: int
    first: int
    second: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A method of a program. Inputs and outputs are indices of values, and have a structure."""

    name: str
    structures: tuple[str, str]
    values: tuple[Any, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    chains: tuple[tuple[Instruction, ...], ...]
    operators: tuple[tuple[str, str], ...]
    delegates: tuple[tuple[str, bytes], ...]
    arenas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """Methods by name, and data by key."""

    plans: dict[str, Plan]
    named: dict[str, bytes]


def read_program(data: bytes) -> ProgramFile:
    """The program in a ``.pte``."""
    return _File(data).read()


class _File:
    def __init__(self, data: bytes) -> None:
        size, base = len(data), 0
        if len(data) >= 8 + _EXTENSION.size and data[8:10] == b"eh":
            _, _, size, base = _EXTENSION.unpack_from(data, 8)
        if size > len(data) or base > len(data):
            raise InvalidGraph("the program or its segments would lie outside of the file")
        whole = memoryview(data)
        self.root = FlatbufferReader(whole[:size], exact=False).root()
        places = self.root.tables(4, "segments", "segment") if base else ()
        self.segments = [_cut(whole[base:], s.u64(0), s.u64(1)) for s in places]
        self.inline = [
            t.data(0, "a constant") for t in self.root.tables(2, "constants", "constant")
        ]
        self.constants = self._parts(self.root.table(5, "the constants"))
        states = self.root.tables(6, "initial values", "initial values")
        self.states = self._parts(next(states, None))
        self.blobs = [*self.root.tables(3, "delegates' data", "data")]

    def read(self) -> ProgramFile:
        plans = [self._plan(t) for t in self.root.tables(1, "methods", "method")]
        named = {
            entry.string(0, "a key"): bytes(self._segment(entry.u32(1)))
            for entry in self.root.tables(7, "names", "name")
        }
        return ProgramFile({plan.name: plan for plan in plans}, named)

    def _segment(self, index: int) -> memoryview:
        if index >= len(self.segments):
            raise InvalidGraph(f"there is no segment {index}, but {len(self.segments)}")
        return self.segments[index]

    def _parts(self, table: Table | None) -> list[memoryview]:
        """A segment in parts that begin at the offsets of a table; none if it is not there."""
        if table is None or not self.segments or not (starts := table.longs(1, "offsets")):
            return []
        whole = self._segment(table.u32(0))
        ends = [*starts[1:], len(whole)]
        return [_cut(whole, low, high - low) for low, high in zip(starts, ends)]

    def _plan(self, table: Table) -> Plan:
        structures = table.table(1, "a structure")
        return Plan(
            table.string(0, "a name"),
            ("", "") if structures is None else
            (structures.string(0, "a structure"), structures.string(1, "a structure")),
            tuple(self._value(v) for v in table.tables(2, "values", "value")),
            table.ints(3, "inputs"),
            table.ints(4, "outputs"),
            tuple(tuple(_instructions(c)) for c in table.tables(5, "chains", "chain")),
            tuple(
                (o.string(0, "an operator"), o.string(1, "an overload"))
                for o in table.tables(6, "operators", "operator")
            ),
            tuple(
                (d.string(0, "a backend"), self._blob(d.table(1, "a delegate's data")))
                for d in table.tables(7, "delegates", "delegate")
            ),
            table.longs(8, "sizes of memory"),
        )  # fmt: skip

    def _blob(self, place: Table | None) -> bytes:
        if place is None:
            return b""
        index = place.u32(1)
        if place.u8(0) != _INLINE:
            return bytes(self._segment(index))
        return bytes(_at(self.blobs, index).data(0, "data"))

    def _value(self, entry: Table) -> Any:
        kind, held = entry.u8(0), entry.table(1, "a value")
        if held is None or kind == _NULL:
            return None
        if kind == _INT:
            return held.i64(0)
        if kind == _BOOL:
            return held.flag(0)
        if kind == _DOUBLE:
            return held.f64(0)
        if kind == _STRING:
            return held.string(0, "a text")
        if kind == _TENSOR:
            return self._tensor(held)
        if kind == _INTS:
            return Items(held.longs(0, "a list"))
        if kind in (_TENSORS, _OPTIONAL):
            return Items(held.ints(0, "a list"))
        if kind == _DOUBLES:
            return list(held.doubles(0, "a list"))
        if kind == _BOOLS:
            return [bool(n) for n in held.data(0, "a list")]
        raise InvalidGraph(f"the program has a value of kind {kind}, which is unknown")

    def _tensor(self, held: Table) -> TensorEntry:
        index, place, extra = held.u32(5), held.table(6, "a place"), held.table(9, "a tensor")
        is_outside = extra is not None and extra.u8(2) == _EXTERNAL
        memory = None if place is None else (place.u32(0), place.u32(1) | place.u32(2) << 32)
        data: bytes | None = None
        if index and not is_outside:
            held_in: Sequence[bytes | memoryview] = (
                self.states if memory is not None else self.constants or self.inline
            )
            data = bytes(_at(held_in, index))
        return TensorEntry(
            held.u8(0), held.ints(2, "sizes"), tuple(held.data(3, "an order")), held.i32(1),
            memory, data, extra.string(1, "a name") if is_outside and extra is not None else None,
        )  # fmt: skip


def _instructions(chain: Table) -> Iterator[Instruction]:
    for entry in chain.tables(2, "instructions", "instruction"):
        kind, held = entry.u8(0), entry.table(1, "an instruction")
        if held is None or not KERNEL <= kind <= FREE:
            raise InvalidGraph(f"the program has an instruction {kind}, which is unknown")
        args = held.ints(1, "arguments") if kind in (KERNEL, DELEGATE) else ()
        second = held.i32(1) if kind in (MOVE, JUMP_FALSE) else 0
        yield Instruction(kind, held.i32(0), second, args)


def _at(items: Sequence[Any], index: int) -> Any:
    if index >= len(items):
        raise InvalidGraph(f"data {index} is asked for, and there are {len(items)}")
    return items[index]


def _cut(whole: memoryview, start: int, size: int) -> memoryview:
    if start < 0 or size < 0 or start + size > len(whole):
        raise InvalidGraph("a segment would lie outside of the file")
    return whole[start : start + size]
