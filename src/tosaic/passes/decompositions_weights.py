"""Decompositions of layers whose weights or biases are computed.

Convolutions become products of their windows with the weights, norms are scaled and moved after.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from tosaic.errors import Unsupported

_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_MOST_PLACES = 256  # elements of a window, each of which is a slice of the input


def _along(values: Sequence[int], axes: int) -> list[int]:
    return list(values) * axes if len(values) == 1 else list(values)


def _aligned(row: Tensor, rank: int) -> Tensor:
    """A number for each channel, in a shape that broadcasts along axis 1."""
    return row.reshape([-1 if axis == 1 else 1 for axis in range(rank)])


def _convolution(
    axes: int, input: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: Sequence[int] = (1,), padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """im2col: a product of the weights with windows, which are slices of the input."""
    steps, pads, gaps = (_along(v, axes) for v in (stride, padding, dilation))
    if input.dim() == axes + 1:
        made = _convolution(axes, input.unsqueeze(0), weight, bias, steps, pads, gaps, groups)
        return made.squeeze(0)
    x = F.pad(input, [pad for pad in reversed(pads) for _ in range(2)])
    kernel = weight.shape[2:]
    counts = [
        (size - (k - 1) * gap - 1) // step + 1
        for size, k, gap, step in zip(x.shape[2:], kernel, gaps, steps)
    ]
    places = list(itertools.product(*(range(k) for k in kernel)))
    if len(places) > _MOST_PLACES:
        raise Unsupported(f"computed weights need windows of at most {_MOST_PLACES} elements")
    parts = []
    for place in places:
        part = x
        for i, (k, gap, step, count) in enumerate(zip(place, gaps, steps, counts)):
            part = part.narrow(2 + i, k * gap, (count - 1) * step + 1)
            part = (
                part if step == 1 else part[(slice(None),) * (2 + i) + (slice(None, None, step),)]
            )
        parts.append(part.reshape(x.shape[0], x.shape[1], -1))
    inner = weight.shape[1] * len(places)
    windows = torch.stack(parts, 2).reshape(x.shape[0], groups, inner, -1)
    rows = weight.reshape(1, groups, weight.shape[0] // groups, inner)
    made = torch.matmul(rows, windows).reshape(x.shape[0], weight.shape[0], *counts)
    return made if bias is None else made + _aligned(bias, made.dim())


def _padded_alike(
    axes: int, input: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: Sequence[int] = (1,), padding: str = "valid", dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """With zeros around it that leave the size as it is, where they are asked for."""
    gaps, around = _along(dilation, axes), list[int]()
    if padding == "same":
        for k, gap in zip(reversed(weight.shape[2:]), reversed(gaps)):
            around += [gap * (k - 1) // 2, gap * (k - 1) - gap * (k - 1) // 2]
    return _convolution(axes, F.pad(input, around), weight, bias, stride, (0,), gaps, groups)


def conv_transpose(
    axes: int, input: Tensor, weight: Tensor, bias: Tensor | None = None,
    stride: Sequence[int] = (1,), padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,), groups: int = 1, dilation: Sequence[int] = (1,),
) -> Tensor:  # fmt: skip
    """A convolution with the weights turned round, of the input with zeros between its elements."""
    steps, pads, more, gaps = (_along(n, axes) for n in (stride, padding, output_padding, dilation))
    if input.dim() != axes + 2:
        raise Unsupported("a transposed convolution needs a batch axis")
    x, around = input, list[int]()
    for i in reversed(range(axes)):
        reach = gaps[i] * (weight.shape[2 + i] - 1) - pads[i]
        around += [reach, reach + more[i]]
        if steps[i] > 1:
            shape = list(x.shape)
            shape[2 + i] *= steps[i]
            apart = F.pad(x.unsqueeze(3 + i), [0, 0] * (axes - 1 - i) + [0, steps[i] - 1])
            x = apart.reshape(shape).narrow(2 + i, 0, shape[2 + i] - steps[i] + 1)
    turned = weight.flip(list(range(2, 2 + axes)))
    size = list(turned.shape)
    parts = turned.reshape([groups, size[0] // groups, *size[1:]]).transpose(1, 2)
    made = parts.reshape([groups * size[1], size[0] // groups, *size[2:]])
    return _CONVOLUTIONS[axes](F.pad(x, around), made, bias, dilation=gaps, groups=groups)


def _layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5, cudnn_enable: bool = True,
) -> Tensor:  # fmt: skip
    made = F.layer_norm(input, list(normalized_shape), eps=eps)
    made = made if weight is None else made * weight
    return made if bias is None else made + bias


def _batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    made = F.batch_norm(input, running_mean, running_var, None, None, training, momentum, eps)
    made = made if weight is None else made * _aligned(weight, made.dim())
    return made if bias is None else made + _aligned(bias, made.dim())


WITH_COMPUTED_WEIGHTS: dict[str, Callable[..., Tensor]] = {
    "aten.conv1d.default": partial(_convolution, 1),
    "aten.conv2d.default": partial(_convolution, 2),
    "aten.conv3d.default": partial(_convolution, 3),
    "aten.conv1d.padding": partial(_padded_alike, 1),
    "aten.conv2d.padding": partial(_padded_alike, 2),
    "aten.conv3d.padding": partial(_padded_alike, 3),
    "aten.conv_transpose1d.default": partial(conv_transpose, 1),
    "aten.conv_transpose2d.input": partial(conv_transpose, 2),
    "aten.layer_norm.default": _layer_norm,
    "aten.batch_norm.default": _batch_norm,
}
