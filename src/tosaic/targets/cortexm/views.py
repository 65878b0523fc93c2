"""Views: where the elements of a tensor lie in a buffer, as an offset and a stride per axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tosaic.ir.graph import Array, Value
from tosaic.spec import dtypes as d

Kind = Literal["arena", "input", "output", "const", "state"]

C_TYPES: dict[d.DType, str] = {
    d.BOOL: "uint8_t", d.I4: "int8_t", d.I8: "int8_t", d.I16: "int16_t", d.I32: "int32_t",
    d.I48: "int64_t", d.I64: "int64_t", d.F32: "float",
}  # fmt: skip
SIZES = {"uint8_t": 1, "int8_t": 1, "int16_t": 2, "int32_t": 4, "int64_t": 8, "float": 4}


@dataclass(slots=True, eq=False)
class Buffer:
    """Memory of one tensor: in the arena, the caller's, or a constant in flash.

    ``number`` is that of an input, output or state, ``value`` the tensor that it is made for.
    """

    ctype: str
    count: int
    kind: Kind = "arena"
    number: int = 0
    data: bytes = b""
    value: Value | None = None

    @property
    def size(self) -> int:
        return self.count * SIZES[self.ctype]


@dataclass(frozen=True, slots=True)
class View:
    """Elements of a buffer in the order of a shape."""

    buffer: Buffer
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_contiguous(self) -> bool:
        return _same(self.shape, self.strides, row_major(self.shape))

    @property
    def is_whole(self) -> bool:
        """Whether the view has all elements of its buffer in their order."""
        return self.is_contiguous and not self.offset and math.prod(self.shape) == self.buffer.count


def _same(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    return all(n == 1 or x == y for n, x, y in zip(shape, a, b, strict=True))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def whole(buffer: Buffer, shape: Sequence[int]) -> View:
    return View(buffer, 0, tuple(shape), row_major(shape))


def constant(array: Array, ctype: str) -> Buffer:
    """A constant in flash."""
    return Buffer(ctype, array.size, "const", data=array.tobytes())


def broadcast(view: View, shape: Sequence[int]) -> View:
    """The view with axes of length 1 repeated, and new ones in front."""
    more = len(shape) - len(view.shape)
    strides = [0] * more + [0 if n == 1 else stride for n, stride in zip(view.shape, view.strides)]
    return View(view.buffer, view.offset, tuple(shape), tuple(strides))


def transposed(view: View, perms: Sequence[int]) -> View:
    shape = tuple(view.shape[p] for p in perms)
    return replace(view, shape=shape, strides=tuple(view.strides[p] for p in perms))


def sliced(view: View, start: Sequence[int], size: Sequence[int]) -> View:
    offset = view.offset + sum(s * stride for s, stride in zip(start, view.strides))
    return replace(view, offset=offset, shape=tuple(size))


def reversed_(view: View, axis: int) -> View:
    strides = list(view.strides)
    offset = view.offset + (view.shape[axis] - 1) * strides[axis]
    strides[axis] = -strides[axis]
    return replace(view, offset=offset, strides=tuple(strides))


def reshaped(view: View, shape: Sequence[int]) -> View | None:
    """The view in another shape; None where its elements would have to be copied."""
    old = [(n, s) for n, s in zip(view.shape, view.strides) if n != 1]
    strides: list[int] = []
    place = 0
    for length in shape:
        if length == 1:
            strides.append(0)
            continue
        if place >= len(old) or old[place][0] % length:
            merged = _merged(old, place, length)
            if merged is None:
                return None
            old = merged
        n, s = old[place]
        strides.append(s * (n // length))
        if n == length:
            place += 1
        else:
            old[place] = (n // length, s)
    return View(view.buffer, view.offset, tuple(shape), tuple(strides))


def _merged(old: list[tuple[int, int]], place: int, length: int) -> list[tuple[int, int]] | None:
    """Axes from a place on with as many merged as a length needs; None if they do not merge."""
    old = list(old)
    while place < len(old) and old[place][0] % length:
        if place + 1 >= len(old):
            return None
        (n, s), (m, t) = old[place], old[place + 1]
        if s != t * m:
            return None
        old[place : place + 2] = [(n * m, t)]
    return old if place < len(old) else None
