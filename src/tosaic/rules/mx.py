"""Layers in block-scaled (MX) types: weights are cast here, inputs when the graph runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tosaic.front.registry import rule
from tosaic.interp.block import block_constant
from tosaic.ir.graph import Array, Value
from tosaic.lowering.alternatives.data_movement import first, piece, take
from tosaic.lowering.builder import Lowering
from tosaic.rules._convolve import padded
from tosaic.rules._sums import summed
from tosaic.rules._windows import Pads, channels_first, channels_last, fitted, listed, side_by_side
from tosaic.spec import dtypes as d

_SIZE = f"BLOCK_SIZE_{d.BLOCK}"
_WHY = "block-scaled types are made of real numbers"
Pair = tuple[Value, Value]


def _real(b: Lowering, x: Value) -> Value:
    if x.is_const and x.dtype is not d.F32:
        return b.remade(x, lambda a: a, kind=d.F32)
    return x if x.dtype in (d.F32, d.BF16) else b.CAST(x, out=d.F32)


def _blocks(b: Lowering, x: Value, kind: d.DType) -> Pair:
    """Data and scales; zeros fill the last block of the last axis."""
    x = _real(b, x)
    channels = -(-x.shape[-1] // d.BLOCK) * d.BLOCK
    short, ahead = channels - x.shape[-1], [(0, 0)] * (x.type.rank - 1)
    if not x.is_const:
        if short:
            zero = b.const([0], x.dtype)
            x = b.PAD(x, b.shape(listed([*ahead, (0, short)])), zero)
        data, scale = b.results("CAST_TO_BLOCK_SCALED", x, block_size=_SIZE, out=(kind, d.F8UE8M0))
        return data, scale
    source = x.const
    assert source is not None
    made: list[tuple[Array, Array]] = []

    def make(index: int) -> Array:
        if not made:
            made.append(block_constant(np.pad(source.array, [*ahead, (0, short)]), kind))
        return made[0][index]

    sizes = (*x.shape[:-1], channels)
    scales = (*x.shape[:-1], channels // d.BLOCK)
    return (
        b.const(lambda: make(0), kind, shape=sizes),
        b.const(lambda: make(1), d.F8UE8M0, shape=scales),
    )


def _product(b: Lowering, x: Value, weight: Value, kind: d.DType) -> Value:
    """Rows of [..., C] times [O, C], in float32."""
    rows = b.reshape(x, (1, math.prod(x.shape[:-1]), x.shape[-1]))
    columns = b.reshape(weight, (1, *weight.shape))
    pairs = (*_blocks(b, rows, kind), *_blocks(b, columns, kind))
    y = b.MATMUL_T_BLOCK_SCALED(*pairs, block_size=_SIZE)
    return b.reshape(y, (*x.shape[:-1], weight.shape[0]))


def _finished(b: Lowering, sums: Value, bias: Value | None, like: Value) -> Value:
    """Sums of float32 with a bias, in the type of the layer's input."""
    if bias is not None:
        sums = b.ADD(*b.same_rank(sums, _real32(b, bias)))
    return sums if like.dtype is sums.dtype else b.CAST(sums, out=like.dtype)


def _real32(b: Lowering, x: Value) -> Value:
    x = _real(b, x)
    return x if x.dtype is d.F32 else b.CAST(x, out=d.F32)


@rule("tosaic.mx_linear.default", integers=(), why=_WHY)
def mx_linear(
    b: Lowering, input: Value, weight: Value, bias: Value | None, element: str
) -> Value:
    """MATMUL_T_BLOCK_SCALED of the input's rows and the weights."""
    return _finished(b, _product(b, input, weight, d.dtype(element)), bias, input)


@rule("tosaic.mx_conv2d.default", integers=(), why=_WHY)
def mx_conv2d(
    b: Lowering, input: Value, weight: Value, bias: Value | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], groups: int, element: str,
) -> Value:  # fmt: skip
    """CONV2D_BLOCK_SCALED, or a matrix product for each tap of the kernel; group by group."""
    x, kind = channels_last(b, input, 2), d.dtype(element)
    reach = [(k - 1) * n + 1 for k, n in zip(weight.shape[2:], dilation)]
    x, pads = fitted(b, x, reach, stride, [(n, n) for n in padding])
    kernel = b.permute(weight, (0, 2, 3, 1))
    share, count, parts = x.shape[-1] // groups, weight.shape[0] // groups, []
    for g in range(groups):
        data = piece(b, x, 3, g * share, (g + 1) * share)
        own = piece(b, kernel, 0, g * count, (g + 1) * count)
        more = bias and piece(b, bias, 0, g * count, (g + 1) * count)
        parts.append(
            first(
                b,
                lambda: _whole(b, data, own, more, kind, pads, stride, dilation),
                lambda: _by_taps(b, data, own, more, kind, pads, stride, dilation),
            )
        )
    y = side_by_side(b, parts, 3)
    y = y if y.dtype is input.dtype else b.CAST(y, out=input.dtype)
    return channels_first(b, y, 2, input.type.rank)


def _whole(
    b: Lowering, x: Value, kernel: Value, bias: Value | None, kind: d.DType, pads: Pads,
    stride: Sequence[int], dilation: Sequence[int],
) -> Value:  # fmt: skip
    pairs = (*_blocks(b, x, kind), *_blocks(b, kernel, kind))
    more = b.const(np.zeros(kernel.shape[0]), d.F32) if bias is None else _real32(b, bias)
    windows = (b.shape(n) for n in (listed(pads), stride, dilation))
    return b.CONV2D_BLOCK_SCALED(*pairs, more, *windows, block_size=_SIZE)


def _by_taps(
    b: Lowering, x: Value, kernel: Value, bias: Value | None, kind: d.DType, pads: Pads,
    stride: Sequence[int], dilation: Sequence[int],
) -> Value:  # fmt: skip
    """For types and targets without the convolution: what each tap sees, times its weights."""
    x = padded(b, x, pads, 0.0)
    sizes = kernel.shape[1:3]
    counts = [
        (n - (k - 1) * gap - 1) // step + 1
        for n, k, gap, step in zip(x.shape[1:3], sizes, dilation, stride)
    ]

    def taps() -> Iterator[Value]:
        for row in range(sizes[0]):
            for column in range(sizes[1]):
                seen = x
                for axis, tap in enumerate((row, column)):
                    start, step = tap * dilation[axis], stride[axis]
                    last = start + (counts[axis] - 1) * step
                    seen = take(b, seen, axis + 1, range(start, last + 1, step))
                own = piece(b, piece(b, kernel, 1, row, row + 1), 2, column, column + 1)
                weight = b.reshape(own, (kernel.shape[0], kernel.shape[3]))
                yield _product(b, seen, weight, kind)

    sums = summed(b, taps())
    return sums if bias is None else b.ADD(*b.same_rank(sums, _real32(b, bias)))
