"""Bounds of sums of products: exact for constant weights, whose signs say which end counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tosaic.ir.graph import Array, Op, Value
from tosaic.ir.int_intervals.core import (
    Bounds,
    Intervals,
    constant_number,
    greater,
    lesser,
    paired,
    rule,
    tracked,
)

_CHUNK = 1 << 18  # weights that are widened at one time
ROUGH = 1 << 12  # weights from which on a rough analysis does not look at them
_BY_CHANNEL = 1 << 16  # weights up to which channels of the operand are told apart


def _signed_sums(weights: Array, zero: int) -> tuple[Array, Array]:
    """The sums of what is positive and of what is negative in each row of weights."""
    rows = max(1, _CHUNK // max(1, weights.shape[1]))
    positive, total = [], []
    for start in range(0, len(weights), rows):
        part = weights[start : start + rows]
        if zero or part.dtype != np.int8:
            part = part.astype(np.int32) - zero
            positive.append(part.clip(0).sum(1, dtype=np.int64))
        else:
            positive.append(np.maximum(part, 0).sum(1, dtype=np.int64))
        total.append(part.sum(1, dtype=np.int64))
    above, whole = np.concatenate(positive), np.concatenate(total)
    return above, whole - above


@rule("CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D")
def _convolution(a: Intervals, op: Op) -> list[Bounds]:
    """Padding adds nothing, so that 0 is among the operands where there is any."""
    out = op.outs[0]
    if not tracked(out):
        return []
    x, weight, bias = a.of(op.ins[0]), op.ins[1], a.of(op.ins[2])
    rank, zero = op.ins[0].type.rank, constant_number(op.ins[3])
    low, high = (end.reshape(-1) - zero for end in x.over(*range(rank)).arrays(rank))
    reach = low.clip(max=0), high.clip(0)
    if op.name == "TRANSPOSE_CONV2D" or any(op.attrs["pad"]):
        low, high = reach
    ends, partial = _weighted(a, op, weight, low, high, reach)
    least, most = lesser(bias.low, 0), greater(bias.high, 0)
    kind = out.dtype.range
    inside = kind[0] <= (partial[0] + least).min() and (partial[1] + most).max() <= kind[1]
    a.require(inside, f"a sum of products can lie outside {out.dtype}")
    shape = (1,) * out.type.rank + (-1,)
    return [paired((ends[0] + bias.low).reshape(shape), (ends[1] + bias.high).reshape(shape))]


_Pair = tuple[Array, Array]


def _weighted(
    a: Intervals, op: Op, weight: Value, low: Array, high: Array, reach: _Pair
) -> tuple[_Pair, _Pair]:
    """The ends of sums, and those of all partial sums, for each channel of the result."""
    zero, depthwise = constant_number(op.ins[4]), op.name == "DEPTHWISE_CONV2D"
    if weight.const is None or (a.is_rough and weight.type.size > ROUGH):
        terms = weight.type.size // op.outs[0].shape[-1]
        least, most = (end - zero for end in a.of(weight).ends)
        return _arrays(low, high, least, most, terms), _arrays(*reach, least, most, terms)
    array = weight.const.array
    if depthwise:
        height, width, _, times = array.shape
        above, below = _signed_sums(array.reshape(height * width, -1).T, zero)
        low, high, *reach_ = (np.repeat(e, times if len(e) > 1 else 1) for e in (low, high, *reach))
        reach = (reach_[0], reach_[1])
    elif (
        len(low) > 1
        and array.size <= _BY_CHANNEL
        and (low.min() < low.max() or high.min() < high.max())
    ):
        wide = array.astype(np.int64) - zero
        axes = tuple(range(1, wide.ndim - 1))
        above, below = wide.clip(0).sum(axes), wide.clip(max=0).sum(axes)
        return _mixed(above, below, low, high), _mixed(above, below, *reach)
    else:
        above, below = _signed_sums(array.reshape(len(array), -1), zero)
        low, high = low.min(), high.max()
        reach = reach[0].min(), reach[1].max()
    return (
        (above * low + below * high, above * high + below * low),
        (above * reach[0] + below * reach[1], above * reach[1] + below * reach[0]),
    )


def _mixed(above: Array, below: Array, low: Array, high: Array) -> _Pair:
    return above @ low + below @ high, above @ high + below @ low


def _arrays(low: Array, high: Array, least: int, most: int, terms: int) -> _Pair:
    made = _times((int(low.min()), int(high.max())), (least, most), terms)
    return np.array(made[:1]), np.array(made[1:])


def _times(first: Iterable[int], second: Sequence[int], terms: int) -> tuple[int, int]:
    """The ends of so many products of two intervals."""
    found = [e * n * terms for e in first for n in second]
    return min(found), max(found)


@rule("MATMUL", "MATMUL_T")
def _matmul(a: Intervals, op: Op) -> list[Bounds]:
    out = op.outs[0]
    if not tracked(out):
        return []
    first, second = (
        [end - constant_number(zero) for end in a.of(v).ends]
        for v, zero in zip(op.ins[:2], op.ins[2:4])
    )
    low, high = _times(first, second, op.ins[0].shape[2])
    least, most = out.dtype.range
    a.require(
        least <= min(low, 0) and max(high, 0) <= most,
        f"a sum of products can lie outside {out.dtype}",
    )
    return [Bounds(low, high)]
