"""The operators of layers in block-scaled (MX) types, which programs with such a scheme call.

Weights are real numbers: they, and the input when the layer runs, are rounded to the type in
blocks of 32 input channels that share a scale. Products are added up in float32 or more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.errors import InvalidInput
from tosaic.interp.block import block_rounded
from tosaic.spec.dtypes import BLOCK, dtype

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


@torch.library.impl(_library, "mx_linear", "Meta")
def _like_linear(input: Tensor, weight: Tensor, bias: Tensor | None, element: str) -> Tensor:
    return input.new_empty((*input.shape[:-1], weight.shape[0]))


@torch.library.impl(_library, "mx_conv2d", "CompositeExplicitAutograd")
def _conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], groups: int, element: str,
) -> Tensor:  # fmt: skip
    kind = dtype(element)
    shares = input.unflatten(-3, (groups, -1))  # type: ignore[no-untyped-call]  # blocks end with their group
    x = block_rounded(shares.movedim(-3, -1), kind).movedim(-1, -3).flatten(-4, -3)
    w = block_rounded(weight.movedim(1, -1), kind, True).movedim(-1, 1)
    more = None if bias is None else bias.double()
    made = F.conv2d(x, w, more, list(stride), list(padding), list(dilation), groups)
    return made.float().to(input.dtype)


@torch.library.impl(_library, "mx_conv2d", "Meta")
def _like_conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], groups: int, element: str,
) -> Tensor:  # fmt: skip
    return F.conv2d(
        input, weight, bias, list(stride), list(padding), list(dilation), groups
    ).contiguous()


# What torchao calls the types of elements.
ELEMENTS: dict[Any, str] = {
    torch.float8_e4m3fn: "f8e4m3", torch.float8_e5m2: "f8e5m2", "fp6_e2m3": "f6e2m3",
    "fp6_e3m2": "f6e3m2", torch.float4_e2m1fn_x2: "f4e2m1",
}  # fmt: skip


@contextmanager
def as_block_layers(model: torch.nn.Module) -> Iterator[None]:
    """While a model is captured, layers that torchao has converted call the operator here.

    Their numbers are those of torchao; afterwards the model is as it was.
    """
    found = [
        (layer, name, value)
        for layer in model.modules()
        for name, value in layer._parameters.items()
        if type(value).__name__ == "MXTensor"
    ]
    try:
        for layer, name, value in found:
            _check(layer, name, value)
            assert isinstance(layer, torch.nn.Linear)
            real = value.dequantize(torch.float32)  # type: ignore[union-attr,call-arg]
            layer._parameters[name] = torch.nn.Parameter(real, requires_grad=False)
            if value.act_quant_kwargs is not None:  # type: ignore[union-attr]
                element = ELEMENTS[value.elem_dtype]  # type: ignore[union-attr]
                layer.forward = partial(_forward, layer, element)  # type: ignore[method-assign]
        yield
    finally:
        for layer, name, value in found:
            layer._parameters[name] = value
            vars(layer).pop("forward", None)


def _forward(layer: torch.nn.Linear, element: str, input: Tensor) -> Tensor:
    made: Tensor = MX_LINEAR(input, layer.weight, layer.bias, element)
    return made


def _check(layer: torch.nn.Module, name: str, value: Any) -> None:
    if not isinstance(layer, torch.nn.Linear) or name != "weight":
        raise InvalidInput(
            f"{type(layer).__name__}.{name} is an MXTensor, and Tosaic reads those of nn.Linear: "
            "give the float model with scheme="
        )
    if value.elem_dtype not in ELEMENTS or value.block_size != BLOCK:
        raise InvalidInput(
            f"the weights of a layer are {value.elem_dtype} in blocks of {value.block_size}, and "
            f"TOSA has blocks of {BLOCK}"
        )


MX_LINEAR = torch.ops.tosaic.mx_linear.default
MX_CONV2D = torch.ops.tosaic.mx_conv2d.default
