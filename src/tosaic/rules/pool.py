"""Pools over one and two axes, fixed and adaptive."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, shared
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.data_movement import added, first, joined, piece
from tosaic.lowering.builder import Lowering
from tosaic.rules._convolve import Convolution, convolved
from tosaic.rules._operands import first_of
from tosaic.rules._sums import accumulator, finished, zero_of, zero_point
from tosaic.rules._windows import (
    Pads,
    channels_first,
    channels_last,
    each,
    fitted,
    flat,
    listed,
)
from tosaic.spec import dtypes as d

# A pool with uneven windows is made of so many even ones at most.
MOST_PIECES = 64
_FEW_FLOAT8 = 146  # numbers of float8_e4m3fn whose sum float16 holds
Pair = tuple[int, ...]
_NONE: Pads = [(0, 0), (0, 0)]


def _mean_of_windows(b: Lowering, x: Value, kernel: Pair, stride: Pair, pads: Pads) -> Value:
    """Means over [N, H, W, C], which do not count the padding, in the parameters given."""
    zero, acc = zero_point(b, x), d.I32 if x.dtype.is_int else d.F32
    if x.dtype is d.F8E4M3 and math.prod(kernel) <= _FEW_FLOAT8:
        acc = d.F16

    def pool(b: Lowering, x: Value, kernel: Pair, stride: Pair, pads: Pads = _NONE) -> Value:
        around = listed(pads)
        y = b.AVG_POOL2D(x, zero, zero, kernel=kernel, stride=stride, pad=around, acc_type=acc)
        return b.with_quant(y, x.quant)

    def pieces() -> Value:
        windows = [
            [(max(at, 0), min(at + k, size)) for at in range(-before, size + after - k + 1, step)]
            for size, k, step, (before, after) in zip(x.shape[1:3], kernel, stride, pads)
        ]
        return _pieced(b, x, windows, pool)

    return first(b, lambda: pool(b, x, kernel, stride, pads), pieces)


def _sum_of_windows(
    b: Lowering, x: Value, kernel: Pair, stride: Pair, pads: Pads, divisor: int
) -> Value:
    """Sums over [N, H, W, C], divided by one number: a depthwise convolution with ones.

    Integers are so rounded once, by the RESCALE of the sums, and not once more as a mean.
    """
    channels, weights = x.shape[3], d.I8 if x.quant is not None else x.dtype
    value, terms = 1.0 if x.quant is not None else 1.0 / divisor, math.prod(kernel)
    shape = (*kernel, channels, 1)
    ones = b.const(lambda: np.full(shape, value), weights, shape=shape)
    none = b.const(np.zeros(1), accumulator(x) if x.quant is not None else x.dtype)
    quant = None
    if x.quant is not None:
        quant = Quant(x.quant.one_scale / divisor)
    return convolved(b, x, Convolution(
        "DEPTHWISE_CONV2D", ones, none, zero_of(x), 0, stride, tuple(pads), (1, 1), quant, terms,
        bits=16,
    ))  # fmt: skip


def _averaged(b: Lowering, x: Value, kernel: Pair, stride: Pair) -> Value:
    """Means of [N, H, W, C] where every window is full, rounded once if it is known to what."""
    if x.quant is None:
        return _mean_of_windows(b, x, kernel, stride, _NONE)
    scale, same = x.quant.one_scale, b.wanted in (None, (x.quant, x.dtype))

    def summed() -> Value:
        if kernel != x.shape[1:3]:
            return _sum_of_windows(b, x, kernel, stride, _NONE, math.prod(kernel))
        total, quant = b.widened(x), Quant(scale / math.prod(kernel))
        for axis in (1, 2):
            total = b.with_quant(added(b, total, axis), quant)
        return finished(b, total, math.prod(kernel), 16)

    mean = [lambda: _mean_of_windows(b, x, kernel, stride, _NONE)] if same else []
    return first(b, *mean, summed)


def _average(
    b: Lowering, self: Value, kernel_size: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None, *, axes: int,
) -> Value:  # fmt: skip
    kernel = flat(each(kernel_size, axes), 1)
    step = flat(each(stride or kernel_size, axes), 1)
    around = [(n, n) for n in flat(each(padding, axes), 0)]
    x = channels_last(b, self, axes)
    data, pads = fitted(b, x, kernel, step, around, ceil_mode)
    hanging = any(after > given for (_, after), (_, given) in zip(pads, around))
    padded = any(map(any, pads))
    if divisor_override or (padded and count_include_pad and not hanging):
        y = _sum_of_windows(b, data, kernel, step, pads, divisor_override or math.prod(kernel))
    elif not padded:
        y = _averaged(b, data, kernel, step)
    elif not count_include_pad or not any(map(any, around)):
        y = _mean_of_windows(b, data, kernel, step, pads)
    else:  # the padding counts, what hangs over it does not
        wide = b.PAD(x, b.shape((0, 0, *listed(around), 0, 0)), zero_point(b, x))
        data, pads = fitted(b, b.with_quant(wide, x.quant), kernel, step, [(0, 0)] * 2, True)
        y = _mean_of_windows(b, data, kernel, step, pads)
    return channels_first(b, y, axes, self.type.rank)


# Windows that hold different numbers of elements need AVG_POOL2D, which rounds before the RESCALE
# does: such samples are within 2 steps.
_MEAN2D = [
    Sample(((1, 4, 8, 8),), ([2, 2], [2, 2])),
    Sample(((1, 4, 9, 7),), ([3, 2],)),
    Sample(((2, 3, 8, 8),), ([3, 3], [2, 2], [1, 1])),
    Sample(((2, 3, 8, 8),), ([3], [2], [1], False, False), steps=2),
    Sample(((1, 3, 8, 8),), ([3, 3], [2, 2], [0, 0], True), steps=2),
    Sample(((1, 3, 8, 7),), ([3, 3], [2, 2], [1, 1], True), steps=2),
    Sample(((3, 6, 6),), ([2, 3], [1, 1], [0, 1], False, True, 5)),
    Sample(((1, 3, 5, 4),), ([5, 4],)),
    Sample(((1, 3, 11, 12),), ([5, 4], [5, 4], [2, 2])),
]
_MEAN1D = [
    Sample(((1, 4, 12),), ([3], [2])),
    Sample(((2, 4, 9),), ([3], [2], [1])),
    Sample(((4, 9),), ([3], [2], [1], False, False), steps=2),
]
avg_pool2d = partial(_average, axes=2)
shared("aten.avg_pool2d.default", samples=_MEAN2D)(avg_pool2d)
shared("aten.avg_pool1d.default", samples=_MEAN1D)(partial(_average, axes=1))


_MAX2D = [
    Sample(((1, 4, 8, 8),), ([2, 2], [2, 2])),
    Sample(((1, 4, 9, 9),), ([3, 3], [2, 2], [1, 1])),
    Sample(((3, 8, 7),), ([3, 2], [2, 3], [1, 0], [1, 1], True)),
    Sample(((1, 3, 9, 8),), ([2, 3], [1, 1], [1, 1], [2, 2])),
    Sample(((2, 3, 11, 10),), ([3], [2], [1], [2], True)),
    Sample(((1, 4, 6, 6),), ([2, 2], [3, 3], [0, 0], [1, 1], True)),
]
_MAX1D = [
    Sample(((1, 4, 12),), ([3], [2])),
    Sample(((4, 11),), ([3], [2], [1], [1], True)),
    Sample(((2, 4, 11),), ([3], [1], [1], [2])),
]


def _maximum(
    b: Lowering, self: Value, kernel_size: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,), ceil_mode: bool = False, *,
    axes: int,
) -> Value:  # fmt: skip
    kernel = flat(each(kernel_size, axes), 1)
    step = flat(each(stride or kernel_size, axes), 1)
    gaps = flat(each(dilation, axes), 1)
    around = [(n, n) for n in flat(each(padding, axes), 0)]
    reach = [(k - 1) * n + 1 for k, n in zip(kernel, gaps)]
    x, pads = fitted(b, channels_last(b, self, axes), reach, step, around, ceil_mode)
    if any(n != 1 for n in gaps):
        y = _dilated(b, x, kernel, step, pads, gaps)
    else:
        y = b.with_quant(_largest_of_windows(b, x, kernel, step, pads), self.quant)
    return channels_first(b, y, axes, self.type.rank)


def _largest_of_windows(b: Lowering, x: Value, kernel: Pair, stride: Pair, pads: Pads) -> Value:
    """The largest of each window; padding is of the smallest number that there is."""

    def pooled(given: Value, around: Pads) -> Value:
        return b.MAX_POOL2D(given, kernel=kernel, stride=stride, pad=listed(around))

    def padded() -> Value:
        least = b.const([x.dtype.range[0]], x.dtype)
        return pooled(b.PAD(x, b.shape((0, 0, *listed(pads), 0, 0)), least), _NONE)

    return first(b, lambda: pooled(x, pads), padded)


max_pool2d = partial(_maximum, axes=2)
shared("aten.max_pool2d.default", samples=_MAX2D)(max_pool2d)
shared("aten.max_pool2d_with_indices.default", samples=_MAX2D)(first_of(max_pool2d, 2))
shared("aten.max_pool1d.default", samples=_MAX1D)(partial(_maximum, axes=1))


def _dilated(b: Lowering, x: Value, kernel: Pair, step: Pair, pads: Pads, gaps: Pair) -> Value:
    """Columns, then rows: each is the maximum over a pool of every n-th element of it.

    Elements n apart come side by side as [.., size / n, n, ..], where a pool has no gaps.
    """
    quant = x.quant
    least = b.const([-math.inf if quant is None else x.dtype.range[0]], x.dtype)
    sizes = [s + sum(p) for s, p in zip(x.shape[1:3], pads)]
    behind = [-s % n for s, n in zip(sizes, gaps)]
    more = [(before, after + extra) for (before, after), extra in zip(pads, behind)]
    x = b.with_quant(b.PAD(x, b.shape((0, 0, *listed(more), 0, 0)), least), quant)
    batch, height, width, channels = x.shape
    rows, columns = height // gaps[0], width // gaps[1]
    apart = b.reshape(x, (batch, rows, gaps[0], columns, gaps[1], channels))
    apart = b.permute(apart, (0, 2, 4, 1, 3, 5))
    many = b.reshape(apart, (batch * gaps[0] * gaps[1], rows, columns, channels))
    best = b.MAX_POOL2D(many, kernel=kernel, stride=(1, 1), pad=(0, 0, 0, 0))
    rows, columns = best.shape[1:3]
    back = b.reshape(b.with_quant(best, quant), (batch, *gaps, rows, columns, channels))
    y = b.reshape(
        b.permute(back, (0, 3, 1, 4, 2, 5)), (batch, rows * gaps[0], columns * gaps[1], channels)
    )
    for axis in (0, 1):
        count = (sizes[axis] - (kernel[axis] - 1) * gaps[axis] - 1) // step[axis] + 1
        y = piece(b, y, 1 + axis, 0, (count - 1) * step[axis] + 1)
    if any(n != 1 for n in step):
        y = b.with_quant(b.MAX_POOL2D(y, kernel=(1, 1), stride=step, pad=(0, 0, 0, 0)), quant)
    return y


def _runs(windows: Sequence[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Windows from a start to a stop as even runs: first start, length, step, how many."""
    runs: list[tuple[int, int, int, int]] = []
    for start, stop in windows:
        if runs:
            first, length, step, count = runs[-1]
            gap = start - first if count == 1 else step
            if gap > 0 and stop - start == length and start == first + gap * count:
                runs[-1] = (first, length, gap, count + 1)
                continue
        runs.append((start, stop - start, 1, 1))
    return runs


