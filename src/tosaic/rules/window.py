"""Sliding windows as an axis: unfold, im2col and col2im."""

from __future__ import annotations

from collections.abc import Sequence

from tosaic.front.registry import Sample, rule, shared
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.data_movement import piece, take
from tosaic.lowering.builder import Lowering
from tosaic.rules._sums import summed, zero_point
from tosaic.rules._windows import each


@shared(
    "aten.unfold.default",
    samples=[
        Sample(((2, 9),), (1, 3, 2)),
        Sample(((8, 3),), (0, 4, 4)),
        Sample(((2, 7, 3),), (-2, 2, 1)),
        Sample(((2, 40),), (-1, 5, 1)),
    ],
)
def unfold(b: Lowering, self: Value, dimension: int, size: int, step: int) -> Value:
    """Windows along an axis; their elements are the last axis."""
    rank = self.type.rank
    axis, x = (dimension % rank, self) if rank else (0, b.reshape(self, (1,)))
    count = (x.shape[axis] - size) // step + 1
    places = [i * step + j for i in range(count) for j in range(size)]
    rows = take(b, x, axis, places)
    apart = b.reshape(rows, (*x.shape[:axis], count, size, *x.shape[axis + 1 :]))
    made = b.axis_last(apart, axis + 1)
    return made if rank else b.reshape(made, (size,))


def _padded(b: Lowering, x: Value, around: Sequence[int]) -> Value:
    if not any(around):
        return x
    return b.with_quant(b.PAD(x, b.shape(around), zero_point(b, x)), x.quant)


_BLOCKS = [
    Sample(((1, 3, 6, 7),), ([2, 3], [1, 1], [0, 0], [1, 1])),
    Sample(((2, 2, 8, 8),), ([2, 2], [1, 1], [0, 0], [2, 2])),
    Sample(((1, 2, 7, 6),), ([3, 2], [2, 1], [1, 2], [2, 1])),
    Sample(((2, 6, 6),), ([3, 3], [1, 1], [1, 1], [3, 3])),
]


@shared("aten.im2col.default", samples=_BLOCKS)
def im2col(
    b: Lowering, self: Value, kernel_size: Sequence[int], dilation: Sequence[int],
    padding: Sequence[int], stride: Sequence[int],
) -> Value:  # fmt: skip
    """Rows and then columns by their place in the window: [N, C, kh, oh, kw, ow] in between."""
    kernel, gaps, pads, steps = (each(v, 2) for v in (kernel_size, dilation, padding, stride))
    x = self if self.type.rank == 4 else b.reshape(self, (1, *self.shape))
    x = _padded(b, x, (0, 0, 0, 0, pads[0], pads[0], pads[1], pads[1]))
    counts = [
        (size - (k - 1) * gap - 1) // step + 1
        for size, k, gap, step in zip(x.shape[2:], kernel, gaps, steps)
    ]
    for axis in (0, 1):
        places = [k * gaps[axis] + i * steps[axis]
                  for k in range(kernel[axis]) for i in range(counts[axis])]  # fmt: skip
        x = take(b, x, 2 + axis, places)
    batch, channels = x.shape[:2]
    x = b.reshape(x, (batch, channels, kernel[0], counts[0], kernel[1], counts[1]))
    x = b.permute(x, (0, 1, 2, 4, 3, 5))
    shape = (channels * kernel[0] * kernel[1], counts[0] * counts[1])
    return b.reshape(x, (batch, *shape) if self.type.rank == 4 else shape)


@rule(
    "aten.col2im.default",
    samples=[
        Sample(((1, 18, 20),), ([5, 7], [2, 3], [1, 1], [0, 0], [1, 1])),
        Sample(((2, 8, 16),), ([8, 8], [2, 2], [1, 1], [0, 0], [2, 2])),
        Sample(((1, 12, 27),), ([7, 6], [3, 2], [2, 1], [1, 2], [2, 1])),
        Sample(((18, 9),), ([8, 8], [3, 3], [1, 1], [1, 1], [3, 3])),
    ],
)
def col2im(
    b: Lowering, self: Value, output_size: Sequence[int], kernel_size: Sequence[int],
    dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int],
) -> Value:  # fmt: skip
    """Windows laid where they came from, sums where they overlap, in int32 if they do."""
    kernel, gaps, pads, steps = (each(v, 2) for v in (kernel_size, dilation, padding, stride))
    sizes = [size + 2 * pad for size, pad in zip(output_size, pads)]
    counts = [
        (size - (k - 1) * gap - 1) // step + 1
        for size, k, gap, step in zip(sizes, kernel, gaps, steps)
    ]
    x = self if self.type.rank == 3 else b.reshape(self, (1, *self.shape))
    batch, channels = x.shape[0], x.shape[1] // kernel[0] // kernel[1]
    if kernel == steps and sizes == [k * n for k, n in zip(kernel, counts)] and set(gaps) == {1}:
        x = b.reshape(x, (batch, channels, *kernel, *counts))
        y = b.reshape(b.permute(x, (0, 1, 4, 2, 5, 3)), (batch, channels, *sizes))
    else:
        x = b.widened(x) if x.quant is not None else x
        x = b.reshape(x, (batch * channels, *kernel, *counts))
        x = b.permute(x, (0, 1, 3, 2, 4))  # [NC, kh, oh, kw, ow]
        x = b.reshape(x, (batch * channels, kernel[0], counts[0], kernel[1] * counts[1]))
        y = _laid(b, x, steps[0], gaps[0], sizes[0])  # [NC, H, kw · ow]
        y = b.reshape(y, (batch * channels * sizes[0], kernel[1], counts[1], 1))
        y = b.reshape(_laid(b, y, steps[1], gaps[1], sizes[1]), (batch, channels, *sizes))
    for axis, (pad, size) in enumerate(zip(pads, output_size)):
        y = piece(b, y, 2 + axis, pad, pad + size)
    return y if self.type.rank == 3 else b.reshape(y, y.shape[1:])


def _laid(b: Lowering, x: Value, step: int, gap: int, size: int) -> Value:
    """[N, k, o, C] to [N, size, C]: element o of k lands at o · step + k · gap, and adds up."""
    batch, kernel, count, inner = x.shape

    def line(k: int) -> Value:
        one = b.reshape(piece(b, x, 1, k, k + 1), (batch, count, 1, inner))
        spread = _padded(b, one, (0, 0, 0, 0, 0, step - 1, 0, 0))
        made = b.reshape(spread, (batch, count * step, inner))
        made = piece(b, made, 1, 0, min(count * step, size - k * gap))
        return _padded(b, made, (0, 0, k * gap, size - k * gap - made.shape[1], 0, 0))

    return summed(b, map(line, range(kernel)), x.quant)
