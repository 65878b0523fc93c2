"""Schemes: which integers stand for activations, weights and biases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.errors import InvalidInput
from tosaic.quant.observer import LEAST, RangeObserver
from tosaic.quant.pt2e import (
    DerivedQuantizationSpec,
    FixedQParamsQuantizationSpec,
    QuantizationSpec,
)
from tosaic.quant.weights import PerChannelWeightObserver

# The largest magnitude that is a float32, in which biases are rounded, and an int32.
_BIAS_MOST = 2**31 - 128


@dataclass(frozen=True, slots=True)
class Scheme:
    """Integers of activations; weights are int8 with a scale for each channel."""

    name: str
    dtype: torch.dtype
    low: int
    high: int
    qscheme: torch.qscheme
    env: str
    """What a rule must lower to for its operator to be quantized."""

    def activation(self, training: bool = False) -> QuantizationSpec:
        made: Any = RangeObserver
        if training:
            from torchao.quantization.pt2e import FakeQuantize, MovingAverageMinMaxObserver

            made = FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, eps=LEAST)
        return QuantizationSpec(
            self.dtype, made, self.low, self.high, self.qscheme, is_dynamic=False
        )

    def fixed(self, limits: tuple[float, float]) -> FixedQParamsQuantizationSpec:
        """For results that lie within limits: steps of a power of two, the upper end left out."""
        low, high = limits
        above_zero = low >= 0 and self.qscheme is torch.per_tensor_affine
        zero_point = self.low if above_zero else 0
        scale = max(-low, high) / 2.0 ** (round(math.log2(self.high - zero_point)))
        return FixedQParamsQuantizationSpec(
            self.dtype, scale, zero_point, self.low, self.high, self.qscheme
        )

    def weight(self, axis: int, training: bool = False) -> QuantizationSpec:
        """Symmetric, without −128: its negative would not fit."""
        made: Any = PerChannelWeightObserver
        if training:
            from torchao.quantization.pt2e import (
                FakeQuantize,
                MovingAveragePerChannelMinMaxObserver,
            )

            observer = MovingAveragePerChannelMinMaxObserver
            made = FakeQuantize.with_args(observer=observer, ch_axis=axis, eps=LEAST)
        return QuantizationSpec(torch.int8, made, -127, 127, torch.per_channel_symmetric, axis)

    def bias(self, source: fx.Node, weight: fx.Node, node: fx.Node) -> DerivedQuantizationSpec:
        """In the scale of the products, so that it adds to the accumulator as it is."""
        return DerivedQuantizationSpec(
            [(source, node), (weight, node)], _products, torch.int32, -_BIAS_MOST, _BIAS_MOST,
            torch.per_channel_symmetric, 0,
        )  # fmt: skip

    def derived(self, source: Any, weight: Any) -> Any:
        """The same for a layer in training."""
        from torchao.quantization.pt2e import DerivedObserverOrFakeQuantize

        return DerivedObserverOrFakeQuantize(
            torch.int32, [source, weight], _products, -_BIAS_MOST, _BIAS_MOST,
            torch.per_channel_symmetric, 0,
        )  # fmt: skip


def _products(observers: list[Any]) -> tuple[Tensor, Tensor]:
    (source, _), (weight, _) = (observer.calculate_qparams() for observer in observers)
    scales = source * weight
    return scales, torch.zeros(scales.shape, dtype=torch.int32)


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("int8", torch.int8, -128, 127, torch.per_tensor_affine, "TOSA-1.0+INT"),
        Scheme(
            "a16w8", torch.int16, -32767, 32767, torch.per_tensor_symmetric, "TOSA-1.0+INT+int16"
        ),
    )
}


def scheme_of(name: str) -> Scheme:
    """The scheme of that name."""
    if name not in SCHEMES:
        raise InvalidInput(f"there is no scheme {name!r}; there are {', '.join(SCHEMES)}")
    return SCHEMES[name]
