"""Whole quotients and rests of plain int32, with operators that both of TOSA's profiles have."""

from __future__ import annotations

from tosaic.front.lower import Lowering
from tosaic.ir.graph import Value
from tosaic.rules._operands import minus, plus, times


def truncated(b: Lowering, x: Value, y: Value) -> Value:
    """x / y without its fraction."""
    return b.INTDIV(x, y)


def rest(b: Lowering, x: Value, y: Value) -> Value:
    """What x / y leaves over, with the sign of x."""
    return minus(b, x, times(b, b.INTDIV(x, y), y))


def sign_bit(b: Lowering, x: Value) -> Value:
    """1 where an int32 is negative, else 0."""
    return b.LOGICAL_RIGHT_SHIFT(x, b.number(31, x))


def opposite(b: Lowering, left: Value, y: Value) -> Value:
    """1 where what is left over and the divisor have opposite signs, else 0."""
    below, above, divisor = (sign_bit(b, v) for v in (left, minus(b, b.number(0, left), left), y))
    return plus(b, times(b, below, minus(b, 1, divisor)), times(b, above, divisor))


def floored(b: Lowering, x: Value, y: Value) -> Value:
    """x / y rounded down."""
    return minus(b, b.INTDIV(x, y), opposite(b, rest(b, x, y), y))


def modulo(b: Lowering, x: Value, y: Value) -> Value:
    """What ⌊x / y⌋ leaves over, with the sign of y."""
    left = rest(b, x, y)
    return plus(b, left, times(b, opposite(b, left, y), y))
