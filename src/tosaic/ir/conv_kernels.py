"""Kernels of convolutions in equal forms: space-to-depth and polyphase.

This is the arithmetic alone, of sizes and of arrays; rules and rewrites emit the operators.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tosaic.ir.graph import Array


@dataclass(frozen=True, slots=True)
class Fold:
    """``columns`` of an image as one block: the kernel is ``blocks`` wide, and moves by one.

    It gives ``results`` columns at once. Its weights begin ``lead`` columns into the first block.
    """

    columns: int
    results: int
    lead: int
    blocks: int
    before: int
    after: int

    def kernel(self, weights: Array, stride: int, fill: int) -> Array:
        """The weights [O, H, W, C] as they lie in blocks, a set for each result."""
        out, height, width, channels = weights.shape
        shape = self.results, out, height, self.blocks * self.columns, channels
        wide = np.full(shape, fill, weights.dtype)
        for index in range(self.results):
            start = self.lead + index * stride
            wide[index, :, :, start : start + width] = weights
        return wide.reshape(self.results * out, height, self.blocks, self.columns * channels)


def fold_of(
    width: int, kernel: int, stride: int, pads: tuple[int, int], results: int
) -> Fold | None:
    """How columns are folded such that a block gives so many results; None if they do not fit."""
    columns, count = results * stride, (width + sum(pads) - kernel) // stride + 1
    if width % columns or count % results:
        return None
    before = -(-pads[0] // columns)
    lead = before * columns - pads[0]
    blocks = -(-(lead + columns - stride + kernel) // columns)
    after = count // results - 1 + blocks - before - width // columns
    return None if after < 0 else Fold(columns, results, lead, blocks, before, after)


@dataclass(frozen=True, slots=True)
class Phase:
    """Results at every s-th place: elements from ``first`` to ``last`` places off, by weights.

    ``taps`` are the places of the weights in the kernel, -1 where there is none.
    """

    first: int
    last: int
    taps: tuple[int, ...]

    def pads(self, size: int, count: int) -> tuple[int, int]:
        """What is read before and after the elements, for so many results."""
        return -self.first, count + self.last - size


def phases(size: int, count: int, kernel: int, stride: int, before: int) -> list[Phase]:
    """Each phase of a transposed convolution along an axis, none of which starts inside of it."""
    found = []
    for place in range(stride):
        start = (place - before) % stride
        shift = (place - before - start) // stride
        taps = -(-(kernel - start) // stride)
        first, last = min(shift - taps + 1, 0), max(shift, size - count)
        places = [start + stride * (shift - at) for at in range(first, last + 1)]
        found.append(Phase(first, last, tuple(p if 0 <= p < kernel else -1 for p in places)))
    return found


def together(found: list[Phase]) -> list[Phase]:
    """Phases that read the same elements."""
    first, last = min(p.first for p in found), max(p.last for p in found)
    return [
        Phase(first, last, (-1,) * (p.first - first) + p.taps + (-1,) * (last - p.last))
        for p in found
    ]


def kernel_of(weights: Array, rows: Phase, columns: list[Phase], fill: int) -> Array:
    """[O, H, W, C] of a transposed convolution as [phases · O, h, w, C] of one phase of rows."""
    out, _, _, channels = weights.shape
    shape = len(columns), out, len(rows.taps), len(columns[0].taps), channels
    made = np.full(shape, fill, weights.dtype)
    for index, column in enumerate(columns):
        for y, row_tap in enumerate(rows.taps):
            for x, tap in enumerate(column.taps):
                if row_tap >= 0 and tap >= 0:
                    made[index, :, y, x] = weights[:, row_tap, tap]
    return made.reshape(len(columns) * out, *shape[2:])
