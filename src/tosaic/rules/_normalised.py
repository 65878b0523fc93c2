"""Normalised rows: elements over their deviation, times a weight, plus a bias.

In integers a row is taken apart as ``_variance`` does. Where the target has int16, elements are
int16 and a depthwise convolution brings weight and bias, which vector units are fast with;
otherwise elements are int32, and nothing but the result is rounded to a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Array, Quant, Value
from tosaic.lowering.alternatives.data_movement import first
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._operands import converted, minus, plus, times
from tosaic.rules._rms_int16 import raised, raised_error
from tosaic.rules._variance import RAISED, Spread, inverse, spread
from tosaic.rules.norm import known, scaled_channels
from tosaic.spec import dtypes as d

_COARSE = 0.35  # steps of the result that int16 elements may cost at most


@dataclass(frozen=True, slots=True)
class Affine:
    """Weight and bias along one axis of a view of the rows."""

    weight: Value | None
    bias: Value | None
    view: tuple[int, ...]
    axis: int

    @property
    def is_plain(self) -> bool:
        return self.weight is None and self.bias is None

    def numbers(self) -> tuple[Array, Array]:
        """Factors and offsets, one for each channel."""
        ones = np.ones(self.view[self.axis])
        return known(self.weight, 1.0).reshape(-1) * ones, known(self.bias, 0.0).reshape(-1) * ones

    def along(self, b: Lowering, values: Value) -> Value:
        """Numbers of channels where they are in the view."""
        return b.reshape(values, self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(s if i == self.axis else 1 for i, s in enumerate(self.view))


def normalised(b: Lowering, rows: Value, eps: float, affine: Affine, centred: bool = True) -> Value:
    """(x − mean) / √(variance + ε) of rows [R, N], or x / √(mean square + ε), in the view."""
    if rows.quant is None:
        return _float(b, rows, eps, affine, centred)
    return first(
        b,
        lambda: _short(b, rows, eps, affine, centred),
        lambda: _shorter(b, rows, eps, affine, centred),
        lambda: _wide(b, rows, eps, affine, centred),
    )


def _float(b: Lowering, rows: Value, eps: float, affine: Affine, centred: bool) -> Value:
    """In float32, as PyTorch computes it."""
    x, count = converted(b, rows, d.F32), rows.shape[1]
    if centred:
        x = minus(b, x, times(b, b.REDUCE_SUM(x, axis=1), 1 / count))
    square = times(b, b.REDUCE_SUM(times(b, x, x), axis=1), 1 / count)
    y = b.reshape(times(b, x, b.RSQRT(plus(b, square, eps))), affine.view)
    if affine.weight is not None:
        y = times(b, y, converted(b, affine.along(b, affine.weight), d.F32))
    if affine.bias is not None:
        y = plus(b, y, converted(b, affine.along(b, affine.bias), d.F32))
    return converted(b, y, rows.dtype)


def _wide(b: Lowering, rows: Value, eps: float, affine: Affine, centred: bool) -> Value:
    """int32 elements: x^/√N with 30.5 bits, times weights with 31."""
    parts, root = spread(b, rows, eps, centred), math.sqrt(rows.shape[1])
    y = parts.raised().times(inverse(parts), 1.0)
    y = y.proved(-RAISED, RAISED)  # no element is further from the mean than all of them together
    y, most = y.map(lambda v: b.reshape(v, affine.view)).at(root / 2.0**30.5), root
    if not affine.is_plain:
        factor, offset = affine.numbers()
        most = float((np.abs(factor) * root + np.abs(offset)).max()) or 1.0
        unit = most / 2.0**30  # so that products and offsets and their sums all fit
        y = y.times(_channels(b, factor, unit / y.unit / 2.0**31, affine), unit)
        if affine.bias is not None:
            y += _channels(b, offset, unit, affine)
    if b.wanted is not None and most / b.wanted[0].one_scale >= 2.0**28:
        y = y.within(2.0**27 * b.wanted[0].one_scale)  # what RESCALE takes, far beyond a result
    return y.quantized()


def _channels(b: Lowering, numbers: Array, unit: float, affine: Affine) -> Fixed:
    most = d.I32.range[1]
    levels = np.clip(np.round(numbers / unit), -most, most)
    return Fixed(b, b.const(levels.reshape(affine.shape), d.I32), unit)


def _short(b: Lowering, rows: Value, eps: float, affine: Affine, centred: bool) -> Value:
    """int16 elements; for int8 on both sides.

    (x − middle) · 2^k fills an int16 as far as the result shows it. The 2^k is exact, and the
    rest of 1/√T has 13 bits. Elements beyond ``reach`` saturate, here as in the result: the mean
    is off its whole number by no more than a deviation, which is what the 1 is for.
    """
    if rows.dtype is not d.I8 or (b.wanted is not None and b.wanted[1] is not d.I8):
        raise Unsupported("int16 elements are too coarse for an int16 result")
    parts, root = spread(b, rows, eps, centred), math.sqrt(rows.shape[1])
    if not parts.is_fine:
        raise Unsupported("so large an eps leaves int16 elements too few bits")
    reach = min(root, _shown(b, affine)) + 1
    if _error(b, affine, reach) > _COARSE:
        raise Unsupported("int16 elements are too coarse for this result")
    elements = _elements(parts, 32767 * root / 2.0**15.5 / reach)
    y = elements * inverse(parts).to(d.I16, 4 / 32767)
    return _weighted(b, y.at(4 * reach / 32767**2).quantized(), reach, affine)


def _shorter(b: Lowering, rows: Value, eps: float, affine: Affine, centred: bool) -> Value:
    """int16 rows and an int8 result: elements that fill an int16 by a power of two of their row."""
    if rows.dtype is not d.I16 or (b.wanted is not None and b.wanted[1] is not d.I8):
        raise Unsupported("rows of int16 are as coarse as elements only for an int8 result")
    reach = min(math.sqrt(rows.shape[1]), _shown(b, affine)) + 1
    if b.wanted is not None:
        weight = float(np.abs(affine.numbers()[0]).max()) / b.wanted[0].one_scale
        if weight * (raised_error(rows.shape[1], centred, reach) + reach / 65534) > _COARSE:
            raise Unsupported("int16 elements are too coarse for this result")
    return _weighted(b, raised(b, rows, eps, centred), reach, affine)


def _weighted(b: Lowering, y: Value, reach: float, affine: Affine) -> Value:
    """Normalised elements up to ``reach`` times the weights, plus the bias, in the view."""
    if affine.is_plain:
        return b.reshape(y, affine.view)
    even = b.reshape(b.requantize(y, Quant(reach / 32767), d.I16), affine.view)
    made = scaled_channels(b, b.axis_last(even, affine.axis), *affine.numbers())
    return b.axis_back(made, affine.axis)


def _shown(b: Lowering, affine: Affine) -> float:
    """The largest normalised element that a result does not saturate at."""
    if b.wanted is None:
        return math.inf
    quant, kind = b.wanted
    reals = [(end - quant.one_zero) * quant.one_scale for end in kind.range]
    factor, offset = affine.numbers()
    most = np.maximum(*(np.abs(end - offset) for end in reals))
    return float(np.divide(most, np.abs(factor), where=factor != 0, out=0 * most).max())


def _error(b: Lowering, affine: Affine, reach: float) -> float:
    """Steps of the result that rounding to int16 costs: two roundings of 1/√u ≤ 2, and one."""
    if b.wanted is None:
        return 0.0
    return 2.5 * reach / 32767 * float(np.abs(affine.numbers()[0]).max()) / b.wanted[0].one_scale


def _elements(parts: Spread, factor: float) -> Fixed:
    """(x − mean) · 2^k times a factor, an int16."""
    exact = (1 << parts.exponent - 15).to(d.I16)
    made = (parts.about_middle().to(d.I16) * exact).to(d.I16, 1 / factor)
    if parts.rest is None:
        return made
    rest = parts.raised_rest(parts.rest).at(2.0**-15).to(d.I16, made.unit)
    return (made.to(d.I32) - rest.to(d.I32)).to(d.I16)


def rows_of(b: Lowering, x: Value, count: int) -> Value:
    """All elements as [R, count]."""
    if 0 in x.shape:
        raise Unsupported("a norm needs elements, and TOSA has no empty tensors")
    return b.reshape(x, (x.type.size // count, count))
