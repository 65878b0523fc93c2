"""Convolutions over one, two and three axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Array, Value
from tosaic.lowering.alternatives.data_movement import first, piece
from tosaic.lowering.builder import Lowering
from tosaic.rules._convolve import Convolution, convolved, phased, repeated
from tosaic.rules._sums import (
    accumulator,
    by_weights,
    finished,
    offsets,
    product,
    zero_of,
    zero_point,
)
from tosaic.rules._windows import (
    Pads,
    channels_first,
    channels_last,
    each,
    fitted,
    flat,
    listed,
    side_by_side,
)


@dataclass(frozen=True, slots=True)
class Windows:
    """How a kernel moves: over how many axes, by which steps, over which padding."""

    stride: tuple[int, ...]
    pads: Pads
    dilation: tuple[int, ...]

    @property
    def axes(self) -> int:
        return len(self.stride)


def _kernel(b: Lowering, weight: Value, shape: Sequence[int], order: Sequence[int]) -> Value:
    """The weights in TOSA's layout, reshaped before they are turned; scales are the caller's."""
    shape, order = tuple(shape), tuple(order)
    if weight.is_const:
        permuted = [shape[i] for i in order]
        return b.remade(weight, lambda a: a.reshape(shape).transpose(order), permuted)
    bare = weight if weight.shape == shape else b.RESHAPE(weight, b.shape(shape))
    return b.permute(b.with_quant(bare, None), order) if weight.quant is None else _no_kernel()


def _no_kernel() -> Value:
    raise Unsupported("the weights of a quantized convolution must be constant")


def _dense(b: Lowering, x: Value, weight: Value, bias: Value | None, w: Windows) -> Value:
    """[N, *S, C] convolved with [O, C, *K]; each output channel sees every input channel."""
    spatial = flat(weight.shape[2:], 1)
    order = (0, *range(2, len(spatial) + 2), 1)
    kernel = _kernel(b, weight, (*weight.shape[:2], *spatial), order)
    name = "CONV3D" if w.axes == 3 else "CONV2D"
    return _emit(b, name, x, weight, kernel, bias, w, weight.shape[0])


def _depthwise(b: Lowering, x: Value, weight: Value, bias: Value | None, w: Windows) -> Value:
    """[N, H, W, C] convolved with [C·M, 1, *K]: M output channels for each input channel."""
    channels = x.shape[-1]
    spatial = flat(weight.shape[2:], 1)
    kernel = _kernel(b, weight, (channels, weight.shape[0] // channels, *spatial), (2, 3, 0, 1))
    return _emit(b, "DEPTHWISE_CONV2D", x, weight, kernel, bias, w, weight.shape[0])


def _emit(
    b: Lowering, name: str, x: Value, weight: Value, kernel: Value, bias: Value | None,
    w: Windows, channels: int,
) -> Value:  # fmt: skip
    reach = [(k - 1) * n + 1 for k, n in zip(weight.shape[2:], w.dilation)]
    stride, dilation = flat(w.stride, 1), flat(w.dilation, 1)
    pads = [(0, 0), *w.pads] if w.axes == 1 else w.pads
    x, pads = fitted(b, x, flat(reach, 1), stride, pads)
    return convolved(b, x, Convolution(
        name, kernel, offsets(b, bias, x, weight, channels), zero_of(x), zero_of(weight), stride,
        tuple(pads), dilation, product(x, weight, x.type.rank - 1), math.prod(weight.shape[1:]),
    ))  # fmt: skip


def _transposed(
    b: Lowering, x: Value, weight: Value, bias: Value | None, w: Windows, extra: Sequence[int],
    depthwise: bool = False,
) -> Value:  # fmt: skip
    """[N, H, W, C] spread by [C, O, *K]; what TOSA's out_pad adds or takes is the padding."""
    if weight.quant is not None and weight.quant.axis == 0:
        raise Unsupported("the scales of a transposed convolution belong to axis 1 of its weights")
    wide = _spread(b, weight, w.dilation)
    spatial = flat(wide.shape[2:], 1)
    order = (2, 3, 0, 1) if depthwise else (1, 2, 3, 0)
    kernel = _kernel(b, wide, (*weight.shape[:2], *spatial), order)
    out_pad = [(-before, more - after) for (before, after), more in zip(w.pads, extra)]
    stride, padding = flat(w.stride, 1), [(0, 0), *out_pad] if w.axes == 1 else out_pad
    times = x.shape[3] if depthwise else 1
    terms = weight.shape[0] * math.prod(weight.shape[2:]) // times
    more = offsets(b, bias, x, weight, weight.shape[1] * times)
    quant = repeated(product(x, weight, 3), times)

    def direct() -> Value:
        y = b.TRANSPOSE_CONV2D(
            x, kernel, more, zero_point(b, x), zero_point(b, weight), out_pad=listed(padding),
            stride=stride, acc_type=accumulator(x),
        )  # fmt: skip
        return finished(b, b.with_quant(y, quant), terms, 22)

    def by_phases() -> Value:
        name = "DEPTHWISE_CONV2D" if depthwise else "CONV2D"
        return phased(b, x, Convolution(
            name, kernel, more, zero_of(x), zero_of(weight), (1, 1), ((0, 0), (0, 0)), (1, 1),
            quant, terms,
        ), stride, padding)  # fmt: skip

    return by_phases() if depthwise else first(b, direct, by_phases)


