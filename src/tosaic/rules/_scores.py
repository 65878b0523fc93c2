"""Attention scores in integers: masks, subtraction of the row maximum, exponentials.

Ranges are known without data: a score is at most what integers as large as they get give. What
is ``FAR`` below the largest of its row counts for nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Array, Value
from tosaic.ir.multipliers import multiplier_and_shift
from tosaic.lowering.alternatives.mask import number_of
from tosaic.lowering.alternatives.reduce_extreme import extreme
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._operands import scale_of
from tosaic.rules._rows import paired, tabled
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
    """Sums of products, and the largest score there can be."""

    sums: Fixed
    bound: float
    mask: Mask


@dataclass(frozen=True, slots=True)
class Exponentials:
    """exp of scores less the largest of their row, as integers where 1 is nearly 2^bits."""

    values: Fixed
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
    x = _masked_short(b, s.sums.to(d.I16, step), s.mask)
    reach = min(FAR, _STEPS * step)
    top = x.map(lambda v: b.levels(extreme(b, "REDUCE_MAX", v, v.type.rank - 1)))
    half = (top - (math.floor(reach / 2 / step) - 2) * step).to(d.I16, 2 * step)
    below = x.to(d.I32, step / 2.0**13) - half.to(d.I32, step / 2.0**13)
    index = below.to(d.I16, reach / (_STEPS + 1))
    return _kept(_table(index, reach), s.mask)


def fine(b: Lowering, s: Scores) -> Exponentials:
    """int32 scores less a largest one that is known to int16, and a table of int16.

    What is the same for all of a row changes no share of it: the largest may be a step off.
    """
    reach = math.log2((s.bound + _added_bound(s) + FAR) / s.sums.unit)
    s, far = _coarse(s, least=math.ceil(reach) - 29)  # differences fit int32
    x, bound = _masked_wide(b, s, far)
    step = bound / 32767
    if step * s.sums.unit > _COARSEST:
        raise Unsupported("scores of attention lie too far apart for int16")
    top = x.to(d.I16, step).map(lambda v: extreme(b, "REDUCE_MAX", v, v.type.rank - 1))
    below = x - top.to(d.I32, 1.0) + (far / 2 - math.ceil(step))
    index = below.to(d.I16, far / (_STEPS + 1))
    return _kept(_table(index, far * s.sums.unit), s.mask)


def _table(index: Fixed, reach: float) -> Exponentials:
    """exp from −reach to 0; lines between nodes are above it by half as much as nodes are below."""
    nodes = np.exp(reach * (np.arange(513) / 512 - 1)) * (1 - (reach / 512) ** 2 / 16)
    return Exponentials(index.table(np.round(32767 * nodes), d.I16).to(d.I16, 1.0), 15)


def _added_bound(s: Scores) -> float:
    """How much a mask can change a score by; more than puts it out of reach does not count."""
    added = s.mask.added
    if added is None:
        return 0.0
    if not isinstance(added, Value):
        return float(np.abs(added).max())
    return min(largest(added) * scale_of(added), 2 * s.bound + FAR)


def _masked_short(b: Lowering, x: Fixed, mask: Mask) -> Fixed:
    if mask.added is not None:
        if isinstance(mask.added, Value):
            factor = min(scale_of(mask.added) / x.unit, 2.0**20)  # all that is more saturates
            added = b.rescale(mask.added, [factor], 0, d.I16)
        else:
            added = b.const(np.round(mask.added / x.unit), d.I16)
        x = _narrow("ADD", x, added)
    if mask.allowed is None:
        return x
    if isinstance(mask.allowed, Value):
        ends = _ones(b, mask.allowed) * _STEPS - 32768
        return _narrow("MINIMUM", x, ends.to(d.I16).value)
    return _narrow("MINIMUM", x, b.const(np.where(mask.allowed, 32767, -32768), d.I16))


def _narrow(name: str, x: Fixed, y: Value) -> Fixed:
    """An operator on int16, as devices have it: TOSA has it on int32 only."""
    both = (v.to(d.I32).value for v in (x, Fixed(x.b, y)))
    return Fixed(x.b, x.b.op(name, *both), x.unit).to(d.I16)


def _ones(b: Lowering, allowed: Array | Value) -> Fixed:
    """1 where allowed, else 0, as int32."""
    if isinstance(allowed, Value):
        return Fixed(b, number_of(b, allowed, d.I32))
    return Fixed(b, b.const(allowed.astype(np.int32), d.I32))


def _kept(e: Exponentials, mask: Mask) -> Exponentials:
    """Exponentials only where a mask allows them; needed where a row may allow nothing."""
    if not mask.has_empty_rows or mask.allowed is None:
        return e
    ones = _ones(e.values.b, mask.allowed)
    if e.values.value.dtype is d.I32:
        return Exponentials(e.values * ones, e.bits)
    return Exponentials((e.values * ones.to(d.I16)).to(d.I16), e.bits)


def exact(b: Lowering, s: Scores) -> Exponentials:
    """int32 scores and 30 bits: how often the largest is halved, in steps of 2^-24, byte by byte.

    2^-x of the first two bytes is the product of two tables, and the third is so small that it is
    1 less a multiple of it. Whole halvings are shifts, so what is small is as precise as the rest:
    in a long row it may be most of the sum.
    """
    s, far = _coarse(s, _FARTHEST)
    below = _below(b, s, far)
    halving = math.log(2.0)
    factor = min((1 << 24) * s.sums.unit / halving, 31 << 24)  # what is more leaves nothing
    steps = (-below).at(1.0).scaled(1.0, factor).minimum((31 << 24) - 1)
    whole, rest = steps.split_down(24)
    upper, last = rest.split_down(8)
    first, second = (
        paired(-byte, halving / size) for byte, size in zip(upper.split_down(8), (1 << 8, 1 << 16))
    )
    fine = first.times(second, first.unit * second.unit * 2.0**14).at(1.0)
    less, shift = multiplier_and_shift(halving / (1 << 24), 22)
    share = (last * less).at(2.0**-shift)  # of 8 and 22 bits
    fine -= fine.times(share, 1.0)
    return _kept(Exponentials(fine >> whole, 30), s.mask)


def in_bytes(b: Lowering, s: Scores) -> Exponentials:
    """int32 scores, and 16 bits from int8 tables: exp of an upper byte times exp of a lower."""
    s, far = _coarse(s)
    steps = (-_below(b, s, far)).at(1.0).scaled(1.0, _STEPS / far)
    unit = far * s.sums.unit / _STEPS
    factors = []
    for byte, size in zip(steps.split_down(8), (256 * unit, unit)):
        levels = np.round(65535 * np.exp(-size * np.arange(256))).astype(np.int64)
        factors.append(tabled((byte - 128).to(d.I8), levels))
    return _kept(Exponentials(factors[0].times(factors[1], 2.0**16).at(1.0), 16), s.mask)


def _coarse(s: Scores, far: float = FAR, least: int = 0) -> tuple[Scores, int]:
    """Scores in units of which ``far`` are at most 2^27, and how many those are."""
    spare = max(spare_bits(s.sums.unit, far), least)
    if spare:
        s = replace(s, sums=s.sums.to(d.I32, s.sums.unit * 2.0**spare))
    return s, math.ceil(far / s.sums.unit)


def spare_bits(unit: float, far: float = FAR) -> int:
    """By how many bits scores of a unit are finer than any result shows."""
    return max(math.ceil(math.log2(far / unit)) - 27, 0)


def _masked_wide(b: Lowering, s: Scores, far: int) -> tuple[Fixed, int]:
    """int32 scores, and how far from 0 they can be; what is not allowed is far below all others."""
    x, bound = s.sums.at(1.0), math.ceil(s.bound / s.sums.unit)
    if s.mask.added is not None:
        bound += math.ceil(_added_bound(s) / s.sums.unit)
        x += _added_wide(b, s, bound)
    lowest = -bound - far - 1
    if bound - lowest >= 1 << 31:
        raise Unsupported("scores of attention do not fit int32")
    if isinstance(s.mask.allowed, Value):
        ones = _ones(b, s.mask.allowed)
        if ones.most > 1:  # of another graph, as bytes
            ones = ones.maximum(0).minimum(1)
        x = x.minimum(ones * (bound - lowest) + lowest)
    elif s.mask.allowed is not None:
        x = x.minimum(Fixed(b, b.const(np.where(s.mask.allowed, bound, lowest), d.I32)))
    return x, bound if s.mask.allowed is None else -lowest


def _below(b: Lowering, s: Scores, far: int) -> Fixed:
    """Scores less the largest of their row, −far at least, as integers."""
    x, _ = _masked_wide(b, s, far)
    below = x - x.map(lambda v: extreme(b, "REDUCE_MAX", v, v.type.rank - 1))
    return below.proved(d.I32.range[0], 0).maximum(-far)


def _added_wide(b: Lowering, s: Scores, most: int) -> Fixed:
    added, unit = s.mask.added, s.sums.unit
    if not isinstance(added, Value):
        assert added is not None
        return Fixed(b, b.const(np.round(added / unit), d.I32))
    factor = min(scale_of(added) / unit, 2.0**28 / largest(added))
    return Fixed(b, b.rescale(added, [factor], 0, d.I32)).within(most)
