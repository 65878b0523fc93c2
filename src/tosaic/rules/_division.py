"""Floor division and remainder of int32, with operators that both TOSA profiles have."""

from __future__ import annotations

from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.data_movement import first
from tosaic.lowering.builder import Lowering
from tosaic.rules._operands import minus, plus, times

_SMALL = 1 << 12


def truncated(b: Lowering, x: Value, y: Value) -> Value:
    """x / y without its fraction; of what has no quotient, x / 1 or the like.

    PyTorch divides no integer by 0. −2^31 over −1 is no int32, so a dividend that meets a divisor
    that is no constant is −2^31 + 1 at least.
    """
    known = None if y.const is None or y.type.size > _SMALL else y.const.array
    if known is not None and bool((known != 0).all()) and bool((known != -1).all()):
        return b.INTDIV(x, y)
    return first(
        b,
        lambda: b.INTDIV(b.MAXIMUM(x, b.number(1 - 2**31, x)), _no_zero(b, y)),
        lambda: b.INTDIV(x, y),  # without the INT profile
    )


def _no_zero(b: Lowering, y: Value) -> Value:
    return b.SELECT(b.EQUAL(y, b.number(0, y)), b.number(1, y), y)


def rest(b: Lowering, x: Value, y: Value) -> Value:
    """What x / y leaves over, with the sign of x."""
    return minus(b, x, times(b, truncated(b, x, y), y))


def sign_bit(b: Lowering, x: Value) -> Value:
    """1 where an int32 is negative, else 0."""
    return b.LOGICAL_RIGHT_SHIFT(x, b.number(31, x))


def opposite(b: Lowering, left: Value, y: Value) -> Value:
    """1 where what is left over and the divisor have opposite signs, else 0."""
    below, above, divisor = (sign_bit(b, v) for v in (left, minus(b, b.number(0, left), left), y))
    return plus(b, times(b, below, minus(b, 1, divisor)), times(b, above, divisor))


def floored(b: Lowering, x: Value, y: Value) -> Value:
    """x / y rounded down."""
    return minus(b, truncated(b, x, y), opposite(b, rest(b, x, y), y))


def modulo(b: Lowering, x: Value, y: Value) -> Value:
    """What ⌊x / y⌋ leaves over, with the sign of y."""
    left = rest(b, x, y)
    return plus(b, left, times(b, opposite(b, left, y), y))
