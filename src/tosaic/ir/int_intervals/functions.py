"""Bounds of RESCALE and TABLE: functions of one value."""

from __future__ import annotations

import numpy as np

from tosaic.ir.graph import Array, Op
from tosaic.ir.int_intervals.core import Bounds, Intervals, bounded, constant_number, rule, whole
from tosaic.spec.dtypes import I8, I16, I32

INT32 = I32.range


@rule("RESCALE")
def _rescaled(a: Intervals, op: Op) -> list[Bounds]:
    """Monotone, so that the ends of the operand give those of the result.

    TOSA wants the result inside int32 before it narrows, and where multipliers have 32 bits the
    operand less its zero point below half of what is shifted out.
    """
    x, out, kind = a.of(op.ins[0]), op.outs[0], op.ins[0].dtype
    if any(v.const is None for v in op.ins[1:]) or op.attrs["rounding_mode"] == "INEXACT_ROUND":
        a.require(False, "its scale is not a constant, or its rounding is left open")
        return [whole(out)]
    multiplier, shift = (
        np.asarray(v.const.array, np.int64).reshape(-1) for v in op.ins[1:3] if v.const
    )
    given, zero = constant_number(op.ins[3]), constant_number(op.ins[4])
    if op.attrs["input_unsigned"]:
        given %= 1 << kind.bits
        if x.ends[0] < 0:
            x = bounded(0, (1 << kind.bits) - 1, op.ins[0].type.rank)
    if len(multiplier) == 1 and x.low.size == 1 and op.attrs["rounding_mode"] == "SINGLE_ROUND":
        return [_one_rescaled(a, op, x, multiplier.item(), shift.item(), given, zero)]
    low, high = x.low - given, x.high - given
    if len(multiplier) == 1:
        multiplier, shift = multiplier[0], shift[0]
        fine = multiplier >= 0 and 2 <= shift <= 62
    else:
        fine = bool((multiplier >= 0).all() and (shift >= 2).all() and (shift <= 62).all())
    if not a.require(fine, "its multiplier is negative or its shift outside of 2 to 62"):
        return [whole(out)]
    limit = np.left_shift(1, shift - 1)

    def scaled(end: Array) -> Array:
        half = limit
        if op.attrs["rounding_mode"] == "DOUBLE_ROUND":
            half = half + np.where(shift > 31, np.where(end >= 0, 1 << 30, -(1 << 30)), 0)
        made: Array = (end * multiplier + half) >> shift
        return made

    if op.attrs["scale32"]:
        inside = (low >= -limit) & (high < limit)
        a.require(inside.all(), "a value can be too large for its shift")
    made = Bounds(scaled(low), scaled(high), x.root)
    least, most = made.ends
    a.require(INT32[0] <= least and most <= INT32[1], "a result can lie outside int32")
    if not op.attrs["output_unsigned"]:
        return [made.map(lambda end: end + zero) if zero else made]
    zero %= 1 << out.dtype.bits
    if most + zero < 1 << out.dtype.bits - 1:
        return [made.map(lambda end: (end + zero).clip(0))]
    return [whole(out)]  # bytes above 127 are negative where they are stored


def _one_rescaled(
    a: Intervals, op: Op, x: Bounds, multiplier: int, shift: int, given: int, zero: int
) -> Bounds:
    """The same of one interval, in whole numbers, which are many times as fast as arrays."""
    out = op.outs[0]
    if multiplier < 0 or not 2 <= shift <= 62:
        a.require(False, "its multiplier is negative or its shift outside of 2 to 62")
        return whole(out)
    low, high = (end - given for end in x.ends)
    half = 1 << shift - 1
    if op.attrs["scale32"] and not (-half <= low and high < half):
        a.require(False, "a value can be too large for its shift")
    low, high = (low * multiplier + half) >> shift, (high * multiplier + half) >> shift
    if not (INT32[0] <= low and high <= INT32[1]):
        a.require(False, "a result can lie outside int32")
    if op.attrs["output_unsigned"]:
        zero %= 1 << out.dtype.bits
        if high + zero >= 1 << out.dtype.bits - 1:
            return whole(out)  # bytes above 127 are negative where they are stored
        low, high = max(low, -zero), max(high, -zero)
    least, most = out.dtype.range
    low, high = (min(max(end + zero, least), most) for end in (low, high))
    return bounded(low, high, out.type.rank)


class _Range:
    """The least and the greatest of any run of entries, by doubling runs."""

    def __init__(self, entries: Array) -> None:
        self.least, self.most = [entries], [entries]
        size = 1
        while 2 * size <= len(entries):
            for rows, pick in ((self.least, np.minimum), (self.most, np.maximum)):
                rows.append(pick(rows[-1][:-size], rows[-1][size:]))
            size *= 2

    def __call__(self, first: Array, last: Array) -> tuple[Array, Array]:
        level = np.frexp((last - first + 1).astype(np.float64))[1] - 1
        low, high = np.empty(first.shape, np.int64), np.empty(first.shape, np.int64)
        for n in np.unique(level):
            at, size = level == n, 1 << int(n)
            i, j = first[at], last[at] + 1 - size
            low[at] = np.minimum(self.least[n][i], self.least[n][j])
            high[at] = np.maximum(self.most[n][i], self.most[n][j])
        return low, high


@rule("TABLE")
def _table(a: Intervals, op: Op) -> list[Bounds]:
    """Entries that the operand can choose; of int16, lines between them, which end at nodes."""
    x, source = a.of(op.ins[0]), op.ins[1].const
    if source is None:
        return [whole(op.outs[0])]
    entries = np.asarray(source.array, np.int64)
    if op.ins[0].dtype is I8:
        low, high = _Range(entries)(x.low + 128, x.high + 128)
        return [Bounds(low, high, x.root)]
    slope = np.diff(entries)
    first, last = (x.low + 32768) >> 7, (x.high + 32768) >> 7
    steep = _Range(slope)
    least, most = steep(first, last)
    a.require(
        bool((least >= I16.range[0]).all() and (most <= I16.range[1]).all()),
        "neighbouring table entries are further apart than an int16",
    )

    def met(end: Array, segment: Array) -> Array:
        made: Array = (entries[segment] << 7) + slope[segment] * ((end + 32768) & 127)
        return made

    ends = met(x.low, first), met(x.high, last)
    low, high = np.minimum(*ends), np.maximum(*ends)
    inside = last > first  # nodes from the one behind the first end on
    if inside.any():
        nodes = _Range(entries << 7)(np.where(inside, first + 1, last), last)
        low = np.where(inside, np.minimum(low, nodes[0]), low)
        high = np.where(inside, np.maximum(high, nodes[1]), high)
    return [Bounds(low, high, x.root)]
