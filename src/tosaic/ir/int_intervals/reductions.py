"""Bounds of reductions along an axis."""

from __future__ import annotations

from tosaic.ir.graph import Op
from tosaic.ir.int_intervals.core import Bounds, Intervals, bounded, rule, tracked, type_range


@rule("REDUCE_MAX", "REDUCE_MIN")
def _reduced(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    x, axis = a.of(op.ins[0]), op.attrs["axis"] + 1
    return [
        x.map(lambda end: (end.max if op.name == "REDUCE_MAX" else end.min)(axis, keepdims=True))
    ]


@rule("REDUCE_SUM")
def _total(a: Intervals, op: Op) -> list[Bounds]:
    """Every sum of the first elements has to fit as well."""
    if not tracked(op.outs[0]):
        return []
    x, axis, out = a.of(op.ins[0]), op.attrs["axis"] + 1, op.outs[0]
    length = op.ins[0].shape[op.attrs["axis"]]
    times = length if x.low.shape[axis] == 1 else 1
    made = x.map(lambda end: end.sum(axis, keepdims=True) * times)
    least = x.low.clip(max=0).sum(axis) * times
    most = x.high.clip(0).sum(axis) * times
    low, high = type_range(out.dtype)
    if out.limits is not None and x.ends[0] >= 0:  # then no partial sum is more than all of it
        most = most.clip(max=out.limits[1])
    a.require(low <= least.min() and most.max() <= high, "a partial sum can overflow")
    return [made]


@rule("ARGMAX")
def _argmax(a: Intervals, op: Op) -> list[Bounds]:
    return [bounded(0, op.ins[0].shape[op.attrs["axis"]] - 1, op.outs[0].type.rank)]