def _spread(b: Lowering, weight: Value, dilation: Sequence[int]) -> Value:
    """Weights with zeros between them, for the transposed convolution, which has no dilation."""
    if all(n == 1 for n in dilation):
        return weight
    if not weight.is_const:
        raise Unsupported("a dilated transposed convolution needs constant weights")
    sizes = [(k - 1) * n + 1 for k, n in zip(weight.shape[2:], dilation)]
    places = (slice(None), slice(None), *(slice(None, None, n) for n in dilation))
    shape = (*weight.shape[:2], *sizes)

    def make(given: Array) -> Array:
        wide = np.zeros(shape, given.dtype)
        wide[places] = given
        return wide

    return b.remade(weight, make, shape, quant=weight.quant)


def convolve(
    b: Lowering, input: Value, weight: Value, bias: Value | None, w: Windows, groups: int,
    extra: Sequence[int] | None = None,
) -> Value:  # fmt: skip
    """A convolution, transposed where ``extra`` output padding is given."""
    return by_weights(b, weight, lambda k: _by_groups(b, input, k, bias, w, groups, extra))


def _by_groups(
    b: Lowering, input: Value, weight: Value, bias: Value | None, w: Windows, groups: int,
    extra: Sequence[int] | None,
) -> Value:  # fmt: skip
    """Group by group, but for one channel in each group."""
    x = channels_last(b, input, w.axes)
    if extra is not None and w.axes == 3:
        raise Unsupported("TOSA has no transposed convolution over three axes")
    if extra is None and w.axes < 3 and groups == x.shape[-1] and groups > 1:
        y = _depthwise(b, x, weight, bias, w)
    elif extra is not None and weight.shape[:2] == (groups, 1) and groups > 1 and weight.is_const:
        y = _transposed(b, x, weight, bias, w, extra, depthwise=True)
    else:
        count = weight.shape[0] // groups
        parts = []
        for g in range(groups):
            share, channels = x.shape[-1] // groups, count if extra is None else weight.shape[1]
            data = piece(b, x, x.type.rank - 1, g * share, (g + 1) * share)
            kernel = piece(b, weight, 0, g * count, (g + 1) * count)
            more = bias and piece(b, bias, 0, g * channels, (g + 1) * channels)
            parts.append(
                _dense(b, data, kernel, more, w)
                if extra is None
                else _transposed(b, data, kernel, more, w, extra)
            )
        y = side_by_side(b, parts, x.type.rank - 1)
    return channels_first(b, y, w.axes, input.type.rank)


