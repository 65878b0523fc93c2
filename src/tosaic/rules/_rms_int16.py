"""RMS normalisation of int16 rows to 8 bits with int16 elementwise operators only.

A row lies about the middle of its ends, which int16 always holds, and a power of two of the row's
own makes the farther end fill 15 bits. What the mean is off that middle comes away after that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tosaic.errors import Unsupported
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.reduce_extreme import extreme
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._operands import scale_of
from tosaic.rules._rows import inverse_root
from tosaic.rules._variance import half_zeros
from tosaic.spec.dtypes import I16, I32

_FILL = 14  # bits that the farther end of a row has at least
_MOST = 2.0**30.05  # sum of squares as ``_down`` shifts them, their roundings included
_SURE = 0.98  # of the least sum of squares, since each of them is rounded


@dataclass(frozen=True, slots=True)
class _Ends:
    """The middle of a row's ends, how far these are from it, and from there to the mean."""

    middle: Fixed | None
    reach: Fixed
    beyond: Fixed | None  # times N


def _down(length: int, centred: bool) -> int:
    """By how many bits squares are shifted for N of them, and a quarter more of eps, to fit int32.

    About the mean squares sum up to less than about the middle of the ends: to N · 2^28.
    """
    return max(math.ceil(math.log2(length)) - 2 * centred, 2)  # RESCALE takes 2^30 from there on


def _least(length: int, centred: bool) -> float:
    """What the sum of squares of a row is at least.

    That is the square of its farther end, or a quarter of that for each element where eps is more.
    About the mean, elements are halved, and ends one step apart are half a step off.
    """
    return 4.0 ** (_FILL - 1 - centred) / 2.0 ** _down(length, centred)


def raised_error(length: int, centred: bool, reach: float) -> float:
    """How far off a normalised element up to ``reach`` is at most.

    By the roundings of elements and of the inverse of their spread, and by those of squares.
    """
    farthest = 2.0 ** (_FILL - centred)
    sums = length * 2.0 ** _down(length, centred) / (2 * farthest) ** 2
    return math.sqrt(length) * (1.2 / farthest + 2.0**-14) + reach * sums


def raised(b: Lowering, x: Value, eps: float, centred: bool) -> Value:
    """Normalised elements of quantized int16 rows [R, N], as quantized int32."""
    length, floor = x.shape[1], math.sqrt(eps) / scale_of(x)
    if floor > 1 << 14 or not 4 <= length <= 1 << 15:
        raise Unsupported("int16 norms need rows of 4 to 32768 elements and a small eps")
    ends = _ends(b, x, centred)
    reach = ends.reach.maximum(math.ceil(2 * floor)) if floor else ends.reach
    zeros = reach.zeros() - (31 - _FILL)  # reach · 2^zeros fills 15 bits
    exponent = zeros.maximum(0).minimum(_FILL)
    elements = _elements(Fixed(b, x), ends, exponent)
    down = _down(length, centred)
    total = (elements * elements).to(I32, 2.0**down).at(1.0).sum(1).proved(0, _MOST)
    if floor:
        more = length * (floor / (1 + centred)) ** 2 / 2.0**down
        fine = min(30 - math.ceil(math.log2(more)), 62)
        level = Fixed(b, total.constant(round(more * 2.0**fine)), 2.0**-fine)
        total += level.times(1 << exponent + exponent, 1.0)
        total = total.proved(0, 1.25 * _MOST)
    k = half_zeros(total)
    u = (total << k + k).at(2.0**-31)
    inverse = inverse_root(u.maximum(1 / 16))  # 2^15.5 / √total / 2^k
    least = math.sqrt(_SURE * _least(length, centred))
    brief = inverse.times(1 << k, 2.0**-14).to(I16, 2.0**15.5 / 32767 / least)
    made = elements * brief
    return made.at(math.sqrt(length / 2.0**down) / least / 32767).quantized()


def _ends(b: Lowering, x: Value, centred: bool) -> _Ends:
    top, low = (Fixed(b, b.levels(extreme(b, name, x, 1))) for name in ("REDUCE_MAX", "REDUCE_MIN"))
    if not centred:
        return _Ends(None, top.maximum(-low), None)
    middle = top + low >> 1
    beyond = Fixed(b, x).to(I32).sum(1) - middle * x.shape[1]
    return _Ends(middle.to(I16), middle - low, beyond)


def _elements(x: Fixed, ends: _Ends, exponent: Fixed) -> Fixed:
    """x · 2^exponent, or (x − mean) · 2^(exponent − 1), which is up to twice as far off."""
    factor = (1 << exponent).to(I16)
    if ends.middle is None or ends.beyond is None:
        filled = x * factor  # which makes the farthest of all fill 15 bits
        return filled.proved(-(2.0**15), 2.0**15).to(I16)
    centred = (x.to(I32) - ends.middle.to(I32)).to(I16)
    filled = (centred * factor).to(I16, 2.0)
    offset = ends.beyond.scaled(2.0**-15, 1 / x.value.shape[1])  # mean − middle
    level = offset.times(1 << exponent, 2.0).to(I16)
    return (filled.to(I32) - level.to(I32)).to(I16).at(1.0)
