"""Bounds through operators that move elements, choose them by index, or look at windows of them."""

from __future__ import annotations

import math

import numpy as np

from tosaic.ir.graph import Array, Op, Value
from tosaic.ir.int_intervals.core import (
    ELEMENTS,
    Bounds,
    Intervals,
    paired,
    rule,
    tracked,
)

_LONG = 1 << 10  # elements of an axis that CONCAT and TILE keep apart


def _sizes(value: Value) -> list[int]:
    assert value.const is not None
    return [int(n) for n in value.const.array.reshape(-1)]


@rule("RESHAPE")
def _reshape(a: Intervals, op: Op) -> list[Bounds]:
    """Elements that all differ are reshaped as they are; one axis is found again by its place."""
    if not tracked(op.outs[0]):
        return []
    x, old, new = a.of(op.ins[0]), op.ins[0].shape, op.outs[0].shape
    if x.is_one:
        return [x]
    cases = len(x.low)
    if x.low.shape[1:] == old:
        return [x.moved(lambda end: end.reshape(cases, *new))]
    axes = [i for i, n in enumerate(x.low.shape[1:]) if n > 1]
    if len(axes) == 1:
        (axis,) = axes
        before = math.prod(old[:axis])
        for place, length in enumerate(new):
            if length == old[axis] and math.prod(new[:place]) == before:
                alone = (cases, *(length if i == place else 1 for i in range(len(new))))
                return [Bounds(x.low.reshape(alone), x.high.reshape(alone), x.root)]
    return [x.merged().moved(lambda end: end.reshape(cases, *(1,) * len(new)))]


@rule("TRANSPOSE")
def _transpose(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    perms = (0, *(p + 1 for p in op.attrs["perms"]))
    return [a.of(op.ins[0]).moved(lambda end: end.transpose(perms))]


@rule("REVERSE")
def _reverse(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    return [a.of(op.ins[0]).moved(lambda end: np.flip(end, op.attrs["axis"] + 1))]


@rule("SLICE")
def _slice(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    x = a.of(op.ins[0])
    if x.is_one or op.ins[1].const is None:
        return [x.merged()]
    cuts = [
        slice(None) if n == 1 else slice(start, start + size)
        for n, start, size in zip(x.low.shape[1:], _sizes(op.ins[1]), op.outs[0].shape)
    ]
    places = (slice(None), *cuts)
    return [x.moved(lambda end: end[places])]


@rule("TILE")
def _tile(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    x = a.of(op.ins[0])
    for axis, (old, new) in enumerate(zip(op.ins[0].shape, op.outs[0].shape), 1):
        if old != new:
            x = x.over(axis)
    return [x]


@rule("CONCAT")
def _concat(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    parts, axis, out = [a.of(v).over(0) for v in op.ins], op.attrs["axis"] + 1, op.outs[0]
    ends = {p.ends for p in parts}
    arrays = [p.arrays(out.type.rank) for p in parts]
    shape = list(np.broadcast_shapes(*(p.over(axis).arrays(out.type.rank)[0].shape for p in parts)))
    length = out.shape[axis - 1]
    if len(ends) == 1 or math.prod(shape) * length > min(ELEMENTS, _LONG):
        return [Bounds(min(e[0] for e in ends), max(e[1] for e in ends))]

    def beside(which: int) -> Array:
        spread = []
        for value, pair in zip(op.ins, arrays):
            shape[axis] = value.shape[axis - 1]
            spread.append(np.broadcast_to(pair[which], shape))
        return np.concatenate(spread, axis)

    return [paired(beside(0), beside(1))]


@rule("PAD")
def _pad(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    x, fill = a.of(op.ins[0]), a.of(op.ins[2])
    for axis, (old, new) in enumerate(zip(op.ins[0].shape, op.outs[0].shape), 1):
        if old != new:
            x = x.over(axis)
    return [x if op.ins[0].shape == op.outs[0].shape else x.joined(Bounds(*fill.ends))]


def _indexed(a: Intervals, value: Value, rows: int) -> None:
    least, most = a.of(value).ends
    a.require(
        least >= 0 and most < rows, f"an index can be {least} to {most}, of {rows} rows"
    )  # fmt: skip


@rule("GATHER")
def _gather(a: Intervals, op: Op) -> list[Bounds]:
    _indexed(a, op.ins[1], op.ins[0].shape[1])
    return [a.of(op.ins[0]).over(2)] if tracked(op.outs[0]) else []


@rule("SCATTER")
def _scatter(a: Intervals, op: Op) -> list[Bounds]:
    """Rows are written at most once: indices that are constant are seen to differ."""
    places = op.ins[1].const
    _indexed(a, op.ins[1], op.ins[0].shape[1])
    once = op.ins[1].type.size == op.ins[1].shape[0] or (
        places is not None and all(len(set(row.tolist())) == len(row) for row in places.array)
    )
    a.require(once, "two indices can write the same row")
    if not tracked(op.outs[0]):
        return []
    return [a.of(op.ins[0]).over(2).joined(a.of(op.ins[2]).over(2))]


@rule("MAX_POOL2D", "MAX_POOL2D_ADAPTIVE")
def _max_pool(a: Intervals, op: Op) -> list[Bounds]:
    return [a.of(op.ins[0]).over(2, 3)] if tracked(op.outs[0]) else []


@rule("AVG_POOL2D")
def _avg_pool(a: Intervals, op: Op) -> list[Bounds]:
    """Sums of a window times a 31-bit reciprocal of how many there are, as TOSA defines it."""
    out = op.outs[0]
    if not tracked(out):
        return []
    x, (given, zero) = a.of(op.ins[0]).over(2, 3), (_sizes(v)[0] for v in op.ins[1:3])
    low, high = (end - given for end in x.arrays(out.type.rank))
    if low.size * math.prod(op.attrs["kernel"]) > 1 << 20:
        low, high = low.min(keepdims=True), high.max(keepdims=True)
    count = np.arange(1, math.prod(op.attrs["kernel"]) + 1).reshape(-1, *(1,) * low.ndim)
    most = count.size * max(int(abs(low).max()), int(abs(high).max()))
    a.require(most < 1 << 31, "the sum of a window can lie outside int32")
    extra = np.frexp((count - 1).astype(np.float64))[1].astype(np.int64)
    multiplier, shift = np.left_shift((1 << 30) + 1, extra) // count, 30 + extra

    def mean(end: Array) -> Array:
        made: Array = ((end * count * multiplier + np.left_shift(1, shift - 1)) >> shift) + zero
        return made

    return [paired(mean(low).min(0), mean(high).max(0))]


@rule("RESIZE")
def _resize(a: Intervals, op: Op) -> list[Bounds]:
    """Weights of bilinear mixtures are not negative, and add up to the product of both scales."""
    out = op.outs[0]
    if not tracked(out):
        return []
    x = a.of(op.ins[0]).over(2, 3)
    if op.attrs["mode"] == "NEAREST_NEIGHBOR":
        return [x]
    up, _, right, _ = _sizes(op.ins[1])
    made = Bounds(x.low * up * right, x.high * up * right, x.root)
    low, high = out.dtype.range
    least, most = made.ends
    a.require(
        low <= min(least, 0) and max(most, 0) <= high, f"a mixture can lie outside {out.dtype}"
    )
    return [made]
