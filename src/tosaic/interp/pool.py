"""Pools: a window moves over height and width, and its elements are combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.interp.kernel import TORCH, Context, Run, kernel
from tosaic.interp.operands import narrow, specialise
from tosaic.ir.graph import Op
from tosaic.spec import dtypes as d


class Combine(NamedTuple):
    """How the elements of a window become one: two at a time, or all over some axes."""

    pair: Callable[[Tensor, Tensor], Tensor]
    outside: float
    whole: Callable[[Tensor, tuple[int, int]], Tensor] | None = None


def _total(x: Tensor, axes: tuple[int, int]) -> Tensor:
    return x.sum(axes, keepdim=True, dtype=x.dtype)


def _largest(x: Tensor, axes: tuple[int, int]) -> Tensor:
    return x.amax(axes, keepdim=True)


SUM = Combine(torch.add, 0, _total)


class Window:
    """A window over [N, H, W, C]: first its columns are combined, then its rows."""

    def __init__(self, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]) -> None:
        self.kernel, self.stride = tuple(kernel), tuple(stride)
        top, bottom, left, right = pad
        self.padding = (0, 0, left, right, top, bottom)

    def __call__(self, x: Tensor, combine: Combine) -> Tensor:
        if any(self.padding):
            x = F.pad(x, self.padding, value=combine.outside)
        elif combine.whole and self.kernel == x.shape[1:3]:
            return combine.whole(x, (1, 2))
        for axis, size, stride in zip((2, 1), self.kernel[::-1], self.stride[::-1]):
            x = _slide(x, axis, size, stride, combine.pair)
        return x

    def counts(self, height: int, width: int) -> Tensor:
        """How many elements of the input each window holds: [1, OH, OW, 1]."""
        return self(torch.ones(1, height, width, 1, dtype=torch.int64), SUM)


def _slide(
    x: Tensor, axis: int, size: int, stride: int, pair: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    steps = (x.shape[axis] - size) // stride + 1

    def tap(offset: int) -> Tensor:
        places = x.narrow(axis, offset, (steps - 1) * stride + 1)
        return places[:, ::stride] if axis == 1 else places[:, :, ::stride]

    result = tap(0)
    for offset in range(1, size):
        result = pair(result, tap(offset))
    return result


def _pool(op: Op, make: Callable[[Window], Run]) -> Run:
    """The kernel for a window from attributes, or from operands in the adaptive pools."""
    if "kernel" in op.attrs:
        return make(Window(op.attrs["kernel"], op.attrs["stride"], op.attrs["pad"]))
    return specialise(op, "kernel stride pad", lambda *sizes: make(Window(*map(_sizes, sizes))))


def _sizes(tensor: Tensor) -> list[int]:
    sizes: list[int] = tensor.tolist()
    return sizes


@kernel("MAX_POOL2D", "MAX_POOL2D_ADAPTIVE")
def max_pool2d(op: Op, context: Context) -> Run:
    kind, target = op.ins[0].dtype, TORCH[op.ins[0].dtype]
    if not kind.is_float:
        combine = Combine(torch.maximum, kind.range[0], _largest)
    elif op.attrs["nan_mode"] == "IGNORE":
        combine = Combine(torch.fmax, torch.nan)
    else:
        combine = Combine(torch.maximum, -torch.inf, _largest)
    if kind.is_float and kind.bits == 8:
        return _pool(op, lambda window: lambda x: window(x.float(), combine).to(target))
    return _pool(op, lambda window: lambda x: window(x, combine))


@kernel("AVG_POOL2D", "AVG_POOL2D_ADAPTIVE")
def avg_pool2d(op: Op, context: Context) -> Run:
    _, height, width, _ = op.ins[0].shape
    kind = op.ins[0].dtype
    if kind.is_float:
        return _pool(op, lambda window: _float_mean(window, kind, height, width))
    return _pool(op, lambda window: _mean(window, kind, height, width))


def _float_mean(window: Window, kind: d.DType, height: int, width: int) -> Run:
    counts, target = window.counts(height, width).float(), TORCH[kind]

    def run(x: Tensor, input_zp: Tensor, output_zp: Tensor) -> Tensor:
        return (window(x.float(), SUM) / counts).to(target)

    return run


def _mean(window: Window, kind: d.DType, height: int, width: int) -> Run:
    """The sum times a 31-bit reciprocal of the count, rounded half up."""
    counts = window.counts(height, width)
    multiplier, shift = _reciprocal(counts)
    half = torch.ones_like(shift) << (shift - 1)
    fits = int(counts.max()) << kind.bits < 1 << 31
    low, high = kind.range
    target = TORCH[kind]

    def run(x: Tensor, input_zp: Tensor, output_zp: Tensor) -> Tensor:
        centred = x.to(torch.int32 if fits else torch.int64) - input_zp
        total = window(centred, SUM)
        if not fits:
            narrow(total, d.I32, "the sum of a window")
        scaled = (total.to(torch.int64) * multiplier).add_(half) >> shift
        return scaled.add_(output_zp).clamp_(low, high).to(target)

    return run


def _reciprocal(counts: Tensor) -> tuple[Tensor, Tensor]:
    """1 / count as a multiplier below 2^31 and a shift."""
    extra = torch.frexp((counts - 1).double()).exponent.to(torch.int64)
    numerator = torch.full_like(extra, (1 << 30) + 1) << extra
    return numerator // counts, 30 + extra
