"""Deviation of integer rows from their mean or from zero, and its reciprocal root.

All of it is exact in int32 but for roundings 2^-22 and less of what they are part of, whatever
the row: a row's own exponent keeps what is small as precise as what is large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tosaic.errors import Unsupported
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.reduce_extreme import extreme
from tosaic.lowering.builder import Lowering
from tosaic.rules._operands import negated, scale_of
from tosaic.rules._rows import inverse_root, product, scaled
from tosaic.rules._sums import zero_of
from tosaic.spec import dtypes as d

LONGEST = 1 << 16  # so many squares of int8 fit int32, and so many int16
_LONGEST_ABOUT_ZERO = 26214  # the same where zero points are part of the squares
_FAR = "eps is so far above the squares of the input's steps that nothing of these is left"
_SHORT = 6  # bits of the length of rows whose squares may be rounded one by one
_HIGHEST = 14  # 2^14 is an int16, and so are rows that are all alike
RAISED = 2.0**30.51  # what no element times 2^(15 + k) reaches, roundings included


@dataclass(frozen=True, slots=True)
class Spread:
    """Rows of [R, N] in steps of x, T = Σ (x − mean)² + N·ε = u · 2^31 / 4^k of each.

    |x − mean| is at most √T, so |x − mean| · 2^k < 2^15.5.
    """

    x: Value
    middle: Value | None  # the whole number next to the mean, like x; None about zero
    rest: Value | None  # mean − middle, times 2^30
    u: Value  # in [1/16, 1), times 2^31; 0 where all of a row is alike
    exponent: Value  # 15 + k, 0 to 30
    least: int  # k of the largest T there can be

    @property
    def is_fine(self) -> bool:
        """Whether 2^k is always whole."""
        return self.least >= 0

    def raised(self, b: Lowering) -> Value:
        """(x − mean) · 2^(15 + k), an int32 below 2^30.5.

        The middle is half a step off, which is 2^29 at most.
        """
        wide = b.widened(self.x)
        if self.middle is None or self.rest is None:
            return b.proved(b.LOGICAL_LEFT_SHIFT(wide, self.exponent), -RAISED, RAISED)
        centred = b.LOGICAL_LEFT_SHIFT(b.SUB(wide, b.widened(self.middle)), self.exponent)
        b.proved(centred, -RAISED - 2.0**29, RAISED + 2.0**29)
        return b.proved(b.SUB(centred, self.raised_rest(b, self.rest)), -RAISED, RAISED)

    def raised_rest(self, b: Lowering, rest: Value) -> Value:
        """(mean − middle) · 2^(15 + k)."""
        return product(b, rest, power(b, self.exponent), 30)

    def total(self, b: Lowering) -> Value:
        """T · 4^least, rounded."""
        above = b.SUB(self.exponent, b.number(15 + self.least, self.exponent))
        shift = b.MINIMUM(b.ADD(above, above), b.number(31, above))
        return b.ARITHMETIC_RIGHT_SHIFT(self.u, shift, round=True)

    def root(self, b: Lowering) -> Value:
        """√T · 2^(12.5 + least), rounded."""
        mantissa = product(b, self.u, inverse(b, self), 31)  # √u, times 2^28
        above = b.SUB(self.exponent, b.number(15 + self.least, self.exponent))
        return b.ARITHMETIC_RIGHT_SHIFT(mantissa, above, round=True)


def power(b: Lowering, exponent: Value) -> Value:
    return b.LOGICAL_LEFT_SHIFT(b.number(1, exponent), exponent)


def spread(b: Lowering, x: Value, eps: float, centred: bool) -> Spread:
    """The spread of quantized rows [R, N] about their means or about zero."""
    length = x.shape[1]
    most = LONGEST if centred or x.dtype is d.I16 else _LONGEST_ABOUT_ZERO
    if length > most:
        raise Unsupported(f"a norm over {length} elements; {most} is the most in integers")
    if x.dtype is d.I8:
        return _of_bytes(b, x, eps, centred)
    if x.dtype is d.I16:
        return _of_shorts(b, x, eps, centred)
    raise Unsupported(f"a norm of quantized values needs int8 or int16, not {x.dtype}")


def _means(b: Lowering, x: Value) -> tuple[Value, Value, Value, Value]:
    """Sums of rows, the whole numbers next to their means, and what the sums have beyond those.

    The last result is mean − middle, times 2^30: it is at most ½. The 31-bit factor of the middle
    is 2^-31 off, which is less of any mean than the 1/2N to the next half, or one half of N more.
    """
    length = x.shape[1]
    most = length // 2 + (length > 1 << 14)
    total = b.REDUCE_SUM(b.widened(x), axis=1)
    middle = b.with_quant(b.rescale(total, [1 / length], zero_of(x), x.dtype), x.quant)
    beyond = b.SUB(total, product(b, b.widened(middle), b.number(length, total)))
    b.proved(beyond, -most, most)
    if length < 4:  # 2^30 / N is whole enough, and too large for a fraction
        return total, middle, beyond, product(b, beyond, b.number(round(2.0**30 / length), beyond))
    return total, middle, beyond, scaled(b, beyond, 2.0**30 / length)


@dataclass(frozen=True, slots=True)
class _Squares:
    """Σ (x − middle)² of int8 rows, what it is at most, and Σ (x − middle)."""

    about: Value
    bound: int
    middle: Value | None = None
    rest: Value | None = None
    beyond: Value | None = None


def _about_means(b: Lowering, x: Value) -> _Squares:
    """Whole numbers have Σ (x − middle)² ≥ |Σ (x − middle)|: that fits wherever this does.

    The parts that the sum is the difference of are N · 2^14 at most.
    """
    length, zero = x.shape[1], zero_of(x)
    squares = b.REDUCE_SUM(b.MUL(x, x, b.const([0], d.I8)), axis=1)
    total, middle, beyond, rest = _means(b, x)
    stored = b.ADD(total, b.number(length * zero, total))  # Σ of the integers themselves
    level = b.ADD(b.widened(middle), b.number(zero, total))
    within = b.SUB(squares, product(b, level, stored))  # the sum plus middle · (sum − N · middle)
    b.proved(within, -length * 64 - 256, length * (16257 + 64) + 256)
    about = b.proved(b.SUB(within, product(b, level, beyond)), 0, length * 16257)
    return _Squares(about, length * 16257, middle, rest, beyond)


def _about_zero(b: Lowering, x: Value) -> _Squares:
    """The parts are N · 81664 at most."""
    length, zero = x.shape[1], zero_of(x)
    squares = b.REDUCE_SUM(b.MUL(x, x, b.const([0], d.I8)), axis=1)
    if not zero:
        return _Squares(squares, length * 16384)
    total = b.REDUCE_SUM(b.widened(x), axis=1)
    twice = product(b, total, b.number(2 * zero, total))
    about = b.SUB(b.SUB(squares, twice), b.number(length * zero * zero, total))
    return _Squares(b.proved(about, 0, length * 65025), length * 65025)


def _of_bytes(b: Lowering, x: Value, eps: float, centred: bool) -> Spread:
    """int8: squares are summed as they are, and T is at least half of their sum.

    What is taken off them is (Σ (x − middle))² / N and less than 1, of which T is left: u is not
    negative, and below 2^31 since k is that of the larger sum.
    """
    s = (_about_means if centred else _about_zero)(b, x)
    more = x.shape[1] * eps / scale_of(x) ** 2
    coarse = _coarseness(s.bound, more)
    if coarse:
        return _dominated(b, x, s, more, coarse)
    whole = math.ceil(more)
    sure = b.ADD(s.about, b.number(whole, s.about)) if whole else s.about
    k = half_zeros(b, sure)
    twice_k = b.ADD(k, k)
    u = b.LOGICAL_LEFT_SHIFT(sure, twice_k)
    if s.rest is not None and s.beyond is not None:
        u = b.SUB(u, product(b, s.rest, b.LOGICAL_LEFT_SHIFT(s.beyond, twice_k), 30))
        b.proved(u, -1)
    if whole != more:
        less = b.number(round((whole - more) * 2.0**30), k)
        u = b.proved(b.SUB(u, product(b, less, power(b, twice_k), 30)), -2)
    exponent = b.ADD(k, b.number(15, k))
    return Spread(x, s.middle, s.rest, u, exponent, _lowest(s.bound + more))


def _lowest(most: float) -> int:
    """The largest k with most · 4^k < 2^31, which all smaller totals have too."""
    return min(math.floor((31 - math.log2(most + 1)) / 2), _HIGHEST)


def _coarseness(bound: int, more: float) -> int:
    """How often all has to be divided by 4 to fit 31 bits."""
    found = next((g for g in range(16) if (bound + more + 1) / 4.0**g < 2**31), None)
    if found is None:
        raise Unsupported(_FAR)
    return found


def _dominated(b: Lowering, x: Value, s: _Squares, more: float, coarse: int) -> Spread:
    """Where ε is so much more than the squares that these need no fractions."""
    about = s.about
    if s.rest is not None and s.beyond is not None:
        about = b.SUB(about, product(b, s.rest, s.beyond, 30))
    down = b.rescale(about, [4.0**-coarse], 0, d.I32)
    sure = b.ADD(down, b.number(round(more / 4.0**coarse), down))
    k = half_zeros(b, sure)
    u = b.LOGICAL_LEFT_SHIFT(sure, b.ADD(k, k))
    exponent = b.ADD(k, b.number(15 - coarse, k))
    return Spread(x, s.middle, s.rest, u, exponent, -coarse)


def _of_shorts(b: Lowering, x: Value, eps: float, centred: bool) -> Spread:
    """int16: each row is shifted up as far as its largest element, or ε, allows.

    The largest square then has 28 bits and more, less those of N. The reach is whole and below
    2^(30 − up), and −32768 a step beyond it at most: no |x − middle| · 2^up is more than 2^30, nor
    √ε · 2^up more than 2^30 − 2^up. So N squares of both, each over 2^bits, are below 2^31.
    """
    length = x.shape[1]
    bits = 2 * math.ceil(math.log2(length) / 2)  # even, and N ≤ 2^bits
    middle = rest = None
    wide = b.widened(x)
    largest, lowest = (_largest(b, v) for v in (x, negated(b, x)))  # −32768 may count as −32767
    if centred:
        _, middle, _, rest = _means(b, x)
        level = b.widened(middle)
        wide, largest, lowest = b.SUB(wide, level), b.SUB(largest, level), b.ADD(lowest, level)
    floor = math.sqrt(eps) / scale_of(x)  # √ε in steps
    if floor > 2.0 ** (29 - bits // 2):
        raise Unsupported(_FAR)
    farther = b.MAXIMUM(largest, lowest)
    b.proved(farther, 0)  # of a row's ends one is not on the other side of its middle
    reach = b.MAXIMUM(farther, b.number(math.ceil(floor), lowest))
    up = b.SUB(b.CLZ(reach), b.number(2, reach))  # reach · 2^up < 2^30
    less = bits // 2 if bits <= _SHORT else 0  # a product is shifted by 31 at most
    lift = b.SUB(up, b.number(less, up)) if less else up
    raised = b.LOGICAL_LEFT_SHIFT(wide, lift)
    most = 2.0 ** (30 - less)
    b.proved(raised, -most, most)
    most *= 1.5  # the mean is up to half a step off the middle
    if rest is not None:
        raised = b.SUB(raised, product(b, rest, power(b, lift), 30))
        b.proved(raised, -most, most)
    total = _squares(b, raised, bits)
    if floor:
        fine = min(30 - math.ceil(math.log2(floor) + 1), 62)
        level = product(b, b.number(round(floor * 2.0**fine), up), power(b, up), fine)
        b.proved(level, 0, 2.0**30 - 2.0**14)
        more = scaled(b, product(b, level, level, 30), length / 2.0**bits)
        total = b.proved(b.ADD(total, more), 0)
    k = half_zeros(b, total)
    u = b.LOGICAL_LEFT_SHIFT(total, b.ADD(k, k))
    exponent = b.MINIMUM(b.ADD(b.ADD(k, up), b.number(-bits // 2, k)), b.number(30, k))
    least = _lowest(length * (2.0**30 + floor**2))
    b.proved(exponent, 15 + least, 30)  # no T is larger than the one that k is least of
    return Spread(x, middle, rest, u, exponent, least)


def _largest(b: Lowering, x: Value) -> Value:
    return b.levels(extreme(b, "REDUCE_MAX", x, 1))


def _squares(b: Lowering, raised: Value, bits: int) -> Value:
    """Σ x² / 2^(30 + bits) of rows of at most 2^bits elements: 2^30 at most, and roundings.

    Short rows come without bits/2 of their bits. In long ones many small squares would all be
    rounded off; their sum is taken apart, and what is rounded is no more than that of two elements.
    Squares about the mean add up to less than those about the middle, none of which is more than
    2^60 / 2^(30 + bits).
    """
    most = 2.0**30 + 2**_SHORT
    if bits <= _SHORT:
        return b.proved(b.REDUCE_SUM(product(b, raised, raised, 30), axis=1), 0, most)
    full, down = product(b, raised, raised, 31), b.number(bits - 1, raised)
    high = b.ARITHMETIC_RIGHT_SHIFT(full, down, round=True)
    low = b.SUB(full, b.LOGICAL_LEFT_SHIFT(high, down))
    b.proved(low, -(1 << bits - 2), 1 << bits - 2)  # what rounding to the nearest leaves
    rest = b.rescale(b.REDUCE_SUM(low, axis=1), [2.0 ** (1 - bits)], 0, d.I32)
    return b.proved(b.ADD(b.proved(b.REDUCE_SUM(high, axis=1), 0, 2 * most - 1), rest), 0, most)


def half_zeros(b: Lowering, total: Value) -> Value:
    """The largest k with total · 4^k < 2^31, at most 14; by a rounding shift."""
    zeros = b.CLZ(total)
    half = b.ARITHMETIC_RIGHT_SHIFT(
        b.SUB(zeros, b.number(2, zeros)), b.number(1, zeros), round=True
    )
    return b.MINIMUM(half, b.number(_HIGHEST, half))


def inverse(b: Lowering, s: Spread) -> Value:
    """u^-½ times 2^28: 1/√T is this · 2^(k − 43.5). Only rows without spread are below 2^27."""
    return inverse_root(b, b.MAXIMUM(s.u, b.number(1 << 27, s.u)))
