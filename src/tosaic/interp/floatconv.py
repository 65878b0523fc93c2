"""Convolutions and matrix products: float32 arithmetic for every floating-point type.

Integers go to the exact classes of ``conv``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.interp import conv
from tosaic.interp.kernel import TORCH, Context, Run, kernel
from tosaic.interp.operands import specialise
from tosaic.ir.graph import Op

# Channels come second in both, the spatial axes after them.
Product = Callable[[Tensor, Tensor], Tensor]

_KINDS: dict[str, conv.Kind] = {
    "CONV2D": "conv2d",
    "CONV3D": "conv3d",
    "DEPTHWISE_CONV2D": "depthwise",
    "TRANSPOSE_CONV2D": "transpose",
}


@kernel(*_KINDS)
def convolution(op: Op, context: Context) -> Run:
    make = _in_floats if op.outs[0].dtype.is_float else _in_integers
    return specialise(op, "weight bias input_zp weight_zp", make(op))


def _in_integers(op: Op) -> Callable[..., Run]:
    def make(weight: Tensor, bias: Tensor, input_zp: Tensor, weight_zp: Tensor) -> Run:
        return integer_convolution(op, weight, bias, input_zp, weight_zp)

    return make


def integer_convolution(
    op: Op, weight: Tensor, bias: Tensor, input_zp: Tensor, weight_zp: Tensor
) -> conv.Convolution:
    """The exact convolution of an operator, prepared for these operands."""
    x, attrs = op.ins[0], op.attrs
    return conv.Convolution(
        _KINDS[op.name],
        weight,
        bias,
        input_shape=x.shape,
        pad=attrs["out_pad" if op.name == "TRANSPOSE_CONV2D" else "pad"],
        stride=attrs["stride"],
        dilation=attrs.get("dilation", (1, 1)),
        input_zp=int(input_zp),
        weight_zp=int(weight_zp),
        accumulator=TORCH[op.outs[0].dtype],
        interval=x.dtype.range,
        integer=_is_ordinary(op),
    )


def _is_ordinary(op: Op) -> bool:
    """Whether oneDNN's 8-bit kernels may be trusted with this geometry.

    Measured with torch 2.13 over thousands of random geometries: they are wrong or crash where a
    window can lie in the padding alone, where strides differ, with dilation, and with channel
    multipliers. Without these, no failure was found; with them, float arithmetic is exact.
    """
    if op.name not in ("CONV2D", "DEPTHWISE_CONV2D"):
        return False
    pad, stride, shape = op.attrs["pad"], op.attrs["stride"], op.operand("weight").shape
    depthwise = op.name == "DEPTHWISE_CONV2D"
    height, width = shape[:2] if depthwise else shape[1:3]
    return (
        op.attrs["dilation"] == (1, 1)
        and stride[0] == stride[1]
        and max(pad[:2]) < height
        and max(pad[2:]) < width
        and not (depthwise and shape[3] > 1)
    )


def _in_floats(op: Op) -> Callable[..., Run]:
    """Channels go second for torch and last again; zero points of floats are 0."""
    kind, out = _KINDS[op.name], op.outs[0]
    product, target, rank = _product(op), TORCH[out.dtype], out.type.rank
    second, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)

    def make(weight: Tensor, bias: Tensor, input_zp: Tensor, weight_zp: Tensor) -> Run:
        ready, offset = conv.torch_weight(kind, weight.float()), bias.float()

        def run(x: Tensor) -> Tensor:
            result = product(x.float().permute(second), ready).permute(last)
            return result.add_(offset).to(target)

        return run

    return make


def _product(op: Op) -> Product:
    stride = op.attrs["stride"]
    if op.name == "TRANSPOSE_CONV2D":
        # What out_pad adds holds the bias alone; what it takes away (it may be negative) is cut.
        out_pad = _torch_order(op.attrs["out_pad"])
        return lambda x, weight: F.pad(F.conv_transpose2d(x, weight, stride=stride), out_pad)
    convolve: Callable[..., Tensor] = F.conv3d if op.name == "CONV3D" else F.conv2d
    padding, dilation = _torch_order(op.attrs["pad"]), op.attrs["dilation"]
    groups = op.ins[0].shape[-1] if op.name == "DEPTHWISE_CONV2D" else 1

    def product(x: Tensor, weight: Tensor) -> Tensor:
        padded = F.pad(x, padding) if any(padding) else x
        return convolve(padded, weight, stride=stride, dilation=dilation, groups=groups)

    return product


def _torch_order(pad: tuple[int, ...]) -> list[int]:
    """Pairs of before and after, the last axis first."""
    return [n for i in reversed(range(0, len(pad), 2)) for n in pad[i : i + 2]]


@kernel("MATMUL", "MATMUL_T")
def matmul(op: Op, context: Context) -> Run:
    target, transposed = TORCH[op.outs[0].dtype], op.name == "MATMUL_T"
    batches = op.outs[0].shape[0]

    def right(b: Tensor) -> Tensor:
        return b.mT.expand(batches, -1, -1) if transposed else b

    def in_floats(a: Tensor, b: Tensor, a_zp: Tensor, b_zp: Tensor) -> Tensor:
        return torch.bmm(a.float(), right(b).float()).to(target)

    def in_integers(a: Tensor, b: Tensor, a_zp: Tensor, b_zp: Tensor) -> Tensor:
        return conv.matmul(a, right(b), a_zp=int(a_zp), b_zp=int(b_zp), accumulator=target)

    return in_floats if op.outs[0].dtype.is_float else in_integers
