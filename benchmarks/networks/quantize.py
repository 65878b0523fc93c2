"""A small post-training quantizer: int8 activations, int8 weights per channel, int32 biases.

It knows the layers of `models` and no others. The result is a list of plain records that an
emitter can turn into any form.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .models import Activation, ConvBN, Eager, Network, batches

Kind = Literal["conv", "depthwise", "add", "max_pool", "average"]


@dataclass(frozen=True, slots=True)
class Quant:
    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True)
class Scale:
    """A RESCALE's fixed-point factors: multiplier · 2^−shift, one or one per channel."""

    multiplier: NDArray[np.int32]
    shift: NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer on quantized values; `inputs` are indices of values, 0 being the picture."""

    kind: Kind
    inputs: tuple[int, ...]
    in_zp: tuple[int, ...]
    out_zp: int
    out_shape: tuple[int, int, int]
    rescale: tuple[Scale, ...] = ()
    """conv: one, per channel. add: one for each input and one for the sum."""
    weight: NDArray[np.int8] | None = None
    bias: NDArray[np.int32] | None = None
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    """top, bottom, left, right; a negative number cuts rows or columns that are never read."""


@dataclass(frozen=True, slots=True)
class QuantizedNetwork:
    name: str
    in_shape: tuple[int, int, int]
    in_quant: Quant
    out_quant: Quant
    layers: tuple[Layer, ...]

    def encode(self, pictures: Tensor) -> NDArray[np.int8]:
        """NCHW pictures as the graph's int8 NHWC input."""
        levels = torch.round(pictures / self.in_quant.scale) + self.in_quant.zero_point
        return levels.clamp(-128, 127).to(torch.int8).permute(0, 2, 3, 1).contiguous().numpy()

    def decode(self, logits: NDArray[np.int8]) -> NDArray[np.float64]:
        return (logits.astype(np.float64) - self.out_quant.zero_point) * self.out_quant.scale


def fixed_point(real: NDArray[np.float64]) -> Scale:
    """The nearest multiplier of 31 bits and its shift, as TOSA's scale32 wants them."""
    fraction, exponent = np.frexp(real)
    multiplier = np.round(fraction * 2.0**31).astype(np.int64)
    carried = multiplier == 1 << 31
    multiplier = np.where(carried, 1 << 30, multiplier)
    shift = 31 - exponent - carried
    if np.any((shift < 2) | (shift > 62)):
        raise ValueError(f"no shift of 2 to 62 expresses the factors {real}")
    return Scale(multiplier.astype(np.int32), shift.astype(np.int8))


def activation_quant(low: float, high: float) -> Quant:
    """int8 over [low, high], widened to hold zero exactly."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = max(high - low, 1e-6) / 255
    return Quant(scale, round(-128 - low / scale))


class Calibrate(Eager):
    """Eager execution that notes the range of each layer's output, in order of the walk."""

    def __init__(self, ranges: list[tuple[float, float]]) -> None:
        self.ranges = ranges
        self.index = 0

    def note(self, x: Tensor) -> Tensor:
        low, high = x.min().item(), x.max().item()
        if self.index == len(self.ranges):
            self.ranges.append((low, high))
        else:
            seen = self.ranges[self.index]
            self.ranges[self.index] = (min(seen[0], low), max(seen[1], high))
        self.index += 1
        return x

    def conv(self, x: Tensor, layer: ConvBN) -> Tensor:
        return self.note(super().conv(x, layer))

    def add(self, x: Tensor, y: Tensor, act: Activation) -> Tensor:
        return self.note(super().add(x, y, act))

    def linear(self, x: Tensor, layer: nn.Linear) -> Tensor:
        return self.note(super().linear(x, layer))


@dataclass(frozen=True, slots=True)
class Value:
    """A quantized tensor on the way through the walk."""

    index: int
    shape: tuple[int, int, int]
    quant: Quant


def window(size: int, kernel: int, stride: int, pad: int) -> tuple[int, int]:
    """Output size, and the end padding with which the windows cover the input exactly.

    TOSA wants the division by the stride to be exact; PyTorch rounds down, which leaves the last
    rows unread.
    """
    out = (size + 2 * pad - kernel) // stride + 1
    return out, (out - 1) * stride + kernel - size - pad


