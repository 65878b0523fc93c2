"""Tensors in the NPU's memory: two layouts, two by two tiles, any strides.

NHWC is linear. NHCWB16 keeps 16 channels of a row together: within a row there is a strip for
every 16 channels, and in a strip the 16 values of each column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tosaic.sim.ethosu.arrays import Array, DType
from tosaic.sim.ethosu.memory import Block, Memory, Span

BRICK = 16


@dataclass(frozen=True)
class FeatureMap:
    """A tensor of height, width and depth as an operation's registers describe it."""

    name: str
    region: int
    shape: tuple[int, int, int]
    dtype: DType
    brick: bool
    bases: tuple[int, int, int, int]
    tile: tuple[int, int, int]
    """Height of the left upper tile, height of the right upper one, width of the left ones."""
    strides: tuple[int, int, int]
    """In bytes: from row to row, column to column, and 16 channels to the next 16."""
    zero_point: int = 0

    @property
    def format(self) -> str:
        return "NHCWB16" if self.brick else "NHWC"

    def __str__(self) -> str:
        height, width, depth = self.shape
        size = f"{height}x{width}x{depth}"
        zero = f" zero point {self.zero_point}" if self.zero_point else ""
        bases = ", ".join(hex(part.block.start) for part in self.parts)
        return (
            f"{self.name} {self.dtype}[{size}] {self.format} region {self.region} at {bases}{zero}"
        )

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        return tuple(self._parts())

    def _parts(self) -> Iterator[Part]:
        height, width, _ = self.shape
        height0, height1, width0 = self.tile
        left, right = (0, min(width, width0)), (width0, width)
        for columns, top, bases in ((left, height0, (0, 2)), (right, height1, (1, 3))):
            for rows, base in zip(((0, min(height, top)), (top, height)), bases):
                if rows[0] < rows[1] and columns[0] < columns[1]:
                    yield self._part(rows, columns, self.bases[base])

    def _part(self, rows: tuple[int, int], columns: tuple[int, int], base: int) -> Part:
        height, width = rows[1] - rows[0], columns[1] - columns[0]
        depth, element = self.shape[2], self.dtype.itemsize
        by_row, by_column, by_brick = self.strides
        sizes: tuple[int, ...] = (height, width, depth)
        strides: tuple[int, ...] = (by_row, by_column, element)
        if self.brick:
            bricks = -(-depth // BRICK)
            sizes = (height, bricks, width, min(BRICK, depth))
            strides = (by_row, by_brick, by_column, element)
        return Part(
            slice(*rows), slice(*columns), Block(self.region, base, sizes, strides, element)
        )

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def load(self, memory: Memory) -> Array:
        """The values as an array of height, width and depth, which may be a view of memory."""
        parts = self.parts
        if len(parts) == 1:
            found = self._linear(memory.view(parts[0].block, self.dtype))
            # torch takes no array that runs backwards, not even along one element.
            return found.copy() if min(self.strides) < 0 else found
        result = np.empty(self.shape, self.dtype)
        for part in parts:
            result[part.rows, part.columns] = self._linear(memory.view(part.block, self.dtype))
        return result

    def _linear(self, found: Array) -> Array:
        if not self.brick:
            return found
        height, bricks, width, lanes = found.shape
        rows = found.transpose(0, 2, 1, 3).reshape(height, width, bricks * lanes)
        return rows[..., : self.shape[2]]

    def store(self, memory: Memory, values: Array) -> None:
        """Write values of this shape and type."""
        for part in self.parts:
            place = memory.view(part.block, self.dtype)
            given = values[part.rows, part.columns]
            if not self.brick:
                place[...] = given
                continue
            depth, lanes = self.shape[2], part.block.sizes[3]
            full = depth // lanes
            cut = given[..., : full * lanes]
            height, width = cut.shape[:2]
            place[:, :full] = cut.reshape(height, width, full, lanes).transpose(0, 2, 1, 3)
            if depth % lanes:
                place[:, full, :, : depth % lanes] = given[..., full * lanes :]

    def note_read(self, memory: Memory) -> None:
        self._check(memory, write=False)
        for block in self.exact:
            memory.read(block, self.name)

    def note_write(self, memory: Memory) -> None:
        self._check(memory, write=True)
        for block in self.exact:
            memory.write(block, self.name)

    def _check(self, memory: Memory, write: bool) -> None:
        for part in self.parts:
            if self.brick:
                part.block.align(BRICK, self.name)
            memory.check(part.block, self.name, write)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        return tuple(part.block.span for part in self.parts)

    @cached_property
    def exact(self) -> tuple[Block, ...]:
        """The bytes of the values themselves: lanes beyond the depth of a last brick are none."""
        return tuple(self._exact())

    def _exact(self) -> Iterator[Block]:
        rest = self.shape[2] % BRICK
        for part in self.parts:
            block = part.block
            if not self.brick or self.shape[2] < BRICK or not rest:
                yield block
                continue
            height, bricks, width, lanes = block.sizes
            by_row, by_brick, by_column, element = block.strides
            yield replace(block, sizes=(height, bricks - 1, width, lanes))
            start = block.start + (bricks - 1) * by_brick
            strides = (by_row, by_column, element)
            yield Block(block.region, start, (height, width, rest), strides, element)


@dataclass(frozen=True, slots=True)
class Part:
    """The rows and columns of one tile, and where they lie."""

    rows: slice
    columns: slice
    block: Block
