"""Convolutions and matrix products, computed in float32 for every floating-point type."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.interp.kernel import TORCH, Context, Run, kernel
from tosaic.interp.operands import narrow, specialise
from tosaic.ir.graph import Op

# The product of input [N, C, *spatial] and prepared weights; both have channels second.
Product = Callable[[Tensor, Tensor], Tensor]


def _padding(op: Op) -> list[int]:
    """Torch's order: the last axis first."""
    pad = op.attrs["pad"]
    return [n for i in reversed(range(0, len(pad), 2)) for n in pad[i : i + 2]]


def _convolution(op: Op, prepare: Callable[[Tensor], Tensor], product: Product) -> Run:
    """Channels go second for torch and last again; the result gets its bias and its type."""
    out = op.outs[0]
    computed = torch.float32 if out.dtype.is_float else torch.float64
    rank = out.type.rank
    second, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)

    def make(weight: Tensor, bias: Tensor, input_zp: Tensor, weight_zp: Tensor) -> Run:
        ready = prepare(weight.to(computed) - weight_zp.to(computed))
        offset, zero = bias.to(computed), input_zp.to(computed)

        def run(x: Tensor) -> Tensor:
            centred = (x.to(computed) - zero).permute(second)
            result = product(centred, ready).permute(last) + offset
            if out.dtype.is_float:
                return result.to(TORCH[out.dtype])
            return narrow(result.to(torch.int64), out.dtype, "the accumulator")

        return run

    return specialise(op, "weight bias input_zp weight_zp", make)


def _padded(op: Op, convolve: Callable[..., Tensor], groups: int = 1) -> Product:
    padding, stride, dilation = _padding(op), op.attrs["stride"], op.attrs["dilation"]

    def product(x: Tensor, weight: Tensor) -> Tensor:
        if any(padding):
            x = F.pad(x, padding)
        return convolve(x, weight, stride=stride, dilation=dilation, groups=groups)

    return product


@kernel("CONV2D")
def conv2d(op: Op, context: Context) -> Run:
    return _convolution(op, lambda w: w.permute(0, 3, 1, 2), _padded(op, F.conv2d))


@kernel("CONV3D")
def conv3d(op: Op, context: Context) -> Run:
    return _convolution(op, lambda w: w.permute(0, 4, 1, 2, 3), _padded(op, F.conv3d))


@kernel("DEPTHWISE_CONV2D")
def depthwise_conv2d(op: Op, context: Context) -> Run:
    height, width, channels, _ = op.operand("weight").shape

    def prepare(weight: Tensor) -> Tensor:
        return weight.permute(2, 3, 0, 1).reshape(-1, 1, height, width)

    return _convolution(op, prepare, _padded(op, F.conv2d, channels))


@kernel("TRANSPOSE_CONV2D")
def transpose_conv2d(op: Op, context: Context) -> Run:
    """What out_pad adds holds the bias alone; what it takes away (it may be negative) is cut."""
    top, bottom, left, right = op.attrs["out_pad"]
    stride = op.attrs["stride"]

    def product(x: Tensor, weight: Tensor) -> Tensor:
        return F.pad(F.conv_transpose2d(x, weight, stride=stride), (left, right, top, bottom))

    return _convolution(op, lambda w: w.permute(3, 0, 1, 2), product)


@kernel("MATMUL", "MATMUL_T")
def matmul(op: Op, context: Context) -> Run:
    out = op.outs[0].dtype
    computed = torch.float32 if out.is_float else torch.float64

    def run(a: Tensor, b: Tensor, a_zp: Tensor, b_zp: Tensor) -> Tensor:
        left, right = a.to(computed) - a_zp.to(computed), b.to(computed) - b_zp.to(computed)
        result = left @ (right.mT if op.name == "MATMUL_T" else right)
        if out.is_float:
            return result.to(TORCH[out])
        return narrow(result.to(torch.int64), out, "the accumulator")

    return run