@dataclass(slots=True)
class Quantize:
    """The walk that writes layers down."""

    ranges: Iterator[tuple[float, float]]
    layers: list[Layer] = field(default_factory=list)

    def _append(self, layer: Layer, quant: Quant) -> Value:
        self.layers.append(layer)
        return Value(len(self.layers), layer.out_shape, quant)

    def _weighted(
        self, x: Value, w: NDArray[np.float64], b: NDArray[np.float64], stride: int, depthwise: bool
    ) -> Value:
        """A convolution by the weights [OC, IC, K, K] and biases [OC]."""
        quant = activation_quant(*next(self.ranges))
        kernel = w.shape[2]
        height, end = window(x.shape[0], kernel, stride, (kernel - 1) // 2)
        start = (kernel - 1) // 2
        scale = np.maximum(np.abs(w).max(axis=(1, 2, 3)) / 127, 1e-9)
        levels = np.round(w / scale[:, None, None, None]).astype(np.int8)
        layer = Layer(
            kind="depthwise" if depthwise else "conv",
            inputs=(x.index,),
            in_zp=(x.quant.zero_point,),
            out_zp=quant.zero_point,
            out_shape=(height, height, w.shape[0]),
            rescale=(fixed_point(x.quant.scale * scale / quant.scale),),
            # TOSA's orders: [OC, KH, KW, IC], and [KH, KW, C, 1] for depthwise
            weight=np.ascontiguousarray(
                levels.transpose((2, 3, 0, 1) if depthwise else (0, 2, 3, 1))
            ),
            bias=np.round(b / (x.quant.scale * scale)).astype(np.int32),
            kernel=(kernel, kernel),
            stride=(stride, stride),
            pad=(start, end, start, end),
        )
        return self._append(layer, quant)

    def conv(self, x: Value, layer: ConvBN) -> Value:
        conv, bn = layer.conv, layer.bn
        if not isinstance(bn, nn.BatchNorm2d) or bn.running_mean is None or bn.running_var is None:
            raise ValueError("a batch norm without statistics cannot be folded")
        gain = (bn.weight / torch.sqrt(bn.running_var + bn.eps)).double()
        weight = (conv.weight.double() * gain[:, None, None, None]).numpy()
        bias = (bn.bias.double() - bn.running_mean.double() * gain).numpy()
        return self._weighted(x, weight, bias, conv.stride[0], conv.groups > 1)

    def linear(self, x: Value, layer: nn.Linear) -> Value:
        weight = layer.weight.double()[:, :, None, None].numpy()
        return self._weighted(x, weight, layer.bias.double().numpy(), 1, False)

    def add(self, x: Value, y: Value, act: Activation) -> Value:
        quant = activation_quant(*next(self.ranges))
        # 20 bits of headroom: 255 · 2^19 for each input, their sum stays far below 2^31
        common = 2 * max(x.quant.scale, y.quant.scale) / 2**20
        factors = (x.quant.scale / common, y.quant.scale / common, common / quant.scale)
        layer = Layer(
            kind="add",
            inputs=(x.index, y.index),
            in_zp=(x.quant.zero_point, y.quant.zero_point),
            out_zp=quant.zero_point,
            out_shape=x.shape,
            rescale=tuple(fixed_point(np.array([factor])) for factor in factors),
        )
        return self._append(layer, quant)

    def max_pool(self, x: Value, kernel: int, stride: int, pad: int) -> Value:
        height, end = window(x.shape[0], kernel, stride, pad)
        zp = x.quant.zero_point
        layer = Layer(
            kind="max_pool",
            inputs=(x.index,),
            in_zp=(zp,),
            out_zp=zp,
            out_shape=(height, height, x.shape[2]),
            kernel=(kernel, kernel),
            stride=(stride, stride),
            pad=(pad, end, pad, end),
        )
        return self._append(layer, x.quant)

    def average(self, x: Value) -> Value:
        zp = x.quant.zero_point
        layer = Layer(
            kind="average",
            inputs=(x.index,),
            in_zp=(zp,),
            out_zp=zp,
            out_shape=(1, 1, x.shape[2]),
            kernel=x.shape[:2],
        )
        return self._append(layer, x.quant)


@torch.no_grad()
def quantize(net: Network, seed: int = 2000) -> QuantizedNetwork:
    """Calibrate on seeded pictures and write the layers down."""
    ranges: list[tuple[float, float]] = []
    low, high, side = 0.0, 0.0, 0
    for batch in batches(4, 4, seed):
        net.walk(batch, Calibrate(ranges))
        low, high, side = (
            min(low, batch.min().item()),
            max(high, batch.max().item()),
            batch.shape[2],
        )
    writer = Quantize(iter(ranges))
    picture = Value(0, (side, side, 3), activation_quant(low, high))
    logits = net.walk(picture, writer)
    return QuantizedNetwork(
        net.name, picture.shape, picture.quant, logits.quant, tuple(writer.layers)
    )
