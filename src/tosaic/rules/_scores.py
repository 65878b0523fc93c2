"""Attention scores in integers: masks, subtraction of the row maximum, exponentials.

Ranges are known without data: a score is at most what integers as large as they get give. What
is ``FAR`` below the largest of its row counts for nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Array, Value
from tosaic.lowering.alternatives.mask import number_of
from tosaic.lowering.alternatives.reduce_extreme import extreme
from tosaic.lowering.builder import Lowering, multiplier_and_shift
from tosaic.rules._operands import scale_of
from tosaic.rules._rows import paired, product, scaled, tabled
from tosaic.rules._sums import largest
from tosaic.spec import dtypes as d

FAR = 12.0  # exp(-12) is 0.2 of the 15 bits that an exponential has
_FARTHEST = 20.8  # exp(-20.8) is 1 of 30 bits
_STEPS = 65535  # of 16 bits
_COARSEST = 0.5  # a step of int16 scores that leaves something of them


@dataclass(frozen=True, slots=True)
class Mask:
    """What is added to scores, and where they count; None where nothing is, or all do.

    Arrays are known, Values are not. ``has_empty_rows`` says whether some may allow nothing.
    """

    added: Array | Value | None = None
    allowed: Array | Value | None = None
    has_empty_rows: bool = False


@dataclass(frozen=True, slots=True)
class Scores:
    """Sums of products as integers, their unit, and the largest real score there can be."""

    sums: Value
    unit: float
    bound: float
    mask: Mask


@dataclass(frozen=True, slots=True)
class Exponentials:
    """exp of scores less the largest of their row, as integers where 1 is nearly 2^bits."""

    values: Value
    bits: int


def known_mask(added: Array, bound: float) -> Mask:
    """A mask of real numbers: what is beyond reach of all scores is not allowed at all.

    A row's numbers may all be less by one number, so they are taken about their middle.
    """
    top = added.max(-1, keepdims=True)
    allowed = added >= top - 2 * bound - FAR
    allowed &= added > -np.inf
    if not allowed.all():
        added = np.where(allowed, added, np.inf)
        bottom = np.minimum(added.min(-1, keepdims=True), top)
        added = np.where(allowed, added, bottom)
    else:
        bottom = added.min(-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        about = np.nan_to_num(added - (top + bottom) / 2, nan=0.0, posinf=0.0, neginf=0.0)
    some = None if allowed.all() else allowed
    return Mask(about if about.any() else None, some, bool((~allowed.any(-1)).any()))


def short(b: Lowering, s: Scores) -> Exponentials:
    """int16 scores, which cost nothing behind accumulators, and a table of int16.

    A difference of int16 needs 17 bits, so half of the largest is taken twice; the bit that is
    lost is the same for all of a row. The largest index stays within the table.
    """
    gap = FAR if s.mask.allowed is not None else 0.0
    step = (s.bound + _added_bound(s) + gap) / 32767
    if not 0 < step <= _COARSEST:
        raise Unsupported("scores of attention lie too far apart for int16")
    x = b.rescale(s.sums, [s.unit / step], 0, d.I16)
    x = _masked_short(b, x, s.mask, step)
    reach = min(FAR, _STEPS * step)
    top = b.levels(extreme(b, "REDUCE_MAX", x, x.type.rank - 1))
    half = b.rescale(b.SUB(top, b.number(math.floor(reach / 2 / step) - 2, top)), [0.5], 0, d.I16)
    below = b.SUB(b.rescale(x, [2.0**13], 0, d.I32), b.rescale(half, [2.0**14], 0, d.I32))
    index = b.rescale(below, [(_STEPS + 1) * step / reach / 2.0**13], 0, d.I16)
    return _kept(b, _table(b, index, reach), s.mask)


def _table(b: Lowering, index: Value, reach: float) -> Exponentials:
    """exp from −reach to 0; lines between nodes are above it by half as much as nodes are below."""
    nodes = np.exp(reach * (np.arange(513) / 512 - 1)) * (1 - (reach / 512) ** 2 / 16)
    wide = b.TABLE(index, b.const(np.round(32767 * nodes), d.I16))  # with 7 more bits
    return Exponentials(b.rescale(wide, [1 / 128], 0, d.I16), 15)


def _added_bound(s: Scores) -> float:
    """How much a mask can change a score by; more than puts it out of reach does not count."""
    added = s.mask.added
    if added is None:
        return 0.0
    if not isinstance(added, Value):
        return float(np.abs(added).max())
    return min(largest(added) * scale_of(added), 2 * s.bound + FAR)


def _masked_short(b: Lowering, x: Value, mask: Mask, step: float) -> Value:
    if mask.added is not None:
        if isinstance(mask.added, Value):
            factor = min(scale_of(mask.added) / step, 2.0**20)  # all that is more saturates
            added = b.rescale(mask.added, [factor], 0, d.I16)
        else:
            added = b.const(np.round(mask.added / step), d.I16)
        x = _narrow(b, b.ADD, x, added)
    if mask.allowed is None:
        return x
    if isinstance(mask.allowed, Value):
        ones = _ones(b, mask.allowed)
        ends = b.SUB(product(b, ones, b.number(_STEPS, ones)), b.number(32768, ones))
        return _narrow(b, b.MINIMUM, x, b.levels(ends, d.I16))
    return _narrow(b, b.MINIMUM, x, b.const(np.where(mask.allowed, 32767, -32768), d.I16))


def _narrow(b: Lowering, emit: object, x: Value, y: Value) -> Value:
    """An operator on int16, as devices have it: TOSA has it on int32 only."""
    both = (b.rescale(v, [1.0], 0, d.I32) for v in (x, y))
    return b.rescale(emit(*both), [1.0], 0, d.I16)  # type: ignore[operator]


def _ones(b: Lowering, allowed: Value) -> Value:
    """1 where allowed, else 0, as int32."""
    return number_of(b, allowed, d.I32)


def _kept(b: Lowering, e: Exponentials, mask: Mask) -> Exponentials:
    """Exponentials only where a mask allows them; needed where a row may allow nothing."""
    if not mask.has_empty_rows or mask.allowed is None:
        return e
    if isinstance(mask.allowed, Value):
        ones = _ones(b, mask.allowed)
    else:
        ones = b.const(mask.allowed.astype(np.int32), d.I32)
    if e.values.dtype is d.I32:
        return Exponentials(product(b, e.values, ones), e.bits)
    brief = b.rescale(ones, [1.0], 0, d.I16)
    return Exponentials(b.rescale(product(b, e.values, brief), [1.0], 0, d.I16), e.bits)


def exact(b: Lowering, s: Scores) -> Exponentials:
    """int32 scores and 30 bits: how often the largest is halved, in steps of 2^-24, byte by byte.

    2^-x of the first two bytes is the product of two tables, and the third is so small that it is
    1 less a multiple of it. Whole halvings are shifts, so what is small is as precise as the rest:
    in a long row it may be most of the sum.
    """
    s, far = _coarse(b, s, _FARTHEST)
    below = _below(b, s, far)
    halving = math.log(2.0)
    factor = min((1 << 24) * s.unit / halving, 31 << 24)  # what is more leaves nothing
    steps = scaled(b, b.SUB(b.number(0, below), below), factor)
    steps = b.MINIMUM(steps, b.number((31 << 24) - 1, steps))
    bits = b.number(24, steps)
    whole = b.ARITHMETIC_RIGHT_SHIFT(b.SUB(steps, b.number(1 << 23, steps)), bits, round=True)
    rest = b.SUB(steps, b.LOGICAL_LEFT_SHIFT(whole, bits))
    upper, last = two_bytes(b, b.proved(rest, 0, (1 << 24) - 1))
    first, second = (
        paired(b, b.SUB(b.number(0, byte), byte), halving / size)
        for byte, size in zip(two_bytes(b, upper), (1 << 8, 1 << 16))
    )
    fine = product(b, first, second, 14)
    less, shift = multiplier_and_shift(halving / (1 << 24), 22)
    share = product(b, last, b.number(less, last))  # of 8 and 22 bits
    fine = b.SUB(fine, product(b, fine, share, shift))
    return _kept(b, Exponentials(b.ARITHMETIC_RIGHT_SHIFT(fine, whole, round=True), 30), s.mask)


def in_bytes(b: Lowering, s: Scores) -> Exponentials:
    """int32 scores, and 16 bits from int8 tables: exp of an upper byte times exp of a lower."""
    s, far = _coarse(b, s)
    below = _below(b, s, far)
    steps = scaled(b, b.SUB(b.number(0, below), below), _STEPS / far)
    high, low = two_bytes(b, steps)
    unit = far * s.unit / _STEPS
    factors = []
    for byte, size in ((high, 256 * unit), (low, unit)):
        index = b.rescale(b.SUB(byte, b.number(128, byte)), [1.0], 0, d.I8)
        levels = np.round(65535 * np.exp(-size * np.arange(256))).astype(np.int64)
        factors.append(tabled(b, index, levels))
    return _kept(b, Exponentials(product(b, factors[0], factors[1], 16), 16), s.mask)


def two_bytes(b: Lowering, x: Value) -> tuple[Value, Value]:
    """The upper and the lower byte of 16 bits; by a rounding shift.

    It rounds half up, so that x less 128 is rounded down, and 0 to 255 are left of x.
    """
    eight = b.number(8, x)
    high = b.ARITHMETIC_RIGHT_SHIFT(b.SUB(x, b.number(128, x)), eight, round=True)
    return high, b.proved(b.SUB(x, b.LOGICAL_LEFT_SHIFT(high, eight)), 0, 255)


def _coarse(b: Lowering, s: Scores, far: float = FAR) -> tuple[Scores, int]:
    """Scores in units of which ``far`` are at most 2^27, and how many those are."""
    spare = spare_bits(s.unit, far)
    if spare:
        sums = b.rescale(s.sums, [2.0**-spare], 0, d.I32)
        s = Scores(sums, s.unit * 2.0**spare, s.bound, s.mask)
    return s, math.ceil(far / s.unit)


def spare_bits(unit: float, far: float = FAR) -> int:
    """By how many bits scores of a unit are finer than any result shows."""
    return max(math.ceil(math.log2(far / unit)) - 27, 0)


def _below(b: Lowering, s: Scores, far: int) -> Value:
    """Scores less the largest of their row, −far at least."""
    x, bound = s.sums, math.ceil(s.bound / s.unit)
    if s.mask.added is not None:
        bound += math.ceil(_added_bound(s) / s.unit)
        x = b.ADD(x, _added_wide(b, s, bound))
    lowest = -bound - far - 1
    if bound - lowest >= 1 << 31:
        raise Unsupported("scores of attention do not fit int32")
    if isinstance(s.mask.allowed, Value):
        ones = _ones(b, s.mask.allowed)
        ends = product(b, ones, b.number(bound - lowest, ones))
        x = b.MINIMUM(x, b.ADD(ends, b.number(lowest, ones)))
    elif s.mask.allowed is not None:
        x = b.MINIMUM(x, b.const(np.where(s.mask.allowed, bound, lowest), d.I32))
    below = b.SUB(x, extreme(b, "REDUCE_MAX", x, x.type.rank - 1))
    b.proved(below, d.I32.range[0], 0)
    return b.MAXIMUM(below, b.number(-far, below))


def _added_wide(b: Lowering, s: Scores, most: int) -> Value:
    added = s.mask.added
    if not isinstance(added, Value):
        assert added is not None
        return b.const(np.round(added / s.unit), d.I32)
    factor = min(scale_of(added) / s.unit, 2.0**28 / largest(added))
    levels = b.rescale(added, [factor], 0, d.I32)
    return b.MINIMUM(b.MAXIMUM(levels, b.number(-most, levels)), b.number(most, levels))
