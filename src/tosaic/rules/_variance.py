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
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._operands import negated, scale_of
from tosaic.rules._rows import inverse_root
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
    rest: Fixed | None  # mean − middle
    u: Fixed  # in [1/16, 1); 0 where all of a row is alike
    exponent: Fixed  # 15 + k, 0 to 30
    least: int  # k of the largest T there can be

    @property
    def is_fine(self) -> bool:
        """Whether 2^k is always whole."""
        return self.least >= 0

    def raised(self) -> Fixed:
        """(x − mean) · 2^(15 + k), an int32 below 2^30.5.

        The middle is half a step off, which is 2^29 at most.
        """
        raised = self.about_middle() << self.exponent
        if self.rest is None:
            return raised.proved(-RAISED, RAISED)
        raised = raised.proved(-RAISED - 2.0**29, RAISED + 2.0**29)
        return (raised - self.raised_rest(self.rest)).proved(-RAISED, RAISED)

    def about_middle(self) -> Fixed:
        """x − middle."""
        wide = _steps(self.u.b, self.x)
        return wide if self.middle is None else wide - _steps(self.u.b, self.middle)

    def raised_rest(self, rest: Fixed) -> Fixed:
        """(mean − middle) · 2^(15 + k)."""
        return rest.times(1 << self.exponent, 1.0)

    def total(self) -> Fixed:
        """T · 4^least, rounded."""
        above = self.exponent - (15 + self.least)
        return self.u >> (above + above).minimum(31)

    def root(self, scale: float) -> Value:
        """√T in steps of a scale, as int32 with its quantization parameters."""
        mantissa = self.u.times(inverse(self), 2.0**-28)  # √u
        made = mantissa >> self.exponent - (15 + self.least)
        return made.at(scale / 2.0 ** (12.5 + self.least)).quantized()


def _steps(b: Lowering, x: Value) -> Fixed:
    """Steps from the zero point, as int32."""
    return Fixed.of(b, x).at(1.0)


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


def _means(b: Lowering, x: Value) -> tuple[Fixed, Value, Fixed, Fixed]:
    """Sums of rows, the whole numbers next to their means, and what the sums have beyond those.

    The last result is mean − middle, which is at most ½. The 31-bit factor of the middle is 2^-31
    off, which is less of any mean than the 1/2N to the next half, or one half of N more.
    """
    length = x.shape[1]
    most = length // 2 + (length > 1 << 14)
    total = _steps(b, x).sum(1)
    middle = b.with_quant(b.rescale(total.value, [1 / length], zero_of(x), x.dtype), x.quant)
    beyond = (total - _steps(b, middle) * length).proved(-most, most)
    if length < 4:  # 2^30 / N is whole enough, and too large for a fraction
        return total, middle, beyond, (beyond * round(2.0**30 / length)).at(2.0**-30)
    return total, middle, beyond, beyond.scaled(2.0**-30, 1 / length)


@dataclass(frozen=True, slots=True)
class _Squares:
    """Σ (x − middle)² of int8 rows, what it is at most, and Σ (x − middle)."""

    about: Fixed
    bound: int
    middle: Value | None = None
    rest: Fixed | None = None
    beyond: Fixed | None = None


def _about_means(b: Lowering, x: Value) -> _Squares:
    """Whole numbers have Σ (x − middle)² ≥ |Σ (x − middle)|: that fits wherever this does.

    The parts that the sum is the difference of are N · 2^14 at most.
    """
    length, zero = x.shape[1], zero_of(x)
    stored = Fixed(b, x)
    squares = (stored * stored).sum(1)
    total, middle, beyond, rest = _means(b, x)
    sums = total + length * zero  # Σ of the integers themselves
    level = _steps(b, middle) + zero
    within = squares - level * sums  # the sum plus middle · (sum − N · middle)
    within = within.proved(-length * 64 - 256, length * (16257 + 64) + 256)
    about = (within - level * beyond).proved(0, length * 16257)
    return _Squares(about, length * 16257, middle, rest, beyond)


def _about_zero(b: Lowering, x: Value) -> _Squares:
    """The parts are N · 81664 at most."""
    length, zero = x.shape[1], zero_of(x)
    stored = Fixed(b, x)
    squares = (stored * stored).sum(1)
    if not zero:
        return _Squares(squares, length * 16384)
    about = squares - _steps(b, x).sum(1) * (2 * zero) - length * zero * zero
    return _Squares(about.proved(0, length * 65025), length * 65025)


def _of_bytes(b: Lowering, x: Value, eps: float, centred: bool) -> Spread:
    """int8: squares are summed as they are, and T is at least half of their sum.

    What is taken off them is (Σ (x − middle))² / N and less than 1, of which T is left: u is not
    negative, and below 2^31 since k is that of the larger sum.
    """
    s = (_about_means if centred else _about_zero)(b, x)
    more = x.shape[1] * eps / scale_of(x) ** 2
    coarse = _coarseness(s.bound, more)
    if coarse:
        return _dominated(x, s, more, coarse)
    whole = math.ceil(more)
    sure = s.about + whole if whole else s.about
    k = half_zeros(sure)
    twice_k = k + k
    u = sure << twice_k
    if s.rest is not None and s.beyond is not None:
        u = (u - s.rest.times(s.beyond << twice_k, 1.0)).proved(-1)
    if whole != more:
        less = Fixed(b, k.constant(round((whole - more) * 2.0**30)), 2.0**-30)
        u = (u - less.times(1 << twice_k, 1.0)).proved(-2)
    return Spread(x, s.middle, s.rest, u.at(2.0**-31), k + 15, _lowest(s.bound + more))


