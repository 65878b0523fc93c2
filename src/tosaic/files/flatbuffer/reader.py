"""A flatbuffer reader that trusts no number of the file.

Every access is checked against the buffer, and all of them together against a budget that grows
with the file: parts that point at each other over and over cannot cost more than that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from tosaic.errors import InvalidGraph

_I32 = struct.Struct("<i").unpack_from
_U32 = struct.Struct("<I").unpack_from
_U64 = struct.Struct("<Q").unpack_from
_I64 = struct.Struct("<q").unpack_from
_F64 = struct.Struct("<d").unpack_from
_VTABLE = struct.Struct("<HH").unpack_from
_MOST_FIELDS = 14  # of TosaTensor, the widest table of the schema
_MOST_VISITS = 8  # how often a part may be read on average; each is read once in a usual file


class FlatbufferReader:
    """The buffer, what has been read of it, and how much more may be."""

    __slots__ = ("_budget", "_exact", "_ints", "_layouts", "_strings", "buffer", "size")

    def __init__(self, buffer: memoryview, exact: bool = True) -> None:
        """``exact`` is False for files of flatbuffers' Python package.

        It has tables share a layout whose fields lie at the same offsets, be they of other sizes.
        """
        self.buffer, self._exact = buffer, exact
        self.size = len(buffer)
        self._budget = _MOST_VISITS * self.size
        self._strings: dict[int, str] = {}
        self._ints: dict[int, tuple[int, ...]] = {}
        self._layouts: dict[int, tuple[int, tuple[int, ...]]] = {}

    def charge(self, cost: int) -> None:
        """Count bytes that are read or unpacked."""
        self._budget -= cost
        if self._budget < 0:
            raise InvalidGraph(
                "the file refers to the same parts over and over: "
                f"reading it would take more than {_MOST_VISITS} times its size"
            )

    def root(self) -> Table:
        return self.table(self.follow(0, "the root"), "the root")

    def follow(self, at: int, what: str) -> int:
        """The place that an offset at ``at`` points to."""
        if at + 4 > self.size:
            raise self.outside(what)
        target: int = at + _U32(self.buffer, at)[0]
        if target + 4 > self.size:
            raise self.outside(what)
        return target

    def outside(self, what: str) -> InvalidGraph:
        return InvalidGraph(f"the file is truncated or damaged: {what} would lie outside of it")

    def table(self, at: int, what: str) -> Table:
        """The table at a place that ``follow`` found."""
        place = at - _I32(self.buffer, at)[0]
        layout = self._layouts.get(place)
        if layout is None:
            layout = self._layouts[place] = self._layout(place, what)
        if at + layout[0] > self.size:
            raise self.outside(what)
        self.charge(layout[0])
        size = layout[0] if self._exact else self.size - at
        return Table(self, at, size, layout[1], what)

    def _layout(self, place: int, what: str) -> tuple[int, tuple[int, ...]]:
        """Size of a table, and where in it each field lies (0 if it is absent)."""
        if not 0 <= place <= self.size - 4:
            raise self.outside(f"the layout of {what}")
        length, size = _VTABLE(self.buffer, place)
        if length < 4 or length % 2 or size < 4 or place + length > self.size:
            raise InvalidGraph(f"the file is damaged: the layout of {what} is impossible")
        count = min(length // 2 - 2, _MOST_FIELDS)
        fields = struct.unpack_from(f"<{count}H", self.buffer, place + 4)
        return size, fields + (0,) * (_MOST_FIELDS - count)

    def string(self, at: int, what: str) -> str:
        """The string at a place that ``follow`` found; decoded once however often it is used."""
        found = self._strings.get(at)
        if found is None:
            start, length = self.extent(at, 1, what)
            self.charge(length)
            try:
                found = str(self.buffer[start : start + length], "utf-8")
            except UnicodeDecodeError:
                raise InvalidGraph(f"the file is damaged: {what} is no UTF-8 text") from None
            self._strings[at] = found
        return found

    def ints(self, at: int, what: str) -> tuple[int, ...]:
        """The vector of int32 at a place that ``follow`` found."""
        found = self._ints.get(at)
        if found is None:
            start, length = self.extent(at, 4, what)
            self.charge(4 * length)
            found = self._ints[at] = struct.unpack_from(f"<{length}i", self.buffer, start)
        return found

    def extent(self, at: int, width: int, what: str) -> tuple[int, int]:
        """Start and length of a vector of elements that are ``width`` bytes wide."""
        length: int = _U32(self.buffer, at)[0]
        if at + 4 + length * width > self.size:
            raise self.outside(what)
        return at + 4, length


class Table:
    """One table; fields go by their numbers in the schema, and may be absent."""

    __slots__ = ("_at", "_fields", "_file", "_size", "what")

    def __init__(
        self, file: FlatbufferReader, at: int, size: int, fields: tuple[int, ...], what: str
    ) -> None:
        self._file = file
        self._at = at
        self._size = size
        self._fields = fields
        self.what = what

    def _place(self, field: int, width: int) -> int:
        """Where a field lies in the buffer; 0, where no field can be, if it is absent."""
        offset = self._fields[field]
        if offset == 0:
            return 0
        if offset < 4 or offset + width > self._size:
            raise InvalidGraph(f"the file is damaged: a field lies outside of {self.what}")
        return self._at + offset

    def u8(self, field: int, default: int = 0) -> int:
        place = self._place(field, 1)
        return self._file.buffer[place] if place else default

    def flag(self, field: int, default: bool = False) -> bool:
        return self.u8(field, default) != 0

    def i32(self, field: int, default: int = 0) -> int:
        place = self._place(field, 4)
        return _I32(self._file.buffer, place)[0] if place else default

    def u32(self, field: int) -> int:
        place = self._place(field, 4)
        return _U32(self._file.buffer, place)[0] if place else 0

    def u64(self, field: int) -> int:
        place = self._place(field, 8)
        return _U64(self._file.buffer, place)[0] if place else 0

    def i64(self, field: int) -> int:
        place = self._place(field, 8)
        return _I64(self._file.buffer, place)[0] if place else 0

    def f64(self, field: int) -> float:
        place = self._place(field, 8)
        return _F64(self._file.buffer, place)[0] if place else 0.0

    def _follow(self, field: int, what: str) -> int:
        place = self._place(field, 4)
        return self._file.follow(place, what) if place else 0

    def string(self, field: int, what: str) -> str:
        """A text, empty if it is absent."""
        at = self._follow(field, what)
        return self._file.string(at, what) if at else ""

    def ints(self, field: int, what: str) -> tuple[int, ...]:
        at = self._follow(field, what)
        return self._file.ints(at, what) if at else ()

    def longs(self, field: int, what: str) -> tuple[int, ...]:
        """A vector of int64, empty if it is absent."""
        return self._wide(field, "q", what)

    def doubles(self, field: int, what: str) -> tuple[float, ...]:
        return self._wide(field, "d", what)

    def _wide(self, field: int, letter: str, what: str) -> tuple[Any, ...]:
        at = self._follow(field, what)
        if not at:
            return ()
        start, length = self._file.extent(at, 8, what)
        self._file.charge(8 * length)
        return struct.unpack_from(f"<{length}{letter}", self._file.buffer, start)

    def table(self, field: int, what: str) -> Table | None:
        at = self._follow(field, what)
        return self._file.table(at, what) if at else None

    def extent(self, field: int, what: str) -> tuple[int, int] | None:
        """Start and length of a vector of bytes."""
        at = self._follow(field, what)
        return self._file.extent(at, 1, what) if at else None

    def data(self, field: int, what: str) -> bytes:
        """A copy of a vector of bytes, empty if it is absent."""
        start, length = self.extent(field, what) or (0, 0)
        self._file.charge(length)
        return self._file.buffer[start : start + length].tobytes()

    def _targets(self, field: int, what: str) -> list[int]:
        at = self._follow(field, what)
        if not at:
            return []
        file = self._file
        start, length = file.extent(at, 4, what)
        file.charge(4 * length)
        offsets = struct.unpack_from(f"<{length}I", file.buffer, start)
        targets = [start + 4 * i + offset for i, offset in enumerate(offsets)]
        if targets and max(targets) + 4 > file.size:
            raise file.outside(f"an element of {what}")
        return targets

    def strings(self, field: int, what: str) -> list[str]:
        file = self._file
        return [file.string(at, what) for at in self._targets(field, what)]

    def tables(self, field: int, what: str, element: str) -> Iterator[Table]:
        """The tables that a vector lists; ``element`` says what one of them is."""
        file = self._file
        targets = enumerate(self._targets(field, what))
        return (file.table(at, f"{element} {number}") for number, at in targets)