def _padding(given: str | Sequence[int], weight: Value, dilation: Sequence[int]) -> Pads:
    """Padding before and after; "same" puts the odd element behind, as PyTorch does."""
    if given == "valid":
        return [(0, 0)] * len(dilation)
    if given == "same":
        totals = [(k - 1) * n for k, n in zip(weight.shape[2:], dilation)]
        return [(t // 2, t - t // 2) for t in totals]
    return [(n, n) for n in each([int(n) for n in given], len(dilation))]


_CONV1D = [
    Sample(((1, 3, 12), (8, 3, 3), (8,)), ([1], [1])),
    Sample(((2, 4, 13), (6, 4, 4)), (None, [3], [2])),
    Sample(((2, 4, 13), (8, 1, 3), (8,)), ([1], [2], [2], 4)),
    Sample(((3, 12), (4, 3, 5), (4,))),
    Sample(((1, 4, 13), (8, 1, 5), (8,)), ([4], [1], [1], 4)),
    Sample(((1, 4, 11), (6, 2, 3), (6,)), ([2], [1], [1], 2)),
]
_CONV2D = [
    Sample(((1, 3, 9, 8), (8, 3, 3, 3), (8,)), ([1, 1], [1, 1])),
    Sample(((1, 3, 9, 8), (8, 3, 3, 3), (8,)), ([2, 2], [1, 1])),
    Sample(((1, 3, 10, 9), (8, 3, 2, 3), (8,)), ([3, 4], [0, 2])),
    Sample(((1, 8, 7, 7), (8, 1, 3, 3), (8,)), ([1, 1], [1, 1], [1, 1], 8)),
    Sample(((1, 4, 7, 7), (12, 1, 3, 3), (12,)), ([2, 1], [1, 0], [1, 2], 4)),
    Sample(((2, 4, 5, 5), (6, 4, 1, 1), (6,))),
    Sample(((4, 5, 6), (6, 4, 3, 2)), (None,)),
    Sample(((1, 4, 9, 9), (6, 4, 3, 3), (6,)), ([1, 1], [2, 2], [2, 2])),
    Sample(((1, 8, 6, 6), (8, 4, 3, 3), (8,)), ([1, 1], [0, 0], [1, 1], 2)),
    Sample(((1, 6, 6, 6), (9, 2, 3, 3)), (None, [2, 2], [1, 1], [1, 1], 3)),
    Sample(((2, 3, 5, 6), (8, 3, 3, 3), (8,)), ([1, 1], [6, 6], [6, 6])),
    Sample(((1, 3, 4, 9), (8, 3, 2, 3), (8,)), ([1, 1], [5, 2], [5, 2])),
    Sample(((1, 8, 4, 9), (8, 1, 2, 3)), (None, [1, 2], [5, 9], [5, 4], 8)),
]
_CONV3D = [
    Sample(((1, 3, 4, 5, 6), (4, 3, 2, 3, 3), (4,)), ([1, 1, 1], [0, 1, 1])),
    Sample(((1, 4, 5, 6, 6), (4, 2, 3, 3, 3)), (None, [2, 2, 2], [1, 1, 1], [1, 1, 1], 2)),
    Sample(((2, 5, 5, 5), (3, 2, 2, 2, 2), (3,)), ([1], [0], [2])),
]


def _named(shapes: tuple[tuple[int, ...], ...], axes: int) -> list[Sample]:
    """The overloads that take the padding as a word."""
    ones, twos = [1] * axes, [2] * axes
    return [
        Sample(shapes, (ones, "same")),
        Sample(shapes, (ones, "same", twos)),
        Sample(shapes, (twos, "valid")),
    ]


@rule("aten.conv1d.default", policy="WEIGHTED", samples=_CONV1D)
def conv(
    b: Lowering, input: Value, weight: Value, bias: Value | None = None,
    stride: Sequence[int] = (1,), padding: str | Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), groups: int = 1,
) -> Value:  # fmt: skip
    axes = weight.type.rank - 2
    stride, dilation = each(stride, axes), each(dilation, axes)
    windows = Windows(stride, _padding(padding, weight, dilation), dilation)
    return convolve(b, input, weight, bias, windows, groups)


rule("aten.conv2d.default", policy="WEIGHTED", samples=_CONV2D)(conv)
rule("aten.conv3d.default", policy="WEIGHTED", samples=_CONV3D)(conv)
_SHAPES = ((2, 4, 11), (6, 4, 4), (6,)), ((1, 3, 7, 8), (4, 3, 3, 2), (4,))
rule("aten.conv1d.padding", policy="WEIGHTED", samples=_named(_SHAPES[0], 1))(conv)
rule("aten.conv2d.padding", policy="WEIGHTED", samples=_named(_SHAPES[1], 2))(conv)
_SHAPE3 = ((1, 2, 5, 5, 5), (4, 2, 2, 2, 2), (4,))
rule("aten.conv3d.padding", policy="WEIGHTED", samples=_named(_SHAPE3, 3))(conv)


_TRANSPOSED = [
    Sample(((1, 3, 5, 6), (3, 4, 3, 3), (4,)), ([2, 2], [1, 1], [1, 1])),
    Sample(((2, 4, 4, 4), (4, 3, 2, 2), (3,)), ([2, 2],)),
    Sample(((1, 3, 5, 4), (3, 4, 4, 3)), (None, [1, 3], [2, 0], [0, 2])),
    Sample(((1, 4, 4, 4), (4, 2, 3, 3), (4,)), ([2, 2], [1, 1], [0, 0], 2)),
    Sample(((1, 4, 5, 4), (4, 1, 4, 3), (4,)), ([2, 3], [1, 0], [0, 1], 4)),
    Sample(((3, 4, 5), (3, 4, 2, 3), (4,)), ([2, 1], [0, 1], [0, 0], 1, [2, 2])),
    Sample(((1, 4, 5, 5), (4, 1, 3, 3), (2,)), ([2, 2], [1, 1], [1, 1], 2)),
]
_TRANSPOSED1D = [
    Sample(((1, 3, 9), (3, 4, 4), (4,)), ([2], [1])),
    Sample(((2, 4, 7), (4, 2, 3)), (None, [3], [0], [1], 2)),
    Sample(((1, 3, 7), (3, 2, 16), (2,)), ([8], [4])),
    Sample(((3, 8), (3, 5, 3), (5,)), ([1], [1], [0], 1, [2])),
    Sample(((1, 4, 6), (4, 1, 3)), (None, [1], [0], [0], 2)),
    Sample(((1, 6, 6), (6, 1, 4), (3,)), ([3], [1], [2], 3, [2])),
]


@rule("aten.conv_transpose2d.input", policy="WEIGHTED", weight_axis=1, samples=_TRANSPOSED)
def conv_transpose(
    b: Lowering, input: Value, weight: Value, bias: Value | None = None,
    stride: Sequence[int] = (1, 1), padding: Sequence[int] = (0, 0),
    output_padding: Sequence[int] = (0, 0), groups: int = 1, dilation: Sequence[int] = (1, 1),
) -> Value:  # fmt: skip
    axes = weight.type.rank - 2
    stride, dilation = each(stride, axes), each(dilation, axes)
    windows = Windows(stride, _padding(padding, weight, dilation), dilation)
    return convolve(b, input, weight, bias, windows, groups, each(output_padding, axes))


rule("aten.conv_transpose1d.default", policy="WEIGHTED", weight_axis=1, samples=_TRANSPOSED1D)(
    conv_transpose
)


@rule(
    "aten.convolution.default",
    policy="WEIGHTED",
    samples=[
        Sample(((1, 3, 12), (8, 3, 3), (8,)), ([2], [1], [1], False, [0], 1)),
        Sample(((1, 4, 6, 6), (6, 2, 3, 3), (6,)), ([1, 1], [1, 1], [1, 1], False, [0, 0], 2)),
        Sample(((1, 3, 4, 4, 4), (4, 3, 2, 2, 2)), (None, [1], [0], [1], False, [0], 1)),
    ],
)
def convolution(
    b: Lowering, input: Value, weight: Value, bias: Value | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int,
) -> Value:  # fmt: skip
    if transposed:
        return conv_transpose(
            b, input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return conv(b, input, weight, bias, stride, padding, dilation, groups)
