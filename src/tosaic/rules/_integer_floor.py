"""The whole numbers beside quantized ones, as int32, by sums and shifts that every target has."""

from __future__ import annotations

import math

from tosaic.errors import Unsupported
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.lut import ROUNDING
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._operands import scale_of
from tosaic.rules._sums import largest
from tosaic.spec import dtypes as d

_BITS = 29  # of a real number in int32: a sum of two still fits
_FEWEST = 7  # behind the point; with fewer, a step is larger than any fraction


def whole(b: Lowering, x: Value, rounding: str, divisor: float = 1.0) -> Value:
    """x / divisor rounded to "floor", "ceil", "trunc" or "nearest", halves to the even side.

    Numbers nearer to a whole one than a float would tell, relative to the largest, are this one.
    """
    return _ROUNDED[rounding](_fine(b, x, divisor)).quantized()


def left_over(b: Lowering, x: Value, rounding: str, divisor: float = 1.0) -> Value:
    """What the rounded quotient, times the divisor, leaves of x."""
    fine = _fine(b, x, divisor)
    rest = fine - (_ROUNDED[rounding](fine) * round(1 / fine.unit)).at(fine.unit)
    return rest.at(divisor * fine.unit).quantized()


def _fine(b: Lowering, x: Value, divisor: float) -> Fixed:
    """x / divisor with as many bits behind the point as int32 has."""
    scale = scale_of(x) / divisor
    if abs(1 / scale - round(1 / scale)) <= ROUNDING / scale:
        scale = 1 / round(1 / scale)  # which float32 has rounded
    most = largest(x) * scale
    bits = _BITS - max(math.ceil(math.log2(most)), 0)
    if bits < _FEWEST:
        raise Unsupported(f"numbers of up to {most:.0f} leave no bits for their fractions")
    return Fixed(b, b.rescale(x, [scale * 2.0**bits], 0, d.I32), 2.0**-bits)


def _nearest_up(fine: Fixed) -> Fixed:
    """By a rounding shift, which every target has."""
    return (fine >> round(-math.log2(fine.unit))).at(1.0)


def floor(fine: Fixed) -> Fixed:
    """The whole number below a number with a binary point."""
    return _nearest_up(fine - 0.5)


def _ceil(fine: Fixed) -> Fixed:
    return _nearest_up(fine + (0.5 - fine.unit))


def _trunc(fine: Fixed) -> Fixed:
    above, below = fine.maximum(0), fine.minimum(0)
    return floor(above) + _ceil(below)


def nearest(fine: Fixed) -> Fixed:
    """Halves to the even side: less than a half is added, and more if the floor is odd."""
    below = floor(fine)
    odd = below - floor(below.at(0.5)) * 2
    return _nearest_up(fine + odd.at(fine.unit) - fine.unit)


_ROUNDED = {"floor": floor, "ceil": _ceil, "trunc": _trunc, "nearest": nearest}