def _lowest(most: float) -> int:
    """The largest k with most · 4^k < 2^31, which all smaller totals have too."""
    return min(math.floor((31 - math.log2(most + 1)) / 2), _HIGHEST)


def _coarseness(bound: int, more: float) -> int:
    """How often all has to be divided by 4 to fit 31 bits."""
    found = next((g for g in range(16) if (bound + more + 1) / 4.0**g < 2**31), None)
    if found is None:
        raise Unsupported(_FAR)
    return found


def _dominated(x: Value, s: _Squares, more: float, coarse: int) -> Spread:
    """Where ε is so much more than the squares that these need no fractions."""
    about = s.about
    if s.rest is not None and s.beyond is not None:
        about -= s.rest.times(s.beyond, 1.0)
    sure = about.to(d.I32, 4.0**coarse) + more
    k = half_zeros(sure)
    u = (sure << k + k).at(2.0**-31)
    return Spread(x, s.middle, s.rest, u, k + (15 - coarse), -coarse)


def _of_shorts(b: Lowering, x: Value, eps: float, centred: bool) -> Spread:
    """int16: each row is shifted up as far as its largest element, or ε, allows.

    The largest square then has 28 bits and more, less those of N. The reach is whole and below
    2^(30 − up), and −32768 a step beyond it at most: no |x − middle| · 2^up is more than 2^30, nor
    √ε · 2^up more than 2^30 − 2^up. So N squares of both, each over 2^bits, are below 2^31.
    """
    length = x.shape[1]
    bits = 2 * math.ceil(math.log2(length) / 2)  # even, and N ≤ 2^bits
    middle = rest = None
    wide = _steps(b, x)
    largest, lowest = (_largest(b, v) for v in (x, negated(b, x)))  # −32768 may count as −32767
    if centred:
        _, middle, _, rest = _means(b, x)
        level = _steps(b, middle)
        wide, largest, lowest = wide - level, largest - level, lowest + level
    floor = math.sqrt(eps) / scale_of(x)  # √ε in steps
    if floor > 2.0 ** (29 - bits // 2):
        raise Unsupported(_FAR)
    farther = largest.maximum(lowest)
    farther = farther.proved(0)  # of a row's ends one is not on the other side of its middle
    up = farther.maximum(math.ceil(floor)).zeros() - 2  # reach · 2^up < 2^30
    less = bits // 2 if bits <= _SHORT else 0  # a product is shifted by 31 at most
    lift = up - less if less else up
    most = 2.0 ** (30 - less)
    raised = (wide << lift).proved(-most, most)
    if rest is not None:  # the mean is up to half a step off the middle
        raised = (raised - rest.times(1 << lift, 1.0)).proved(-1.5 * most, 1.5 * most)
    total = _squares(raised, bits)
    if floor:
        fine = min(30 - math.ceil(math.log2(floor) + 1), 62)
        level = Fixed(b, up.constant(round(floor * 2.0**fine)), 2.0**-fine)
        level = level.times(1 << up, 1.0).proved(0, 2.0**30 - 2.0**14)
        more = level.times(level, 2.0**30).at(1.0).scaled(1.0, length / 2.0**bits)
        total = (total + more).proved(0)
    k = half_zeros(total)
    u = (total << k + k).at(2.0**-31)
    exponent = (k + up + (-bits // 2)).minimum(30)
    least = _lowest(length * (2.0**30 + floor**2))
    # No T is larger than the one that k is least of.
    return Spread(x, middle, rest, u, exponent.proved(15 + least, 30), least)


def _largest(b: Lowering, x: Value) -> Fixed:
    return Fixed(b, b.levels(extreme(b, "REDUCE_MAX", x, 1)))


def _squares(raised: Fixed, bits: int) -> Fixed:
    """Σ x² / 2^(30 + bits) of rows of at most 2^bits elements: 2^30 at most, and roundings.

    Short rows come without bits/2 of their bits. In long ones many small squares would all be
    rounded off; their sum is taken apart, and what is rounded is no more than that of two elements.
    Squares about the mean add up to less than those about the middle, none of which is more than
    2^60 / 2^(30 + bits).
    """
    most = 2.0**30 + 2**_SHORT
    if bits <= _SHORT:
        return raised.times(raised, 2.0**30).at(1.0).sum(1).proved(0, most)
    high, low = raised.times(raised, 2.0**31).at(1.0).split(bits - 1)
    low = low.proved(-(1 << bits - 2), 1 << bits - 2)  # what rounding to the nearest leaves
    rest = low.sum(1).to(d.I32, 2.0 ** (bits - 1)).at(1.0)
    return (high.sum(1).proved(0, 2 * most - 1) + rest).proved(0, most)


def half_zeros(total: Fixed) -> Fixed:
    """The largest k with total · 4^k < 2^31, at most 14."""
    return (total.zeros() - 2 >> 1).minimum(_HIGHEST)


def inverse(s: Spread) -> Fixed:
    """u^-½: 1/√T is this · 2^(k − 15.5). Only rows without spread are below 1/16."""
    return inverse_root(s.u.maximum(1 / 16))
