"""Exact integer convolutions on torch: CONV2D, CONV3D, DEPTHWISE_CONV2D, TRANSPOSE_CONV2D.

Tensors are NHWC (NDHWC), weights in TOSA's layouts. Which arithmetic runs is decided once from
the weights: oneDNN's 8-bit products or kernels, float32 where no partial sum can reach 2^24 (the
input channels are split until that holds), float64 otherwise. Weights computed at run time need a
`Convolution` for each call; its preparation costs a pass or two over the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.errors import Unpredictable
from tosaic.interp import int_matmul, onednn
from tosaic.interp.exact import FLOAT32_EXACT, Interval, strict_float32, sum_interval, sums_between
from tosaic.interp.rescale import dtype_range

Kind = Literal["conv2d", "depthwise", "conv3d", "transpose"]
Ints = tuple[int, ...]

# From how many parts on one float64 convolution is faster than float32 ones (measured 2–4×).
PARTS = 4

# Input channels from which oneDNN's products are as fast as its convolutions, once packed.
_DEEP = 64
# Weights from which their sums by products are faster.
_MANY = 1 << 12

# A convolution over some input channels of an NCHW tensor, its result in float32 or float64.
Part = Callable[[Tensor], Tensor]


def torch_weight(kind: Kind, weight: Tensor) -> Tensor:
    """TOSA's weight layout to PyTorch's: output channels first (input channels if transposed)."""
    if kind == "depthwise":
        height, width, channels, multiplier = weight.shape
        return weight.permute(2, 3, 0, 1).reshape(channels * multiplier, 1, height, width)
    if kind == "transpose":
        return weight.permute(3, 0, 1, 2)
    return weight.movedim(-1, 1)


class Convolution:
    """A convolution prepared once; calls give the exact accumulators as int32 or int64 (int48).

    `pad` is TOSA's: before and after for each dimension (out_pad for a transposed one).
    `interval` says what values the input can take, before its zero point is subtracted.
    """

    def __init__(
        self,
        kind: Kind,
        weight: Tensor,
        bias: Tensor,
        *,
        input_shape: Ints,
        pad: Ints,
        stride: Ints,
        dilation: Ints = (1, 1),
        input_zp: int = 0,
        weight_zp: int = 0,
        accumulator: torch.dtype = torch.int32,
        interval: tuple[int, int] = (-128, 127),
        integer: bool = True,
    ) -> None:
        self.kind, self.input_shape, self.accumulator = kind, input_shape, accumulator
        # Without a zero point a view of the constant itself, else as narrow as it can be.
        self.weight = torch_weight(
            kind, weight.to(torch.int16) - weight_zp if weight_zp else weight
        )
        self.channels = self.weight.shape[1 if kind == "transpose" else 0]
        self.bias = bias.reshape(-1).to(torch.int64).expand(self.channels)
        self.pad, self.stride, self.dilation = tuple(pad), tuple(stride), tuple(dilation)
        self.groups = input_shape[-1] if kind == "depthwise" else 1
        self.input_zp, self.values = input_zp, interval
        low, high = interval[0] - input_zp, interval[1] - input_zp
        self.sums = self._sum_interval(None if weight_zp else weight, low, high)
        self.interval = self.sums.shifted(self.bias)
        self.safe = self.interval.within(*dtype_range(accumulator))
        # Beyond 8 bits an input is split into a signed high byte and an unsigned low one.
        self.digits = high > 255 or low < -255
        self.padding, self.explicit = self._split_padding()
        fits = self.weight.dtype is torch.int8 or (
            self.weight.min() >= -128 and self.weight.max() <= 127
        )
        spatial = kind in ("conv2d", "depthwise") and interval[0] >= -128 and interval[1] <= 127
        wanted = bool(integer and fits and spatial) and self._is_ordinary()
        self.integer = wanted and onednn.available()
        bytes_of = self.digits and interval[0] >= -(1 << 15) and interval[1] < 1 << 15
        apart = kind == "conv2d" and not input_zp and not any(pad)
        self._by_bytes = bool(
            bytes_of and apart and fits and integer and self._is_ordinary() and onednn.available()
        )
        self._prepare()

    def _prepare(self) -> None:
        low, high = (value - self.input_zp for value in self.values)
        bound = (min(low >> 8, 0), max(high >> 8, 255)) if self.digits else (low, high)
        # A bias goes into the convolution where no partial sum with it can reach 2^24 either.
        largest = int((torch.maximum(-self.sums.low, self.sums.high) + self.bias.abs()).max())
        self._folded = largest < FLOAT32_EXACT and not self.digits and self.kind != "transpose"
        self._edges = self._split(*bound)
        self._wide = self.interval.peak >= FLOAT32_EXACT
        # The sum of several parts, or of what can lie beyond 2^24, is in float64.
        single = len(self._edges) == 2 and not self._wide and not self.digits
        self._total = torch.float32 if single else torch.float64
        row = self.bias.view(-1, *(1,) * len(self.stride)).to(self._total)
        self._row = row if not self._folded and bool(self.bias.any()) else None
        self._parts: dict[bool, list[Part]] = {}
        # A depthwise kernel of one element is a factor for each channel.
        plain = self.kind == "depthwise" and self.channels == self.groups
        plain = plain and self.weight[0].numel() == 1 and {*self.stride} == {1}
        exact = torch.float64 if self._wide else torch.float32
        self._factors = self.weight.flatten().to(exact) if plain and not any(self.pad) else None
        # A product of matrices, for which nothing is packed.
        self._is_product = (
            self.integer and self.kind == "conv2d" and self.weight.shape[2:] == (1, 1)
            and {*self.stride} == {1} and not any(self.pad)
            and self.interval.within(*dtype_range(torch.int32))
            and _DEEP <= self.weight.shape[1] <= int_matmul.LONGEST and int_matmul.available()
        )  # fmt: skip

    def _sum_interval(self, weight: Tensor | None, low: int, high: int) -> Interval:
        """The values of all sums; by products where TOSA's own weights are rows of bytes."""
        if weight is not None and weight.dtype is torch.int8 and weight.numel() >= _MANY:
            rows = weight.reshape(len(weight), -1)
            fits = self.kind in ("conv2d", "conv3d") and 1 < rows.shape[1] <= int_matmul.LONGEST
            if fits and int_matmul.available():
                return sums_between(*int_matmul.signed_sums(rows), low, high)
        return sum_interval(self._by_output(self.weight), low, high)

    def _by_output(self, weight: Tensor) -> Tensor:
        return weight.transpose(0, 1) if self.kind == "transpose" else weight

    def _is_ordinary(self) -> bool:
        """Whether oneDNN's 8-bit kernels may be trusted with this geometry.

        Measured with torch 2.13 over thousands of random geometries: they are wrong or crash
        where a window can lie in the padding alone, where strides differ, with dilation, and
        with channel multipliers. Processors with AMX give wrong sums from 16 columns of weights
        on (torch 2.11), and depthwise with 16 channels and 14 columns never returns.
        """
        height, width = self.weight.shape[2:]
        whole = self.channels == self.groups
        return (
            max(height, width) < 14
            and self.dilation == (1, 1)
            and self.stride[0] == self.stride[1]
            and max(self.pad[:2]) < height
            and max(self.pad[2:]) < width
            and (whole or self.kind != "depthwise")
        )

    def _split_padding(self) -> tuple[Ints, Ints]:
        """What PyTorch's symmetric padding can express, and the explicit rest (F.pad's order).

        Padding after the data that no window reaches may be added: TOSA's [1, 0] at stride 2
        is PyTorch's 1.
        """
        before, after = self.pad[0::2], self.pad[1::2]
        explicit = tuple(
            p for pair in reversed(list(zip(before, after, strict=True))) for p in pair
        )
        if self.kind == "transpose":
            return (0,) * len(before), explicit
        kernel = self.weight.shape[2:]
        for i, size in enumerate(self.input_shape[1:-1]):
            span = size + before[i] - self.dilation[i] * (kernel[i] - 1) - 1
            steps = (span + after[i]) // self.stride[i], (span + before[i]) // self.stride[i]
            if before[i] < after[i] or steps[0] != steps[1]:
                return (0,) * len(before), explicit
        return before, ()

    def _split(self, low: int, high: int) -> list[int]:
        """The fewest ranges of input channels whose sums are all exact in float32, by their edges.

        No edges where float64 is the faster way.
        """
        size = self.weight.shape[self._axis]
        for count in range(1, min(PARTS, size) + 1):
            self._folded = self._folded and count == 1
            edges = [size * i // count for i in range(count + 1)]
            if count == 1 and not self.digits:  # all of it: bound already
                bounds = [self.sums]
            else:
                pieces = map(self._by_output, self._pieces(edges))
                bounds = [sum_interval(piece, low, high) for piece in pieces]
            if all(bound.peak < FLOAT32_EXACT for bound in bounds):
                return edges
        return []

    @property
    def _axis(self) -> int:
        return 0 if self.kind == "transpose" else 1

    def _pieces(self, edges: list[int]) -> list[Tensor]:
        """The weights of each range of input channels."""
        return [self.weight.narrow(self._axis, a, b - a) for a, b in pairwise(edges)]

    @property
    def engine(self) -> bool:
        """Do accumulators come from oneDNN's 8-bit kernels? They give them in float32."""
        return self.integer and bool(self._edges)

    @property
    def in_bytes(self) -> bool:
        """Do accumulators come from 8-bit kernels, of whole inputs or of their bytes?"""
        return bool(self._edges) and (self.integer or self._by_bytes)

    def pack(self) -> None:
        """Prepare what the next call needs."""
        if not self._is_product:
            self.parts(self.in_bytes)

    def parts(self, integer: bool) -> list[Part]:
        """The prepared convolutions of an engine: oneDNN's 8-bit one, or float arithmetic."""
        if integer not in self._parts:
            bias = self.bias.float() if self._folded else None
            make = self._integer_part if integer else self._float_part
            pieces = self._pieces(self._edges) if self._edges else [self.weight]
            self._parts[integer] = [make(piece, bias) for piece in pieces]
        return self._parts[integer]

    def _integer_part(self, weight: Tensor, bias: Tensor | None) -> Part:
        run = self.packed(weight, weight.shape[self._axis], offset=bias)

        def part(x: Tensor) -> Tensor:
            return run(x.contiguous(memory_format=torch.channels_last), torch.float32)

        return part

    def _float_part(self, weight: Tensor, bias: Tensor | None) -> Part:
        layout = torch.channels_last_3d if self.kind == "conv3d" else torch.channels_last
        dtype = torch.float32 if self._edges else torch.float64
        ready = weight.to(dtype).contiguous(memory_format=layout)
        return lambda x: self._convolve(x.to(dtype), ready, bias)

    def packed(
        self,
        weight: Tensor,
        channels: int,
        slope: Tensor | None = None,
        offset: Tensor | None = None,
    ) -> onednn.IntegerConvolution:
        """oneDNN's convolution with these weights in this geometry."""
        n, height, width, _ = self.input_shape
        n *= 1 + self._by_bytes
        if self.explicit:
            height, width = height + sum(self.pad[:2]), width + sum(self.pad[2:])
        return onednn.IntegerConvolution(
            weight,
            (n, channels * self.groups, height, width),
            input_zp=self.input_zp,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            slope=slope,
            offset=offset,
        )

    @property
    def outputs(self) -> int:
        """How many elements the result has."""
        count = self.input_shape[0] * self.channels
        for i, size in enumerate(self.input_shape[1:-1]):
            kernel = self.weight.shape[2 + i]
            if self.kind == "transpose":
                count *= (size - 1) * self.stride[i] + sum(self.pad[2 * i : 2 * i + 2]) + kernel
            else:
                span = size + sum(self.pad[2 * i : 2 * i + 2]) - self.dilation[i] * (kernel - 1)
                count *= (span - 1) // self.stride[i] + 1
        return count

    def carrier(self, x: Tensor) -> Tensor:
        """The input of oneDNN's kernels: NCHW view of a carrier, explicit padding added."""
        x = onednn.to_carrier(x)
        if self.explicit:
            x = F.pad(x, (0, 0, *self.explicit), value=self.input_zp + onednn.OFFSET)
        return x.movedim(-1, 1)

    def accumulate(self, x: Tensor, integer: bool = True) -> Tensor:
        """The exact accumulators as integers held in float32 or float64, channels last."""
        if self._factors is not None:
            return self._checked((onednn.from_carrier(x).to(self._factors.dtype) - self.input_zp)
                                 .mul_(self._factors).add_(self.bias))  # fmt: skip
        if integer and self._is_product and x.itemsize == 1:
            return self._product(onednn.from_carrier(x))
        if integer and self.engine and x.itemsize == 1:
            total = self._sum(self.carrier(x), True)
        elif integer and self._by_bytes and self._edges and x.dtype is torch.int16:
            total = self._sum_of_bytes(x)
        else:
            with strict_float32():
                total = self._float(onednn.from_carrier(x))
        total = total.to(self._total)
        if self._row is not None:
            total = total.add_(self._row)
        return self._checked(total).movedim(1, -1).contiguous()

    def _checked(self, total: Tensor) -> Tensor:
        if not self.safe:
            low, high = dtype_range(self.accumulator)
            if bool(((total < low) | (total > high)).any()):
                raise Unpredictable("a sum lies outside its accumulator")
        return total

    def _product(self, x: Tensor) -> Tensor:
        """The same in int32, of an int8 matrix."""
        rows = int_matmul.dense(x.reshape(-1, x.shape[-1]))
        total = torch._int_mm(rows, self._matrix).add_(self._offset)
        return total.view(*x.shape[:-1], -1)

    @cached_property
    def _matrix(self) -> Tensor:
        return int_matmul.dense(self.weight[:, :, 0, 0].to(torch.int8)).T

    @cached_property
    def _offset(self) -> Tensor:
        """What bias and zero point add."""
        ones = torch.ones(1, len(self._matrix), dtype=torch.int8)
        weights = torch._int_mm(ones, self._matrix)[0].to(torch.int64)
        return (self.bias - self.input_zp * weights).to(torch.int32)

    def _float(self, x: Tensor) -> Tensor:
        if not self.digits:
            return self._sum((x.float() - self.input_zp).movedim(-1, 1), False)
        value = x.to(torch.int32) - self.input_zp
        digits = torch.cat([value >> 8, value & 255]).float().movedim(-1, 1)
        high, low = self._sum(digits, False).double().chunk(2)
        return high.mul_(256).add_(low)

    def _sum_of_bytes(self, x: Tensor) -> Tensor:
        """The same with 8-bit kernels: the low byte comes lowered by 128, as carriers have it."""
        low = x.to(torch.uint8)
        high = (x >> 8).to(torch.uint8) ^ onednn.OFFSET
        sums = self._sum(torch.cat([high, low]).movedim(-1, 1), True).double()
        high, low = sums.chunk(2)
        return torch.add(low, high, alpha=256).add_(self._lowered)

    @cached_property
    def _lowered(self) -> Tensor:
        total = self.weight.sum((1, 2, 3), dtype=torch.int64).double()
        return (total * onednn.OFFSET)[:, None, None]

    def _sum(self, x: Tensor, integer: bool) -> Tensor:
        """The sum of the parts, each over its range of input channels."""
        total: Tensor | None = None
        edges = self._edges or [0, x.shape[1]]
        for part, (start, stop) in zip(self.parts(integer), pairwise(edges), strict=True):
            result = part(x if len(edges) == 2 else x[:, start:stop])
            total = result if total is None else total.double().add_(result)
        assert total is not None
        return total

    def _convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.kind == "transpose":
            return F.pad(F.conv_transpose2d(x, weight, None, self.stride), self.explicit)
        if self.explicit:
            x = F.pad(x, self.explicit)
        convolve = F.conv3d if self.kind == "conv3d" else F.conv2d
        return convolve(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def select(self, index: Tensor) -> Convolution:
        """This convolution for some output channels only (a depthwise one: of their inputs)."""
        part = copy(self)
        part.weight, part.bias = self.weight[index], self.bias[index]
        part.channels = len(index)
        part.sums = Interval(self.sums.low[index], self.sums.high[index])
        part.interval = Interval(self.interval.low[index], self.interval.high[index])
        if self.kind == "depthwise":
            part.groups = len(index)
            part.input_shape = (*self.input_shape[:-1], len(index))
        for made in ("_lowered", "_matrix", "_offset"):
            part.__dict__.pop(made, None)
        part._prepare()
        return part

    def __call__(self, x: Tensor) -> Tensor:
        return self.accumulate(x).to(self.accumulator)
