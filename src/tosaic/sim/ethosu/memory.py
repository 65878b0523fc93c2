"""The NPU's memory, and what watches it: bounds, alignment, unwritten bytes, DMA under way.

A region is an array of bytes with a shadow that tells which of them were written. Tensors reach it
through strided views: no byte is touched in a Python loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from tosaic.errors import InvalidInput
from tosaic.sim.ethosu.arrays import Array, DType

Bytes = NDArray[np.uint8]

_OVERLAP = 64
"""How often strides may lead to the same byte on the average, before they are taken for wrong."""

INTERNAL = -1
"""The number of the region inside the NPU that holds lookup tables."""


class Sanitizer(InvalidInput):
    """A command does what no correct stream does; the place names the command."""


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes from ``start`` up to ``stop`` of a region."""

    region: int
    start: int
    stop: int

    def overlaps(self, other: Span) -> bool:
        same = self.region == other.region
        return same and self.start < other.stop and other.start < self.stop

    def __str__(self) -> str:
        return f"[{self.start:#x}, {self.stop:#x}) of {region_name(self.region)}"


def region_name(region: int) -> str:
    return "the NPU's internal memory" if region == INTERNAL else f"region {region}"


@dataclass(frozen=True)
class Block:
    """A strided block of elements: where it starts, its sizes and its strides in bytes."""

    region: int
    start: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    element: int

    @cached_property
    def span(self) -> Span:
        low = high = self.start
        for size, stride in zip(self.sizes, self.strides):
            if stride > 0:
                high += (size - 1) * stride
            else:
                low += (size - 1) * stride
        return Span(self.region, low, high + self.element)

    @cached_property
    def bytes(self) -> int:
        return prod(self.sizes) * self.element

    @cached_property
    def is_aligned(self) -> bool:
        """Do all elements start at a multiple of their size?"""
        return not any(n % self.element for n in (self.start, *self.strides))

    @cached_property
    def merged(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Bytes that lie together, and sizes and strides of what is outside of them."""
        run, outer = self.element, list[tuple[int, int]]()
        for size, stride in zip(reversed(self.sizes), reversed(self.strides)):
            if size == 1:
                continue
            if not outer and stride == run:
                run *= size
            elif outer and stride == outer[0][0] * outer[0][1]:
                outer[0] = (size * outer[0][0], outer[0][1])
            else:
                outer.insert(0, (size, stride))
        return run, tuple(outer)

    def align(self, size: int, what: str) -> None:
        """The NPU takes some things from multiples of 16 bytes only."""
        if self.start % size:
            raise Sanitizer(f"{what} at {self.span} does not start at a multiple of {size} bytes")


@dataclass(frozen=True, slots=True)
class Access:
    """The bytes that an operation reads and writes."""

    reads: tuple[Span, ...]
    writes: tuple[Span, ...]

    @property
    def all(self) -> tuple[Span, ...]:
        return self.reads + self.writes


class Region:
    """Bytes with a shadow; ``constant`` ones are written from the start and never again."""

    def __init__(self, size: int, data: bytes | None = None) -> None:
        self.size = size
        self.constant = data is not None
        padded = -(-size // 16) * 16
        self.data: Bytes = np.zeros(padded, np.uint8)
        if data is not None:
            self.data[: len(data)] = np.frombuffer(data, np.uint8)
        # Zeros are free until they are touched; a damaged size may be a large one.
        self.written: NDArray[np.bool_] = np.zeros(0 if self.constant else padded, np.bool_)

    @classmethod
    def at(cls, place: Bytes, written: NDArray[np.bool_] | None) -> Region:
        """A region that lies in memory of somebody else's; constants have no shadow."""
        made = cls(0, b"" if written is None else None)
        made.size, made.data = len(place), place
        made.written = made.written if written is None else written
        return made


@dataclass(slots=True)
class Memory:
    """All regions of one run, and the transfers under way."""

    regions: dict[int, Region]
    transfers: deque[Span] = field(default_factory=deque)
    """What DMA commands write that no DMA_WAIT has covered, the oldest first."""
    kernels: deque[Access] = field(default_factory=deque)
    """What other operations touch that no KERNEL_WAIT has covered."""
    watching: bool = True
    """Are accesses to be checked? Not again for a run that is known to be like one before."""

    def view(self, block: Block, dtype: DType) -> Array:
        """The elements of a block, in place; its bounds must have been checked."""
        data = self.regions[block.region].data
        return np.ndarray(block.sizes, dtype, data, block.start, block.strides)

    def check(self, block: Block, what: str, write: bool = False) -> None:
        """Is the block inside its region, aligned, and (to be read) written before?"""
        region = self.regions.get(block.region)
        span = block.span
        if region is None:
            raise Sanitizer(f"{what} lies in region {block.region}, which does not exist")
        if span.stop > region.size or span.start < 0:
            raise Sanitizer(f"{what} takes {span}, which has {region.size:#x} bytes")
        if block.bytes > _OVERLAP * region.size:
            raise Sanitizer(f"{what} has {block.bytes} bytes, and all of them are {span}")
        if not block.is_aligned:
            raise Sanitizer(f"{what} at {span} is not aligned to its {block.element} byte elements")
        if write and region.constant:
            raise Sanitizer(f"{what} would overwrite constants at {span}")

    def is_constant(self, blocks: Iterable[Block]) -> bool:
        return all(self.regions[block.region].constant for block in blocks)

    def read(self, block: Block, what: str) -> None:
        """Note that an operation reads a block."""
        self.check(block, what)
        if not self.regions[block.region].constant and not self.shadow(block).all():
            raise Sanitizer(f"{what} reads bytes of {block.span} that nothing has written")
        for span in self.transfers:
            if span.overlaps(block.span):
                raise Sanitizer(f"{what} reads {block.span} while a DMA to {span} is under way")

    def copy(self, source: Block, target: Block) -> None:
        """Note a DMA: bytes that nothing has written may be moved, not used.

        Where one side has places to choose from, all of the source must have been written, and
        of the target only what the run then marks is.
        """
        self.check(source, "the DMA's source")
        self.check(target, "the DMA's target", write=True)
        found = self.shadow(source)
        if not found.any():
            raise Sanitizer(f"the DMA's source {source.span} is nothing that was written")
        if source.sizes == target.sizes:
            self.shadow(target)[...] = found.copy()
        elif not found.all():
            raise Sanitizer(f"the DMA's source {source.span} was not wholly written")
        for access in self.kernels:
            for side, spans in ((source.span, access.writes), (target.span, access.all)):
                for span in spans:
                    if side.overlaps(span):
                        raise Sanitizer(
                            f"the DMA touches {side} before the operation that uses {span} ends"
                        )
        self.transfers.append(target.span)

    def write(self, block: Block, what: str) -> None:
        """Note that an operation writes a block."""
        self.check(block, what, write=True)
        self.shadow(block)[...] = True

    def shadow(self, block: Block) -> NDArray[np.bool_]:
        region = self.regions[block.region]
        sizes, strides = (*block.sizes, block.element), (*block.strides, 1)
        if region.constant:
            return np.broadcast_to(np.True_, sizes)
        written = region.written
        return np.ndarray(sizes, np.bool_, written, block.start, strides)