Pool = Callable[[Lowering, Value, Pair, Pair], Value]


def _adaptive(b: Lowering, self: Value, output_size: Sequence[int], axes: int, pool: Pool) -> Value:
    x = channels_last(b, self, axes)
    windows = [
        [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]
        for size, out in zip(x.shape[1:3], flat(each(output_size, axes), 1))
    ]
    return channels_first(b, _pieced(b, x, windows, pool), axes, self.type.rank)


def _pieced(
    b: Lowering, x: Value, windows: Sequence[Sequence[tuple[int, int]]], pool: Pool
) -> Value:
    """Windows along both axes: even runs of them by one pool each, side by side."""
    runs = [_runs(along) for along in windows]
    if len(runs[0]) * len(runs[1]) > MOST_PIECES:
        sizes = f"{list(x.shape[1:3])} to {[len(along) for along in windows]}"
        raise Unsupported(f"a pool from {sizes} has too many uneven windows")
    rows = []
    for top, height, down, lines in runs[0]:
        band = piece(b, x, 1, top, top + height + (lines - 1) * down)
        parts = [
            pool(b, piece(b, band, 2, left, left + width + (n - 1) * right), (height, width),
                 (down, right))
            for left, width, right, n in runs[1]
        ]  # fmt: skip
        rows.append(joined(b, parts, 2))
    return joined(b, rows, 1)


