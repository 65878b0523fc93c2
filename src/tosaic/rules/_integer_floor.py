"""The whole numbers beside quantized ones, as int32, by sums and shifts that every target has."""

from __future__ import annotations

import math

from tosaic.errors import Unsupported
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.lut import FINE_STEP, ROUNDING
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._operands import scale_of
from tosaic.rules._sums import largest
from tosaic.spec import dtypes as d

_BITS = 29  # of a real number in int32: a sum of two still fits
_FEWEST = 7  # behind the point; with fewer, a step is larger than any fraction


def whole(b: Lowering, x: Value, rounding: str, divisor: float = 1.0) -> Value:
    """x / divisor rounded to "floor", "ceil", "trunc" or "nearest", halves to the even side.

    Numbers nearer to a whole one than half a fine step of the input are this one.
    """
    fine = _fine(b, x, divisor)
    return _ROUNDED[rounding](fine, _nearness(x, divisor, fine)).quantized()


def left_over(b: Lowering, x: Value, rounding: str, divisor: float = 1.0) -> Value:
    """What the rounded quotient, times the divisor, leaves of x."""
    fine = _fine(b, x, divisor)
    below = _ROUNDED[rounding](fine, _nearness(x, divisor, fine))
    rest = fine - (below * round(1 / fine.unit)).at(fine.unit)
    return rest.at(divisor * fine.unit).quantized()


def _fine(b: Lowering, x: Value, divisor: float) -> Fixed:
    """x / divisor with as many bits behind the point as int32 has."""
    scale = scale_of(x) / divisor
    most = largest(x) * scale
    bits = _BITS - max(math.ceil(math.log2(most)), 0)
    if bits < _FEWEST:
        raise Unsupported(f"numbers of up to {most:.0f} leave no bits for their fractions")
    return Fixed(b, b.rescale(x, [scale * 2.0**bits], 0, d.I32), 2.0**-bits)


def _nearness(x: Value, divisor: float, fine: Fixed) -> float:
    """How far a whole number may be from the integer that it is rounded to, in units of it."""
    step = scale_of(x) / divisor
    near = step / 2 if step <= FINE_STEP else largest(x) * step * ROUNDING
    return math.ceil(near / fine.unit) * fine.unit


def _nearest_up(fine: Fixed) -> Fixed:
    """By a rounding shift, which every target has."""
    return (fine >> round(-math.log2(fine.unit))).at(1.0)


def floor(fine: Fixed, near: float = 0.0) -> Fixed:
    """The whole number below a number with a binary point, or ``near`` above it."""
    return _nearest_up(fine + (near - 0.5))


def _ceil(fine: Fixed, near: float) -> Fixed:
    return _nearest_up(fine + (0.5 - max(near, fine.unit)))


def _trunc(fine: Fixed, near: float) -> Fixed:
    above, below = fine.maximum(0), fine.minimum(0)
    return floor(above, near) + _ceil(below, near)


def nearest(fine: Fixed, near: float = 0.0) -> Fixed:
    """Halves to the even side: less than a half is added, and more if the floor is odd."""
    below = floor(fine)
    odd = below - floor(below.at(0.5)) * 2
    if not near:
        return _nearest_up(fine + odd.at(fine.unit) - fine.unit)
    side = odd * round(2 * near / fine.unit + 2)
    return _nearest_up(fine + side.at(fine.unit) - (near + fine.unit))


_ROUNDED = {"floor": floor, "ceil": _ceil, "trunc": _trunc, "nearest": nearest}
