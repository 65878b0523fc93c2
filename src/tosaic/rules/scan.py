"""Cumulative sums, products and extremes along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule, shared
from tosaic.ir.graph import Array, Quant, Value
from tosaic.lowering.alternatives import mask as masks
from tosaic.lowering.alternatives.data_movement import joined, piece
from tosaic.lowering.builder import TYPES, Lowering
from tosaic.rules._operands import converted, scale_of
from tosaic.rules._products import factors, meant, multiplied, unit_of
from tosaic.rules.elementwise import sub
from tosaic.rules.linear import linear
from tosaic.rules.move import cat
from tosaic.spec import dtypes as d

# Up to this many elements a running sum is a product with a triangle of ones, one operation.
_LARGEST_TRIANGLE = 256
_SUMS = [
    Sample(((4, 6),), (1,)),
    Sample(((5, 3),), (0,)),
    Sample(((2, 7, 3),), (-2,)),
    Sample(((2, 300),), (1,), steps16=2),
]
_SCANS = [Sample(((4, 6),), (1,)), Sample(((5, 3),), (0,)), Sample(((2, 7, 3),), (-2,))]


def _scanned(b: Lowering, x: Value, axis: int, emit: Callable[[Value, Value], Value]) -> Value:
    """Each element with all before it: with its neighbour, then with pairs, fours and so on."""
    size, reach = x.shape[axis], 1
    while reach < size:
        both = emit(piece(b, x, axis, reach, size), piece(b, x, axis, 0, size - reach))
        x = joined(b, [piece(b, x, axis, 0, reach), both], axis)
        reach *= 2
    return x


def _linear_scan(b: Lowering, x: Value, axis: int, matrix: Array) -> Value:
    """A constant matrix of small integers along an axis: one product, rounded once."""
    y = linear(b, b.axis_last(x, axis), b.const(matrix, d.I8, quant=Quant(1.0)))
    return b.axis_back(y, axis)


@rule("aten.cumsum.default", samples=_SUMS)
def cumsum(b: Lowering, self: Value, dim: int, dtype: torch.dtype | None = None) -> Value:
    if not self.type.rank:
        return self
    axis = dim % self.type.rank
    size = self.shape[axis]
    if self.quant is None:
        kind = TYPES[dtype] if dtype is not None else self.dtype
        whole = converted(b, self, kind if kind.is_float else d.I32)
        return _scanned(b, whole, axis, lambda x, y: b.ADD(x, y))
    if size <= _LARGEST_TRIANGLE:
        return _linear_scan(b, self, axis, np.tril(np.ones((size, size))))
    if size * self.dtype.range[1] * 2 >= 1 << 31:
        raise Unsupported("the sum of so many integers does not fit int32")
    wide = b.widened(self)
    quant = wide.quant
    return _scanned(b, wide, axis, lambda x, y: b.with_quant(b.ADD(x, y), quant))


@rule(
    "aten.cumprod.default",
    samples=[Sample(s.shapes, s.arguments, domain=(0.5, 1.5)) for s in _SCANS],
)
def cumprod(b: Lowering, self: Value, dim: int, dtype: torch.dtype | None = None) -> Value:
    if not self.type.rank:
        return self
    if self.quant is not None:
        axis, given = dim % self.type.rank, factors(b, self)
        found = _scanned(b, given.value, axis, lambda x, y: multiplied(b, x, y))
        counts = range(1, self.shape[axis] + 1)
        return meant(b, found, tuple(unit_of(given.unit, n) for n in counts), axis, len(counts))
    kind = TYPES[dtype] if dtype is not None else self.dtype
    whole = converted(b, self, kind if kind.is_float else d.I32)
    return _scanned(b, whole, dim % self.type.rank, lambda x, y: b.mul(x, y))


def _extremes(b: Lowering, x: Value, dim: int, emit: Callable[..., Value]) -> tuple[Value, None]:
    """The values; their indices have no form here."""
    if not x.type.rank:
        return x, None
    axis = dim % x.type.rank
    if x.quant is not None:  # TOSA compares int32
        wide = b.widened(x)
        quant = wide.quant
        found = _scanned(b, wide, axis, lambda late, early: b.with_quant(emit(late, early), quant))
        return b.requantize(found, x.quant, x.dtype), None
    wide = x if x.dtype.is_float else converted(b, x, d.I32)
    return converted(b, _scanned(b, wide, axis, emit), x.dtype), None


@shared("aten.cummax.default", samples=_SCANS)
def cummax(b: Lowering, self: Value, dim: int) -> tuple[Value, None]:
    return _extremes(b, self, dim, lambda x, y: b.MAXIMUM(x, y))


@shared("aten.cummin.default", samples=_SCANS)
def cummin(b: Lowering, self: Value, dim: int) -> tuple[Value, None]:
    return _extremes(b, self, dim, lambda x, y: b.MINIMUM(x, y))


@rule(
    "aten.diff.default",
    samples=[
        Sample(((4, 6),)),
        Sample(((5, 3),), (1, 0)),
        Sample(((2, 7, 3),), (2, 1)),
        Sample(((3, 5), (3, 1), (3, 2)), (1, -1)),
    ],
)
def diff(
    b: Lowering, self: Value, n: int = 1, dim: int = -1, prepend: Value | None = None,
    append: Value | None = None,
) -> Value:  # fmt: skip
    """Differences of neighbours, n times: integers are rounded once, at the end."""
    axis, given = dim % self.type.rank, (prepend, self, append)
    x = _whole(b, [part for part in given if part is not None], axis)
    size = x.shape[axis]
    if x.quant is not None and n > 1:
        wide = b.widened(x)
        quant = Quant(scale_of(wide))
        for _ in range(min(n, size - 1)):
            size -= 1
            late, early = piece(b, wide, axis, 1, size + 1), piece(b, wide, axis, 0, size)
            wide = b.with_quant(b.SUB(late, early), quant)
        return wide
    for _ in range(n):
        size -= 1
        late, early = piece(b, x, axis, 1, size + 1), piece(b, x, axis, 0, size)
        x = masks.differ(b, late, early) if masks.is_mask(x) else sub(b, late, early)
    return x


def _whole(b: Lowering, parts: Sequence[Value], axis: int) -> Value:
    """Parts one after the other; quantized ones in the coarsest of their scales."""
    if len({(p.quant, p.dtype) for p in parts}) == 1:
        return cat(b, parts, axis)
    wide = [b.widened(p) for p in parts]
    finest = min(scale_of(p) for p in wide)
    if max(scale_of(p) for p in wide) > finest * 2**12:
        raise Unsupported("the scales of diff's operands are too far apart")
    same = [b.with_quant(b.rescale(p, [scale_of(p) / finest * 16], 0, d.I32), Quant(finest / 16))
            for p in wide]  # fmt: skip
    return joined(b, same, axis)
