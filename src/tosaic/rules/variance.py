"""Variances, standard deviations and lengths of vectors: one number for each row."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.data_movement import first
from tosaic.lowering.alternatives.reduce_extreme import extreme
from tosaic.lowering.builder import TYPES, Lowering
from tosaic.rules._operands import converted, minus, scale_of, times
from tosaic.rules._variance import spread
from tosaic.rules.reduce import Axes, _axes, mean
from tosaic.spec import dtypes as d


def _each_row(
    b: Lowering, x: Value, dim: Axes, keepdim: bool, reduce: Callable[[Value], Value]
) -> Value:
    """What a function makes of [R, N], whose rows are what the axes have."""
    axes = _axes(x, dim)
    kept = [i for i in range(x.type.rank) if i not in axes]
    count = math.prod(x.shape[i] for i in axes)
    transposed = b.permute(x, (*kept, *axes))
    y = reduce(b.reshape(transposed, (x.type.size // count, count)))
    y = y if y.quant is None else b.requantized(y)
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdim or i not in axes]
    return b.reshape(y, shape)


Two = tuple[Value, Value]


def _variance(
    b: Lowering, self: Value, dim: Axes = None, correction: float | None = None,
    keepdim: bool = False, unbiased: bool = True, is_root: bool = False, with_mean: bool = False,
) -> Value | Two:  # fmt: skip
    less = float(unbiased) if correction is None else correction

    def reduce(rows: Value) -> Value:
        count = rows.shape[1] - less
        if count <= 0:
            raise Unsupported("a variance of so few elements is no number")
        if rows.quant is None:
            real = converted(b, rows, d.F32)
            about = minus(b, real, times(b, b.REDUCE_SUM(real, axis=1), 1 / rows.shape[1]))
            found = times(b, b.REDUCE_SUM(times(b, about, about), axis=1), 1 / count)
            return converted(b, _square_root(b, found) if is_root else found, rows.dtype)
        parts, scale = spread(b, rows, 0.0, centred=True), scale_of(rows)
        if is_root:
            return parts.root(scale / math.sqrt(count))
        return parts.total().at(scale**2 / count / 4.0**parts.least).quantized()

    made = _each_row(b, self, dim, keepdim, reduce)
    return (made, mean(b, self, _axes(self, dim), keepdim)) if with_mean else made


def _square_root(b: Lowering, x: Value) -> Value:
    """x · x^-½, which is 0 for 0 too."""
    return times(b, x, b.RSQRT(b.MAXIMUM(x, b.number(1e-38, x))))


_DIMS = (
    Sample(((4, 9),), ([1],), steps16=1),
    Sample(((2, 3, 4, 5),), ([1, 3], False, True)),
    Sample(((6, 5),), (None,), domain=(-1.0, 4.0)),
    Sample(((3, 2, 70),), ([-1], False), domain=(0.0, 50.0)),
)
_CORRECTIONS = (
    Sample(((4, 9),), ([1],), (("correction", 1),)),
    Sample(((2, 3, 4, 5),), ([0, 2],), (("correction", 0), ("keepdim", True))),
    Sample(((6, 8),), ([0],), (("correction", 2.5),)),
)


for _name, _is_root in (("var", False), ("std", True)):
    _one = partial(_variance, is_root=_is_root)
    rule(f"aten.{_name}.correction", samples=_CORRECTIONS)(_one)
    rule(f"aten.{_name}.dim", samples=_DIMS)(_one)
    rule(f"aten.{_name}.default", samples=[Sample(((3, 8),)), Sample(((40,),), (False,))])(_one)
    _both = partial(_variance, is_root=_is_root, with_mean=True)
    rule(f"aten.{_name}_mean.correction", samples=_CORRECTIONS)(_both)
    rule(f"aten.{_name}_mean.dim", samples=_DIMS[:1])(_both)


@rule(
    "aten.linalg_vector_norm.default",
    samples=[
        Sample(((4, 9),), (2, [1])),
        Sample(((2, 3, 40),), (2, [-1], True), domain=(-2.0, 5.0)),
        Sample(((2, 3, 4),), (1, [0, 2])),
        Sample(((4, 9),), (math.inf, [1], True)),
        Sample(((4, 9),), (-math.inf, [0])),
        Sample(((5, 6),)),
    ],
)
def linalg_vector_norm(
    b: Lowering, self: Value, ord: float = 2, dim: Axes = None, keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> Value:  # fmt: skip
    if ord not in (1, 2, math.inf, -math.inf):
        raise Unsupported(f"the norm of order {ord} of a vector; there are 1, 2, inf and -inf")

    def reduce(rows: Value) -> Value:
        if rows.quant is None:
            kind = rows.dtype if dtype is None else TYPES.get(dtype, d.F32)
            return converted(b, _length(b, converted(b, rows, d.F32), ord), kind)
        if ord == 2:
            return spread(b, rows, 0.0, centred=False).root(scale_of(rows))
        wide = b.widened(rows)
        if ord == 1 and rows.shape[1] * (rows.dtype.range[1] * 2 + 1) >= 1 << 31:
            raise Unsupported("the sum of so many integers does not fit int32")
        return b.with_quant(_length(b, wide, ord), wide.quant)

    return _each_row(b, self, dim, keepdim, reduce)


def _length(b: Lowering, rows: Value, ord: float) -> Value:
    """Of plain rows; order 2 is for real numbers."""
    if ord == 2:
        return _square_root(b, b.REDUCE_SUM(times(b, rows, rows), axis=1))
    size = b.ABS(rows)
    if ord == 1:
        return b.REDUCE_SUM(size, axis=1)
    name = "REDUCE_MAX" if ord > 0 else "REDUCE_MIN"
    if rows.dtype is not d.I32:
        return extreme(b, name, size, 1)

    def short() -> Value:  # int16 has a largest on every target, int32 not; 32768 is one less
        return b.levels(extreme(b, name, b.levels(size, d.I16), 1))

    return first(b, short, lambda: extreme(b, name, size, 1))
