"""Convolutions and matrix products: float32 arithmetic for every floating-point type.

Integers go to the exact classes of ``conv``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.interp import conv, int_matmul
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
        stride=_stride(op),
        dilation=_dilation(op),
        input_zp=int(input_zp),
        weight_zp=int(weight_zp),
        accumulator=TORCH[op.outs[0].dtype],
        interval=x.dtype.range,
    )


def _stride(op: Op) -> tuple[int, ...]:
    """The strides, 1 where there is but one step: it is never taken.

    oneDNN in torch 2.13 gives garbage, in float32 too, for one input channel, one output column
    and a stride above 1 along it.
    """
    given: tuple[int, ...] = op.attrs["stride"]
    if op.name == "TRANSPOSE_CONV2D":  # its stride spreads the input, and the result may be cut
        return given
    sizes = op.outs[0].shape[1:-1]
    return tuple(1 if size == 1 else step for size, step in zip(sizes, given))


def _dilation(op: Op) -> tuple[int, ...]:
    """The dilations, 1 where the kernel has but one element; a transposed one has none."""
    weight = op.operand("weight").shape
    kernel = weight[:2] if op.name == "DEPTHWISE_CONV2D" else weight[1:-1]
    given = op.attrs.get("dilation", (1,) * len(kernel))
    return tuple(1 if size == 1 else step for size, step in zip(kernel, given))


def _in_floats(op: Op) -> Callable[..., Run]:
    """Channels go second for torch and last again; zero points of floats are 0."""
    kind, out = _KINDS[op.name], op.outs[0]
    target, rank = TORCH[out.dtype], out.type.rank
    second, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)

    def make(weight: Tensor, bias: Tensor, input_zp: Tensor, weight_zp: Tensor) -> Run:
        ready, offset = conv.torch_weight(kind, weight.float()), bias.float()
        product = _product(op, bool(ready.isfinite().all()))

        def run(x: Tensor) -> Tensor:
            result = product(x.float().permute(second), ready).permute(last)
            return result.add_(offset).to(target)

        return run

    return make


def _product(op: Op, finite: bool) -> Product:
    stride, dilation = _stride(op), _dilation(op)
    transposed = op.name == "TRANSPOSE_CONV2D"
    groups = op.ins[0].shape[-1] if op.name == "DEPTHWISE_CONV2D" else 1
    convolve: Callable[..., Tensor] = F.conv3d if op.name == "CONV3D" else F.conv2d
    if not finite:
        one = F.conv_transpose2d if transposed else convolve
        return _by_taps(op, partial(one, groups=groups))
    padding = _torch_order(op.attrs["out_pad" if transposed else "pad"])
    if transposed:
        # What out_pad adds holds the bias alone; what it takes away (it may be negative) is cut.
        return lambda x, weight: F.pad(F.conv_transpose2d(x, weight, stride=stride), padding)

    def product(x: Tensor, weight: Tensor) -> Tensor:
        padded = F.pad(x, padding) if any(padding) else x
        return convolve(padded, weight, stride=stride, dilation=dilation, groups=groups)

    return product


def _by_taps(op: Op, convolve: Callable[..., Tensor]) -> Product:
    """A convolution whose weights meet no zeros of padding: infinity times zero is NaN.

    Each tap of the kernel is a convolution of its own, from the input it reaches to the results
    it counts for. torch's transposed convolution has zeros, too, between the elements it spreads.
    """
    stride, dilation = _stride(op), _dilation(op)
    batch, *sizes, channels = op.outs[0].shape
    transposed = op.name == "TRANSPOSE_CONV2D"
    all_channels = (slice(None), slice(None))

    def reach(axis: int, tap: int, size: int) -> tuple[slice, slice]:
        """Along an axis: the input that a tap meets, and the results it counts for."""
        if transposed:
            return _steps(size, sizes[axis], op.attrs["out_pad"][2 * axis] + tap, stride[axis])
        origin = tap * dilation[axis] - op.attrs["pad"][2 * axis]
        return _steps(sizes[axis], size, origin, stride[axis])[::-1]

    def product(x: Tensor, weight: Tensor) -> Tensor:
        total = x.new_zeros(batch, channels, *sizes)
        for taps in itertools.product(*map(range, weight.shape[2:])):
            pairs = [reach(i, tap, size) for i, (tap, size) in enumerate(zip(taps, x.shape[2:]))]
            seen, place = (all_channels + tuple(found) for found in zip(*pairs))
            one = all_channels + tuple(slice(tap, tap + 1) for tap in taps)
            if x[seen].numel():
                total[place] += convolve(x[seen], weight[one])
        return total

    return product


def _steps(count: int, size: int, origin: int, step: int) -> tuple[slice, slice]:
    """The i below ``count`` for which origin + i * step lies below ``size``, and those places."""
    first = max(0, -(origin // step))
    last = max(first, min(count, (size - 1 - origin) // step + 1))
    return slice(first, last), slice(origin + first * step, origin + last * step, step)


def _torch_order(pad: tuple[int, ...]) -> list[int]:
    """Pairs of before and after, the last axis first."""
    return [n for i in reversed(range(0, len(pad), 2)) for n in pad[i : i + 2]]


@kernel("MATMUL", "MATMUL_T")
def matmul(op: Op, context: Context) -> Run:
    target, transposed = TORCH[op.outs[0].dtype], op.name == "MATMUL_T"
    batches = op.outs[0].shape[0]
    ends = [context.bounds.of(v) if v.dtype.is_int else None for v in op.ins[:2]]

    def right(b: Tensor) -> Tensor:
        return b.mT.expand(batches, -1, -1) if transposed else b

    def in_floats(a: Tensor, b: Tensor, a_zp: Tensor, b_zp: Tensor) -> Tensor:
        return torch.bmm(a.float(), right(b).float()).to(target)

    def in_integers(a: Tensor, b: Tensor, a_zp: Tensor, b_zp: Tensor) -> Tensor:
        points = {"a_zp": int(a_zp), "b_zp": int(b_zp)}
        return int_matmul.matmul(
            a, right(b), **points, accumulator=target, a_ends=ends[0], b_ends=ends[1]
        )

    return in_floats if op.outs[0].dtype.is_float else in_integers
