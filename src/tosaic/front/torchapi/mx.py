"""The operators of layers in block-scaled (MX) types, which programs with such a scheme call.

Weights are real numbers: they, and the input when the layer runs, are rounded to the type in
blocks of 32 input channels that share a scale. Products are added up in float32 or more.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.interp.block import block_rounded
from tosaic.spec.dtypes import dtype

_library = torch.library.Library("tosaic", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define(  # type: ignore[no-untyped-call]
    "mx_linear(Tensor input, Tensor weight, Tensor? bias, str element) -> Tensor"
)
_library.define(  # type: ignore[no-untyped-call]
    "mx_conv2d(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, "
    "int[] dilation, int groups, str element) -> Tensor"
)


@torch.library.impl(_library, "mx_linear", "CompositeExplicitAutograd")
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None, element: str) -> Tensor:
    kind = dtype(element)
    made = F.linear(block_rounded(input, kind), block_rounded(weight, kind, True)).float()
    return (made if bias is None else made + bias).to(input.dtype)


@torch.library.register_fake("tosaic::mx_linear", lib=_library)
def _like_linear(input: Tensor, weight: Tensor, bias: Tensor | None, element: str) -> Tensor:
    return input.new_empty((*input.shape[:-1], weight.shape[0]))


@torch.library.impl(_library, "mx_conv2d", "CompositeExplicitAutograd")
def _conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], groups: int, element: str,
) -> Tensor:  # fmt: skip
    kind = dtype(element)
    shares = input.unflatten(-3, (groups, -1))  # blocks end with their group
    x = block_rounded(shares.movedim(-3, -1), kind).movedim(-1, -3).flatten(-4, -3)
    w = block_rounded(weight.movedim(1, -1), kind, True).movedim(-1, 1)
    more = None if bias is None else bias.double()
    made = F.conv2d(x, w, more, list(stride), list(padding), list(dilation), groups)
    return made.float().to(input.dtype)


@torch.library.register_fake("tosaic::mx_conv2d", lib=_library)
def _like_conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], groups: int, element: str,
) -> Tensor:  # fmt: skip
    return F.conv2d(
        input, weight, bias, list(stride), list(padding), list(dilation), groups
    ).contiguous()


MX_LINEAR = torch.ops.tosaic.mx_linear.default
MX_CONV2D = torch.ops.tosaic.mx_conv2d.default
