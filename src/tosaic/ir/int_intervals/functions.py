"""Bounds of RESCALE and TABLE: functions of one value."""

from __future__ import annotations

import numpy as np

from tosaic.ir.graph import Array, Op, Value
from tosaic.ir.int_intervals.core import (
    Bounds,
    End,
    Intervals,
    constant_number,
    greater,
    lesser,
    paired,
    rule,
    where,
    whole,
)
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
    multiplier, shift = (_numbers(v, out.type.rank) for v in op.ins[1:3])
    given, zero = constant_number(op.ins[3]), constant_number(op.ins[4])
    if op.attrs["input_unsigned"]:
        given %= 1 << kind.bits
        if x.ends[0] < 0:
            x = Bounds(0, (1 << kind.bits) - 1)
    fine = np.all((multiplier >= 0) & (shift >= 2) & (shift <= 62))
    if not a.require(fine, "its multiplier is negative or its shift outside of 2 to 62"):
        return [whole(out)]
    low, high, limit = x.low - given, x.high - given, 1 << shift - 1

    def scaled(end: End) -> End:
        half = limit
        if op.attrs["rounding_mode"] == "DOUBLE_ROUND":
            half = half + where(shift > 31, where(end >= 0, 1 << 30, -(1 << 30)), 0)
        return (end * multiplier + half) >> shift

    if op.attrs["scale32"]:
        inside = np.all((low >= -limit) & (high < limit))
        a.require(inside, "a value can be too large for its shift")
    made = paired(scaled(low), scaled(high), x.root)
    least, most = made.ends
    a.require(INT32[0] <= least and most <= INT32[1], "a result can lie outside int32")
    if op.attrs["output_unsigned"]:
        zero %= 1 << out.dtype.bits
        if most + zero >= 1 << out.dtype.bits - 1:
            return [whole(out)]  # bytes above 127 are negative where they are stored
        made = made.within(-zero, most)
    return [Bounds(made.low + zero, made.high + zero, made.root)]


def _numbers(value: Value, rank: int) -> End:
    """The numbers of a constant, one for each channel, or the one that it has."""
    assert value.const is not None
    array = value.const.array
    if array.size == 1:
        return int(array.item())
    return np.asarray(array, np.int64).reshape((1,) * rank + (-1,))


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


def _extremes(entries: Array, first: End, last: End) -> tuple[End, End]:
    """The least and the greatest of runs of entries, from the first to the last."""
    if type(first) is not int:
        return _Range(entries)(first, last)
    run = entries[first : last + 1]
    return int(run.min()), int(run.max())


@rule("TABLE")
def _table(a: Intervals, op: Op) -> list[Bounds]:
    """Entries that the operand can choose; of int16, lines between them, which end at nodes."""
    x, source = a.of(op.ins[0]), op.ins[1].const
    if source is None:
        return [whole(op.outs[0])]
    entries = np.asarray(source.array, np.int64)
    if op.ins[0].dtype is I8:
        return [paired(*_extremes(entries, x.low + 128, x.high + 128), x.root)]
    slope = np.diff(entries)
    first, last = (x.low + 32768) >> 7, (x.high + 32768) >> 7
    least, most = _extremes(slope, first, last)
    a.require(
        np.all((least >= I16.range[0]) & (most <= I16.range[1])),
        "neighbouring table entries are further apart than an int16",
    )

    def met(end: End, segment: End) -> End:
        made = (entries[segment] << 7) + slope[segment] * ((end + 32768) & 127)
        return int(made) if type(end) is int else made

    ends = met(x.low, first), met(x.high, last)
    low, high = lesser(*ends), greater(*ends)
    inside = last > first  # nodes from the one behind the first end on
    if np.any(inside):
        nodes = _extremes(entries << 7, where(inside, first + 1, last), last)
        low = where(inside, lesser(low, nodes[0]), low)
        high = where(inside, greater(high, nodes[1]), high)
    return [paired(low, high, x.root)]
