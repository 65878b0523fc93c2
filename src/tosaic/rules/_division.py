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
        return first(b, lambda: b.INTDIV(x, y), lambda: _by_reciprocal(b, x, y))
    return first(
        b,
        lambda: b.INTDIV(b.MAXIMUM(x, b.number(1 - 2**31, x)), no_zero(b, y)),
        lambda: b.INTDIV(x, y),  # without the INT profile
        lambda: _by_reciprocal(b, x, no_zero(b, y)),
    )


def no_zero(b: Lowering, y: Value) -> Value:
    """The value, and 1 where it is 0."""

    def by_signs() -> Value:
        signs = plus(b, sign_bit(b, y), sign_bit(b, minus(b, b.number(0, y), y)))
        return plus(b, y, minus(b, 1, signs))

    return first(b, lambda: b.SELECT(b.EQUAL(y, b.number(0, y)), b.number(1, y), y), by_signs)


def _by_reciprocal(b: Lowering, x: Value, y: Value) -> Value:
    """The quotient by shifts and products that have 64 bits inside, for targets without INTDIV.

    The divisor is shifted to u in [1, 2) · 2^30. Newton's iteration finds 2^60 / u from
    (24 − 8u) / 17, which is 1/17 off at most: three steps square that to less than 2^−30. 4 less
    is below it for certain, and 1 less than a rounded quotient below the quotient: what the first
    leaves over is divided once more, and what that leaves is less than four divisors.
    """
    one, unit, low = b.number(1, x), b.number(1 << 30, x), b.number(1 - 2**31, x)
    big, size = (b.proved(b.ABS(b.MAXIMUM(v, low)), 0) for v in (x, y))
    size = b.proved(b.MAXIMUM(size, one), 1)
    up = b.proved(b.SUB(b.CLZ(size), one), 0, 30)  # 1 <= size < 2^31
    down = b.proved(b.SUB(b.number(30, x), up), 0, 30)
    full = b.proved(b.LOGICAL_LEFT_SHIFT(size, up), 1 << 30)
    slope = b.proved(b.mul(full, b.number(round(8 / 17 * 2**30), x), 30), 0, 1 << 30)
    guess = b.proved(b.SUB(b.number(round(24 / 17 * 2**30), x), slope), 1 << 28, 1 << 30)
    for _ in range(3):
        error = b.proved(b.SUB(unit, b.proved(b.mul(full, guess, 30), 0)), -(1 << 27), 1 << 27)
        change = b.proved(b.mul(guess, error, 30), -(1 << 27), 1 << 27)
        guess = b.proved(b.ADD(guess, change), 1 << 28, (1 << 30) + 4)
    guess = b.proved(b.SUB(guess, b.number(4, x)), 1 << 27, 1 << 30)

    def divided(dividend: Value) -> Value:
        product = b.proved(b.mul(dividend, guess, 30), 0)  # the guess is at most 1
        nearest = b.proved(b.ARITHMETIC_RIGHT_SHIFT(product, down, round=True), 0)
        return b.proved(b.MAXIMUM(b.SUB(nearest, one), b.number(0, x)), 0)

    def left(quotient: Value) -> Value:
        return b.proved(b.SUB(big, b.proved(b.mul(quotient, size), 0)), 0)

    found = divided(big)
    found = b.proved(b.ADD(found, divided(left(found))), 0)
    for _ in range(3):
        found = b.proved(b.ADD(found, sign_bit(b, b.SUB(b.SUB(size, one), left(found)))), 0)
    signs = [b.SUB(one, times(b, sign_bit(b, v), 2)) for v in (x, y)]
    return b.mul(found, b.mul(signs[0], signs[1]))


def rest(b: Lowering, x: Value, y: Value) -> Value:
    """What x / y leaves over, with the sign of x."""
    return minus(b, x, times(b, truncated(b, x, y), y))


def sign_bit(b: Lowering, x: Value) -> Value:
    """1 where an int32 is negative, else 0."""

    def limited() -> Value:
        zero = b.number(0, x)
        return b.SUB(zero, b.MAXIMUM(b.MINIMUM(x, zero), b.number(-1, x)))

    return first(b, lambda: b.LOGICAL_RIGHT_SHIFT(x, b.number(31, x)), limited)


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