_ADAPTIVE = [
    Sample(((1, 4, 7, 7),), ([1, 1],)),
    Sample(((1, 4, 8, 6),), ([4, 2],)),
    Sample(((2, 3, 7, 10),), ([3, 4],)),
    Sample(((3, 5, 3),), ([3, 5],)),
    Sample(((1, 4, 8, 10),), ([2, 2],)),
]
_ADAPTIVE1D = [Sample(((1, 4, 12),), ([4],)), Sample(((4, 7),), ([5],))]


def _largest(b: Lowering, x: Value, kernel: Pair, stride: Pair) -> Value:
    return b.with_quant(b.MAX_POOL2D(x, kernel=kernel, stride=stride, pad=(0, 0, 0, 0)), x.quant)


adaptive_avg_pool2d = partial(_adaptive, axes=2, pool=_averaged)
shared("aten.adaptive_avg_pool2d.default", samples=_ADAPTIVE)(adaptive_avg_pool2d)
shared("aten.adaptive_avg_pool1d.default", samples=_ADAPTIVE1D)(
    partial(_adaptive, axes=1, pool=_averaged)
)
shared("aten.adaptive_max_pool2d.default", samples=_ADAPTIVE)(
    first_of(partial(_adaptive, axes=2, pool=_largest), 2)
)
shared("aten.adaptive_max_pool1d.default", samples=_ADAPTIVE1D)(
    first_of(partial(_adaptive, axes=1, pool=_largest), 2)
)
