"""Pools over three axes: two by a pool of TOSA, the third by slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule, shared
from tosaic.ir.graph import Array, Quant, Value
from tosaic.lowering.alternatives.data_movement import joined, piece, take
from tosaic.lowering.alternatives.reduce_extreme import extreme
from tosaic.lowering.builder import Lowering
from tosaic.rules._operands import first_of, scale_of
from tosaic.rules._sums import summed
from tosaic.rules._windows import each, steps
from tosaic.rules.pool import MOST_PIECES, avg_pool2d, max_pool2d
from tosaic.spec import dtypes as d

_FINE = 8  # bits that means of integers have more than the values


def _batched(b: Lowering, x: Value) -> Value:
    if x.type.rank not in (4, 5):
        raise Unsupported(f"the windows move over 3 axes, and the tensor has rank {x.type.rank}")
    return x if x.type.rank == 5 else b.reshape(x, (1, *x.shape))


def _planes(b: Lowering, x: Value) -> Value:
    """[N, C, D, H, W] as [N · D, C, H, W]."""
    y = b.permute(x, (0, 2, 1, 3, 4))
    return b.reshape(y, (y.shape[0] * y.shape[1], *y.shape[2:]))


def _stacked(b: Lowering, y: Value, batch: int) -> Value:
    """[N · D, C, H, W] as [N, C, D, H · W]."""
    _, channels, height, width = y.shape
    apart = b.reshape(y, (batch, y.shape[0] // batch, channels, height * width))
    return b.permute(apart, (0, 2, 1, 3))


_MAX = [
    Sample(((1, 2, 4, 6, 6),), ([2, 2, 2], [2, 2, 2])),
    Sample(((2, 2, 5, 7, 6),), ([3, 3, 2], [2, 1, 2], [1, 1, 0])),
    Sample(((3, 5, 6, 7),), ([2], [2], [0], [1], True)),
    Sample(((1, 2, 6, 7, 6),), ([2, 2, 2], [1, 1, 1], [0, 1, 0], [2, 2, 1])),
]


@shared("aten.max_pool3d.default", samples=_MAX)
def max_pool3d(
    b: Lowering, self: Value, kernel_size: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> Value:  # fmt: skip
    kernel, step = each(kernel_size, 3), each(stride or kernel_size, 3)
    pads, gaps = each(padding, 3), each(dilation, 3)
    x = _batched(b, self)
    flat = max_pool2d(b, _planes(b, x), kernel[1:], step[1:], pads[1:], gaps[1:], ceil_mode)
    deep = _stacked(b, flat, x.shape[0])
    y = max_pool2d(b, deep, (kernel[0], 1), (step[0], 1), (pads[0], 0), (gaps[0], 1), ceil_mode)
    return b.reshape(y, (*self.shape[:-3], y.shape[2], *flat.shape[2:]))


shared("aten.max_pool3d_with_indices.default", samples=_MAX)(first_of(max_pool3d, 2))


def _counts(size: int, kernel: int, step: int, pad: int, count: int, with_pads: bool) -> Array:
    """How many elements each window along an axis counts."""
    starts = np.arange(count) * step - pad
    ends = np.minimum(starts + kernel, size + pad)
    if not with_pads:
        starts, ends = np.maximum(starts, 0), np.minimum(ends, size)
    counts: Array = ends - starts
    return counts


def _divided(b: Lowering, sums: Value, counts: Array) -> Value:
    """Sums [N, C, D, H, W] divided by what each has added up: one number, or one for each place."""
    if (counts == counts.flat[0]).all():
        count = int(counts.flat[0])
        if sums.quant is not None:
            return b.with_quant(sums, Quant(scale_of(sums) / count))
        return b.mul(sums, b.number(1.0 / count, sums))
    inverse = np.reshape(1.0 / counts, (1, 1, *counts.shape))
    if sums.quant is None:
        return b.mul(sums, b.const(inverse, sums.dtype))
    shares = b.const(np.round(inverse * 2.0**30), d.I32)
    quant = Quant(scale_of(sums) / 2.0**_FINE)
    return b.with_quant(b.mul(b.with_quant(sums, None), shares, 30 - _FINE), quant)


@rule(
    "aten.avg_pool3d.default",
    samples=[
        Sample(((1, 2, 4, 6, 6),), ([2, 2, 2], [2, 2, 2])),
        Sample(((2, 2, 5, 7, 6),), ([3, 3, 2], [2, 1, 2], [1, 1, 0])),
        Sample(((1, 2, 5, 7, 6),), ([3, 3, 3], [2, 2, 2], [1, 1, 1], False, False)),
        Sample(((3, 5, 6, 7),), ([2], [2], [0], True)),
        Sample(((1, 2, 5, 6, 7),), ([2, 3, 2], [2, 2, 2], [1, 1, 1], True, True)),
        Sample(((1, 2, 4, 4, 4),), ([2], [1], [0], False, True, 5)),
    ],
)
def avg_pool3d(
    b: Lowering, self: Value, kernel_size: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:  # fmt: skip
    """Sums over planes, then over these, divided and rounded once."""
    kernel, step, pads = each(kernel_size, 3), each(stride or kernel_size, 3), each(padding, 3)
    x = _batched(b, self)
    with b.wanting(None):
        flat = avg_pool2d(b, _planes(b, x), kernel[1:], step[1:], pads[1:], ceil_mode, True, 1)
    sizes = x.shape[2:]
    outs = [steps(n, (p, p), k, s, ceil_mode) for n, p, k, s in zip(sizes, pads, kernel, step)]
    deep = _summed(b, _stacked(b, flat, x.shape[0]), kernel[0], step[0], pads[0], outs[0])
    sums = b.reshape(deep, (*x.shape[:2], *outs))
    each_axis = [
        _counts(n, k, s, p, out, count_include_pad)
        for n, k, s, p, out in zip(sizes, kernel, step, pads, outs)
    ]
    counts = np.einsum("i,j,k->ijk", *each_axis)
    if divisor_override:
        counts = np.full_like(counts, divisor_override)
    y = _divided(b, sums, counts)
    return b.reshape(y, (*self.shape[:-3], *outs))


def _summed(b: Lowering, x: Value, kernel: int, step: int, pad: int, count: int) -> Value:
    """Sums of windows along axis 2 of sums."""
    need = (count - 1) * step + kernel
    behind = max(need - pad - x.shape[2], 0)
    if pad or behind:
        around = b.shape((0, 0, 0, 0, pad, behind, 0, 0))
        x = b.with_quant(b.PAD(x, around, b.const([0], x.dtype)), x.quant)
    starts = [range(k, k + (count - 1) * step + 1, step) for k in range(kernel)]
    return summed(b, (take(b, x, 2, places) for places in starts), x.quant)


def _pieces(
    b: Lowering, x: Value, output_size: Sequence[int], reduce: Callable[[Value, int], Value]
) -> tuple[Value, list[Array]]:
    """Each window of an adaptive pool reduced on its own, axis by axis, and the windows' sizes."""
    sizes = []
    for axis, out in zip((2, 3, 4), output_size):
        size = x.shape[axis]
        ends = [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]
        if out > MOST_PIECES:
            raise Unsupported(f"an adaptive pool to {out} windows along an axis is too fine")
        sizes.append(np.array([stop - start for start, stop in ends]))
        if out != size:
            parts = [b.with_quant(reduce(piece(b, x, axis, *e), axis), x.quant) for e in ends]
            x = joined(b, parts, axis)
    return x, sizes


