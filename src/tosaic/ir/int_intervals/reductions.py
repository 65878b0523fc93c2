"""Bounds of reductions along an axis."""

from __future__ import annotations

import numpy as np

from tosaic.ir.graph import Op
from tosaic.ir.int_intervals.core import (
    Bounds,
    End,
    Intervals,
    greater,
    lesser,
    paired,
    rule,
    tracked,
)


@rule("REDUCE_MAX", "REDUCE_MIN")
def _reduced(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    axis = op.attrs["axis"] + 1
    pick = np.max if op.name == "REDUCE_MAX" else np.min
    return [a.of(op.ins[0]).moved(lambda end: pick(end, axis, keepdims=True))]


@rule("REDUCE_SUM")
def _total(a: Intervals, op: Op) -> list[Bounds]:
    """Every sum of the first elements has to fit as well."""
    if not tracked(op.outs[0]):
        return []
    x, axis, out = a.of(op.ins[0]), op.attrs["axis"] + 1, op.outs[0]
    length = op.ins[0].shape[op.attrs["axis"]]

    def total(end: End) -> End:
        if type(end) is int or end.shape[axis] == 1:
            return end * length
        return end.sum(axis, keepdims=True)

    least = np.min(total(lesser(x.low, 0)))
    most = np.max(total(greater(x.high, 0)))
    low, high = out.dtype.range
    if out.limits is not None and x.ends[0] >= 0:  # then no partial sum is more than all of it
        most = min(most, out.limits[1])
    a.require(low <= least and most <= high, "a partial sum can overflow")
    return [paired(total(x.low), total(x.high), x.root)]


@rule("ARGMAX")
def _argmax(a: Intervals, op: Op) -> list[Bounds]:
    return [Bounds(0, op.ins[0].shape[op.attrs["axis"]] - 1)]
