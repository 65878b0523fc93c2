"""The angle of a point."""

from __future__ import annotations

import math

import numpy as np

from tosaic.front.lower import Lowering
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Quant, Value
from tosaic.rules._operands import minus, negated, operands, scale_of, times
from tosaic.rules.analysis import atan
from tosaic.spec import dtypes as d
from tosaic.spec.dtypes import I8

_FINE, _RATIO = 12, 10  # bits by which operands and their ratio are widened: 8 + 12 + 10 fit int32


@rule(
    "aten.atan2.default",
    "aten.atan2_.default",
    samples=[Sample(((6, 40), (6, 40))), Sample(((3, 4, 5), (4, 1)), domain=(-1.0, 2.0))],
    integers=(I8,),
    why="the ratio of two int16 values is in no table that is precise enough",
)
@rule("aten.arctan2.default")
def atan2(b: Lowering, self: Value, other: Value) -> Value:
    """The angle of the smaller over the larger, turned to where the point is."""
    y, x = operands(b, self, other)
    if y.quant is None:
        return _turned(b, y, x, _angle(b, b.ABS(y), b.ABS(x)), 1.0)
    largest = max(scale_of(y), scale_of(x))
    y, x = (b.widened(v, _FINE, scale_of(v) / largest) for v in (y, x))
    y, x = b.marked(y, None), b.marked(x, None)
    angle = _whole_angle(b, b.ABS(y), b.ABS(x))
    meaning, scale = angle.quant, scale_of(angle)
    return b.marked(_turned(b, y, x, b.marked(angle, None), 1 / scale), meaning)


def _angle(b: Lowering, y: Value, x: Value) -> Value:
    """atan(min / max) of two sizes; 0 where both are 0."""
    most = b.MAXIMUM(y, x)
    safe = b.SELECT(b.EQUAL(most, b.number(0.0, most)), b.number(1.0, most), most)
    found: Value = atan(b, times(b, b.MINIMUM(y, x), b.RECIPROCAL(safe)))
    return found


def _whole_angle(b: Lowering, y: Value, x: Value) -> Value:
    """The same of integers: their ratio in 8 bits, a table, and 12 bits more."""
    most = b.MAXIMUM(b.MAXIMUM(y, x), b.number(1, y))
    least = b.MINIMUM(y, x)
    ratio = b.INTDIV(times(b, least, 1 << _RATIO), most)
    ratio = b.marked(ratio, Quant(2.0**-_RATIO))
    steps = b.settle(ratio, Quant(1 / 255, -128), d.I8)
    angles = np.arctan(np.arange(256) / 255) / (math.pi / 4) * 255 - 128
    found = b.TABLE(steps, b.const(np.round(angles), d.I8))
    return b.widened(b.marked(found, Quant(math.pi / 4 / 255, -128)), _FINE)


def _turned(b: Lowering, y: Value, x: Value, angle: Value, steps: float) -> Value:
    """An angle of the first eighth as that of the point; ``steps`` make a radian."""
    right, straight = (
        b.number(round(a * steps) if steps != 1 else a, angle) for a in (math.pi / 2, math.pi)
    )
    zero = b.number(0, angle)
    steep = b.SELECT(b.GREATER(b.ABS(y), b.ABS(x)), minus(b, right, angle), angle)
    side = b.SELECT(b.GREATER(zero, x), minus(b, straight, steep), steep)
    turned = b.SELECT(b.GREATER(zero, y), negated(b, side), side)
    return turned