_ADAPTIVE = [
    Sample(((2, 5, 4, 6, 5),), ([1, 1, 1],)),
    Sample(((2, 2, 4, 6, 5),), ([2, 3, 2],)),
    Sample(((2, 5, 4, 7),), ([3, 4, 2],)),
]


@rule("aten.adaptive_avg_pool3d.default", samples=_ADAPTIVE)
def adaptive_avg_pool3d(b: Lowering, self: Value, output_size: Sequence[int]) -> Value:
    x = _batched(b, self)
    wide = b.widened(x) if x.quant is not None else x
    sums, sizes = _pieces(b, wide, output_size, lambda v, axis: b.REDUCE_SUM(v, axis=axis))
    counts = np.einsum("i,j,k->ijk", *sizes)
    y = _divided(b, sums, counts)
    return b.reshape(y, (*self.shape[:-3], *output_size))


@shared("aten.adaptive_max_pool3d.default", samples=_ADAPTIVE)
def adaptive_max_pool3d(b: Lowering, self: Value, output_size: Sequence[int]) -> tuple[Value, None]:
    """The values; TOSA has no form for the indices."""
    x = _batched(b, self)
    y, _ = _pieces(b, x, output_size, lambda v, axis: extreme(b, "REDUCE_MAX", v, axis))
    return b.reshape(y, (*self.shape[:-3], *output_size)), None
