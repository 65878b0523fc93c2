"""tril, triu and one_hot: constant masks over matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule, shared
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives import mask as masks
from tosaic.lowering.alternatives.data_movement import expanded, take, tiled
from tosaic.lowering.builder import Lowering
from tosaic.rules._indices import countable, counted, known, small_compared
from tosaic.rules._sums import zero_point
from tosaic.rules.compare import where
from tosaic.spec import dtypes as d

_SAMPLES = [
    Sample(((4, 5),)),
    Sample(((2, 5, 4),), (1,)),
    Sample(((6, 6),), (-2,)),
    Sample(((5, 5),), kinds=("bool",)),
]


def _masked(b: Lowering, x: Value, mask: np.ndarray[Any, Any]) -> Value:
    """Zeros where a constant mask says no."""
    kept = b.const(mask, d.BOOL)
    if masks.is_mask(x):
        return masks.both(b, x, kept)
    if x.quant is None and not x.dtype.is_float:
        left, right = b.same_rank(x, b.const(mask, x.dtype))
        return b.mul(left, right)
    return where(b, kept, x, 0.0)


@shared("aten.triu.default", samples=_SAMPLES)
def triu(b: Lowering, self: Value, diagonal: int = 0) -> Value:
    return _masked(b, self, np.triu(np.ones(self.shape[-2:], bool), diagonal))


@shared("aten.tril.default", samples=_SAMPLES)
def tril(b: Lowering, self: Value, diagonal: int = 0) -> Value:
    return _masked(b, self, np.tril(np.ones(self.shape[-2:], bool), diagonal))


@shared(
    "aten.diagonal.default",
    samples=[Sample(((4, 4),)), Sample(((3, 5, 4),), (1, 0, 1)), Sample(((2, 4, 6),), (-2, -1, 1))],
)
def diagonal(b: Lowering, self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Every (columns + 1)-th element of a matrix written row by row."""
    first, second = (dim1 % self.type.rank, dim2 % self.type.rank)
    rest = [i for i in range(self.type.rank) if i not in (first, second)]
    x = b.permute(self, [*rest, first, second])
    rows, columns = x.shape[-2:]
    start = offset if offset >= 0 else -offset * columns
    count = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    flat = b.reshape(x, (*x.shape[:-2], rows * columns))
    places = range(start, start + count * (columns + 1), columns + 1)
    return take(b, flat, len(rest), [min(i, rows * columns - 1) for i in places])


@shared(
    "aten.diag_embed.default",
    samples=[Sample(((2, 4),)), Sample(((3, 2),), (1,)), Sample(((2, 3),), (-1, 0, 1))],
)
def diag_embed(b: Lowering, self: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """A matrix for each row, with its numbers on a diagonal."""
    size, rank = self.shape[-1] + abs(offset), self.type.rank + 1
    wide = self
    if offset:
        around = [0] * (2 * self.type.rank)
        around[-2 if offset > 0 else -1] = abs(offset)
        wide = b.with_quant(b.PAD(self, b.shape(around), zero_point(b, self)), self.quant)
    rows = tiled(b, b.reshape(wide, (*self.shape[:-1], 1, size)), [1] * (rank - 2) + [size, 1])
    made = _masked(b, rows, np.eye(size, k=offset, dtype=bool))
    first, second = (dim1 % rank, dim2 % rank)
    order = list(range(rank - 2))
    for axis, source in sorted(((first, rank - 2), (second, rank - 1))):
        order.insert(axis, source)
    return b.permute(made, order)


@rule(
    "aten.one_hot.default",
    policy="NONE",
    samples=[
        Sample(((4,),), (6,), kinds=("index:6",)),
        Sample(((2, 5),), (3,), kinds=("index:3",)),
    ],
)
def one_hot(b: Lowering, self: Value, num_classes: int = -1) -> Value:
    if num_classes < 1:
        raise Unsupported("the number of classes must be known: give num_classes to one_hot")
    numbers = known(self)
    if numbers is not None:
        return b.const(numbers[..., None] == np.arange(num_classes), d.I32)
    which = countable(b, self)
    which = b.reshape(which, (*self.shape, 1))
    classes = np.arange(num_classes).reshape(*(1,) * self.type.rank, num_classes)
    return counted(b, small_compared(b, "==", which, b.const(classes, which.dtype)), d.I32)


@rule("aten.fill.Scalar")
def fill(b: Lowering, self: Value, value: float) -> Value:
    kind = self.dtype if self.quant is None else d.F32
    return b.const(lambda: np.full(self.shape, value, kind.array), kind, shape=self.shape)


@rule("aten.fill.Tensor")
def fill_from(b: Lowering, self: Value, value: Value) -> Value:
    return expanded(b, value, self.shape)


@shared("aten.meshgrid.default", samples=[Sample(((3,), (4,))), Sample(((2,), (3,), (4,)))])
@shared("aten.meshgrid.indexing")
def meshgrid(b: Lowering, tensors: Sequence[Value], indexing: str = "ij") -> list[Value]:
    """Each list along an axis of its own, repeated along the others."""
    order = list(range(len(tensors)))
    if indexing == "xy" and len(tensors) > 1:
        order[:2] = 1, 0
    sizes = [tensors[i].type.size for i in order]
    made = []
    for axis, x in sorted((order.index(i), i) for i in range(len(tensors))):
        shape = [1] * len(order)
        shape[axis] = tensors[x].type.size
        made.append((x, expanded(b, b.reshape(tensors[x], shape), sizes)))
    return [grid for _, grid in sorted(made, key=lambda pair: pair[0])]
