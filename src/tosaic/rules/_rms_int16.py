"""RMS normalisation of int16 rows to 8 bits with int16 elementwise operators only.

A row lies about the middle of its ends, which int16 always holds, and a power of two of the row's
own makes the farther end fill 15 bits. What the mean is off that middle comes away after that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tosaic.errors import Unsupported
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.reduce_extreme import extreme
from tosaic.lowering.builder import Lowering
from tosaic.rules._operands import scale_of
from tosaic.rules._rows import inverse_root, product, scaled
from tosaic.rules._variance import half_zeros, power
from tosaic.spec import dtypes as d

_FILL = 14  # bits that the farther end of a row has at least
_MOST = 2.0**30.05  # sum of squares as ``_down`` shifts them, their roundings included
_SURE = 0.98  # of the least sum of squares, since each of them is rounded


@dataclass(frozen=True, slots=True)
class _Ends:
    """The middle of a row's ends, how far these are from it, and from there to the mean."""

    middle: Value | None
    reach: Value
    beyond: Value | None  # times N


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
    """Normalised elements of quantized int16 rows [R, N], as int32 with their meaning."""
    length, floor = x.shape[1], math.sqrt(eps) / scale_of(x)
    if floor > 1 << 14 or not 4 <= length <= 1 << 15:
        raise Unsupported("int16 elements of so short or long rows, or of so large an eps")
    ends = _ends(b, x, centred)
    reach = ends.reach
    if floor:
        reach = b.MAXIMUM(reach, b.number(math.ceil(2 * floor), reach))
    zeros = b.SUB(b.CLZ(reach), b.number(31 - _FILL, reach))  # reach · 2^zeros fills 15 bits
    exponent = b.MINIMUM(b.MAXIMUM(zeros, b.number(0, zeros)), b.number(_FILL, zeros))
    elements = _elements(b, x, ends, exponent)
    down = _down(length, centred)
    total = b.REDUCE_SUM(b.rescale(product(b, elements, elements), [2.0**-down], 0, d.I32), axis=1)
    b.proved(total, 0, _MOST)
    if floor:
        more = length * (floor / (1 + centred)) ** 2 / 2.0**down
        fine = min(30 - math.ceil(math.log2(more)), 62)
        level = b.number(round(more * 2.0**fine), total)
        total = b.ADD(total, product(b, level, power(b, b.ADD(exponent, exponent)), fine))
        b.proved(total, 0, 1.25 * _MOST)
    k = half_zeros(b, total)
    u = b.LOGICAL_LEFT_SHIFT(total, b.ADD(k, k))
    inverse = inverse_root(b, b.MAXIMUM(u, b.number(1 << 27, u)))  # 2^43.5 / √total / 2^k
    least = math.sqrt(_SURE * _least(length, centred))
    whole = product(b, inverse, power(b, k), 14)
    brief = b.rescale(whole, [32767 * least * 2.0 ** (14 - 43.5)], 0, d.I16)
    unit = math.sqrt(length / 2.0**down) / least / 32767
    return b.with_quant(product(b, elements, brief), Quant(unit))


def _ends(b: Lowering, x: Value, centred: bool) -> _Ends:
    top, low = (b.levels(extreme(b, name, x, 1)) for name in ("REDUCE_MAX", "REDUCE_MIN"))
    if not centred:
        return _Ends(None, b.MAXIMUM(top, b.SUB(b.number(0, low), low)), None)
    middle = b.ARITHMETIC_RIGHT_SHIFT(b.ADD(top, low), b.number(1, top), round=True)
    total = b.REDUCE_SUM(b.levels(x), axis=1)
    beyond = b.SUB(total, product(b, middle, b.number(x.shape[1], middle)))
    return _Ends(b.levels(middle, d.I16), b.SUB(middle, low), beyond)


def _elements(b: Lowering, x: Value, ends: _Ends, exponent: Value) -> Value:
    """x · 2^exponent, or (x − mean) · 2^(exponent − 1), which is up to twice as far off."""
    factor = b.levels(power(b, exponent), d.I16)
    if ends.middle is None or ends.beyond is None:
        return b.levels(product(b, x, factor), d.I16)
    centred = b.levels(b.SUB(b.levels(x), b.levels(ends.middle)), d.I16)
    filled = b.rescale(product(b, centred, factor), [0.5], 0, d.I16)
    offset = scaled(b, ends.beyond, 2.0**15 / x.shape[1])  # mean − middle, times 2^15
    level = b.levels(product(b, offset, power(b, exponent), 16), d.I16)
    return b.levels(b.SUB(b.levels(filled), b.levels(level)), d.I16)
