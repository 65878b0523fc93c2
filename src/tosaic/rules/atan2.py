"""atan2."""

from __future__ import annotations

import math

import numpy as np
import torch

from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.data_movement import first
from tosaic.lowering.alternatives.mask import chosen
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._indices import small_compared
from tosaic.rules._operands import minus, negated, operands, scale_of, times
from tosaic.rules._rows import mantissa_inverse, normal
from tosaic.rules._sums import largest
from tosaic.rules.analysis import atan
from tosaic.spec.dtypes import I8, I16, I32

_RATIO = Quant(1 / 32767)
_STEP = (1 - math.pi / 4) / 32760  # of a table of what the angle is less than its tangent
_ANGLE = Quant(_STEP / 128)  # as TABLE interpolates it


@rule(
    "aten.atan2.default",
    samples=[
        Sample(((6, 40), (6, 40)), steps16=2),
        Sample(((3, 4, 5), (4, 1)), domain=(-1.0, 2.0), steps16=2),
    ],
)
def atan2(b: Lowering, self: Value, other: Value) -> Value:
    """The angle of the smaller over the larger, turned to where the point is."""
    y, x = operands(b, self, other)
    if y.quant is None:
        return _rotated(b, y, x, _angle(b, b.ABS(y), b.ABS(x)), 1.0)
    fine = Quant(max(scale_of(v) * largest(v) for v in (y, x)) / 2**29)
    y, x = (b.with_quant(b.requantize(v, fine, I32), None) for v in (y, x))
    sizes = b.ABS(y), b.ABS(x)
    angle = first(b, lambda: _fine_angle(b, *sizes), lambda: _byte_angle(b, *sizes))
    return b.with_quant(_rotated(b, y, x, angle, 1 / _ANGLE.one_scale), _ANGLE)


def _angle(b: Lowering, y: Value, x: Value) -> Value:
    """atan(min / max) of two sizes; 0 where both are 0."""
    most = b.MAXIMUM(y, x)
    safe = b.SELECT(b.EQUAL(most, b.number(0.0, most)), b.number(1.0, most), most)
    found: Value = atan(b, times(b, b.MINIMUM(y, x), b.RECIPROCAL(safe)))
    return found


def _fine_angle(b: Lowering, y: Value, x: Value) -> Value:
    """The same of integers of 29 bits: their ratio less a small difference, which is a table."""
    least, most = Fixed(b, b.MINIMUM(y, x)), normal(Fixed(b, b.MAXIMUM(y, x)).maximum(1))
    aligned = (least << most.zeros - 1).at(most.u.unit).proved(0.0, 2.0)
    ratio = aligned.times(mantissa_inverse(most, exact=True), 2.0**-28).quantized()
    index = b.requantize(ratio, _RATIO, I16)
    tangents = (np.arange(513) * 128 - 32768) * _RATIO.one_scale
    below = b.TABLE(index, b.const(np.round((tangents - np.arctan(tangents)) / _STEP), I16))
    return b.SUB(b.with_quant(b.requantize(ratio, _ANGLE, I32), None), below)


def _byte_angle(b: Lowering, y: Value, x: Value) -> Value:
    """Their ratio in 8 bits, and a table of these."""
    y, x = (Fixed(b, v).to(I32, 2.0**14).value for v in (y, x))
    most = b.MAXIMUM(b.MAXIMUM(y, x), b.number(1, y))
    ratio = b.with_quant(b.INTDIV(times(b, b.MINIMUM(y, x), 1 << 15), most), Quant(2.0**-15))
    with b.wanting((Quant(math.pi / 4 / 255, -128), I8)):
        angle = b.table(b.requantize(ratio, Quant(1 / 255, -128), I8), torch.atan)
    return b.with_quant(b.requantize(angle, _ANGLE, I32), None)


def _rotated(b: Lowering, y: Value, x: Value, angle: Value, steps: float) -> Value:
    """An angle of the first eighth as that of the point; ``steps`` make a radian."""
    right, straight = (
        b.number(round(a * steps) if steps != 1 else a, angle) for a in (math.pi / 2, math.pi)
    )
    zero = b.number(0, angle)
    is_steep = small_compared(b, ">", b.ABS(y), b.ABS(x))
    steep = chosen(b, is_steep, minus(b, right, angle), angle)
    side = chosen(b, small_compared(b, ">", zero, x), minus(b, straight, steep), steep)
    return chosen(b, small_compared(b, ">", zero, y), negated(b, side), side)
