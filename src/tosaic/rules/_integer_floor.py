"""Floor of a quantized value as int32, by additions and shifts that every target has."""

from __future__ import annotations

import math

from tosaic.errors import Unsupported
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.builder import Lowering
from tosaic.rules._operands import minus, plus, scale_of, times
from tosaic.rules._sums import largest
from tosaic.spec import dtypes as d

_BITS = 29  # of a real number in int32: a sum of two still fits
_FEWEST = 7  # behind the point; with fewer, a step is larger than any fraction


def whole(b: Lowering, x: Value, rounding: str, divisor: float = 1.0) -> Value:
    """x / divisor rounded to "floor", "ceil", "trunc" or "nearest", halves to the even side.

    Numbers nearer to a whole one than a float would tell, relative to the largest, are this one.
    """
    fine, bits = _fine(b, x, divisor)
    return b.with_quant(_ROUNDED[rounding](b, fine, bits), Quant(1.0))


def left_over(b: Lowering, x: Value, rounding: str, divisor: float = 1.0) -> Value:
    """What the rounded quotient, times the divisor, leaves of x."""
    fine, bits = _fine(b, x, divisor)
    rounded = _ROUNDED[rounding](b, fine, bits)
    return b.with_quant(minus(b, fine, times(b, rounded, 1 << bits)), Quant(divisor * 2.0**-bits))


def _fine(b: Lowering, x: Value, divisor: float) -> tuple[Value, int]:
    """x / divisor with as many bits behind the point as int32 has, and their number."""
    scale = scale_of(x) / divisor
    most = largest(x) * scale
    bits = _BITS - max(math.ceil(math.log2(most)), 0)
    if bits < _FEWEST:
        raise Unsupported(f"numbers of up to {most:.0f} leave no bits for their fractions")
    return b.rescale(x, [scale * 2.0**bits], 0, d.I32), bits


def _floor(b: Lowering, fine: Value, bits: int) -> Value:
    """By a rounding shift, which every target has."""
    return _shifted(b, minus(b, fine, 1 << (bits - 1)), bits)


def _ceil(b: Lowering, fine: Value, bits: int) -> Value:
    return _shifted(b, plus(b, fine, (1 << (bits - 1)) - 1), bits)


def _trunc(b: Lowering, fine: Value, bits: int) -> Value:
    above = b.MAXIMUM(fine, b.number(0, fine))
    below = b.MINIMUM(fine, b.number(0, fine))
    return plus(b, _floor(b, above, bits), _ceil(b, below, bits))


def _nearest(b: Lowering, fine: Value, bits: int) -> Value:
    """One less than a half is added, and one more if the whole number below is odd."""
    below = _floor(b, fine, bits)
    odd = minus(b, below, times(b, _floor(b, below, 1), 2))
    return _shifted(b, minus(b, plus(b, fine, odd), 1), bits)


def _shifted(b: Lowering, x: Value, bits: int) -> Value:
    return b.ARITHMETIC_RIGHT_SHIFT(x, b.number(bits, x), round=True)


_ROUNDED = {"floor": _floor, "ceil": _ceil, "trunc": _trunc, "nearest": _nearest}
