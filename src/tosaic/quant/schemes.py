"""Schemes: which integers stand for activations, weights and biases."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.errors import InvalidInput
from tosaic.lowering.target import Target
from tosaic.quant.observer import LEAST, RangeObserver
from tosaic.quant.pt2e import (
    DerivedObserverOrFakeQuantize,
    DerivedQuantizationSpec,
    FixedQParamsQuantizationSpec,
    QuantizationSpec,
    SteppedQuantizationSpec,
)
from tosaic.quant.weights import PerChannelWeightObserver, PerTensorWeightObserver
from tosaic.spec import dtypes as d
from tosaic.spec.dtypes import fits_int4
from tosaic.spec.env import Env

# The largest magnitude that is a float32, in which biases are rounded, and an int32.
_BIAS_MOST = 2**31 - 128


@dataclass(frozen=True, slots=True)
class Scheme:
    """Integers of activations and of weights.

    Weights have a scale for each output channel, or one for all. Their smallest integer is left
    out: its negative would not fit. Steps of activations are ``eps`` at least. Results are like
    what a call reads, or as in the scheme that ``gives`` names.
    """

    name: str
    dtype: torch.dtype
    low: int
    high: int
    qscheme: torch.qscheme
    weight_low: int = -127
    weight_high: int = 127
    per_channel: bool = True
    eps: float = LEAST
    gives: str = ""

    @property
    def result(self) -> Scheme:
        """The scheme whose integers a call gives."""
        return SCHEMES[self.gives] if self.gives else self

    @property
    def weight_kind(self) -> d.DType:
        """The type of weights in a TOSA file that has it."""
        return d.I4 if fits_int4(self.weight_low, self.weight_high) else d.I8

    @property
    def is_wide(self) -> bool:
        """Whether activations are int16."""
        return self.dtype is torch.int16

    @property
    def rounds_by_data(self) -> bool:
        """Whether weights are coarser than what is read or given: how they are rounded decides."""
        widest = max(each.high - each.low for each in (self, self.result))
        return self.weight_high - self.weight_low < widest // 2

    @property
    def env(self) -> str:
        """What a rule must lower to for its operator to be quantized."""
        return "+".join(("TOSA-1.0", "INT", *self._extensions))

    @property
    def _extensions(self) -> list[str]:
        is_wide = self.is_wide or self.result.is_wide
        has = {"int16": is_wide, "int4": self.weight_kind is d.I4}
        return [name for name, needed in has.items() if needed]

    def check(self, env: Env) -> None:
        """InvalidInput if a specification lacks what the scheme cannot do without."""
        has = env.profiles | env.extensions
        missing = [name for name in ("INT", *self._extensions) if name not in has]
        if missing:
            raise InvalidInput(
                f"the scheme {self.name} needs {' and '.join(missing)}, which {env} does not have: "
                f"compile for {self.env}, or take another scheme"
            )

    def activation(self, training: bool = False) -> QuantizationSpec:
        return _activation(self.dtype, self.low, self.high, self.qscheme, self.eps, training)

    def stepped(self, step: float, training: bool = False) -> SteppedQuantizationSpec:
        """For results that are multiples of a step."""
        return _stepped(self.activation(), step, self.eps, training)

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
        """With the channels of the output along an axis of the weights."""
        along = axis if self.per_channel else None
        return _weight(along, self.weight_low, self.weight_high, self.rounds_by_data, training)

    def bias(
        self, source: fx.Node, weight: fx.Node, node: fx.Node, values: Tensor | None, repeats: int
    ) -> DerivedQuantizationSpec:
        """In the scale of the products, so that it adds to the accumulator as it is.

        ``repeats`` says how often a weight's scales come in the bias: groups may share them.
        """
        derive = partial(_products, values=values, repeats=repeats if self.per_channel else 1)
        return DerivedQuantizationSpec(
            [(source, node), (weight, node)], derive, torch.int32, -_BIAS_MOST, _BIAS_MOST,
            *self._channels,
        )  # fmt: skip

    def derived(self, source: Any, weight: Any, derive: Any) -> DerivedObserverOrFakeQuantize:
        """The same for a layer in training."""
        return DerivedObserverOrFakeQuantize(
            torch.int32, [source, weight], derive, -_BIAS_MOST, _BIAS_MOST, *self._channels
        )

    @property
    def _channels(self) -> tuple[torch.qscheme, int | None]:
        """How the scales of a bias are laid out."""
        if self.per_channel:
            return torch.per_channel_symmetric, 0
        return torch.per_tensor_symmetric, None


def rounding(eps: float, axis: int | None = None, observer: Any = None) -> Any:
    """What rounds values in training, with a scale for each channel if there is an axis."""
    from torchao.quantization import pt2e  # for those who train

    if axis is None:
        watching = observer or pt2e.MovingAverageMinMaxObserver
        return pt2e.FakeQuantize.with_args(observer=watching, eps=eps)
    observer = pt2e.MovingAveragePerChannelMinMaxObserver
    return pt2e.FakeQuantize.with_args(observer=observer, ch_axis=axis, eps=eps)


@cache
def _activation(
    dtype: torch.dtype, low: int, high: int, qscheme: torch.qscheme, eps: float, training: bool
) -> QuantizationSpec:
    made: Any = RangeObserver if eps == LEAST else RangeObserver.with_args(eps=eps)
    if training:
        made = rounding(eps)
    return QuantizationSpec(dtype, made, low, high, qscheme, is_dynamic=False)


@cache
def _stepped(
    usual: QuantizationSpec, step: float, eps: float, training: bool
) -> SteppedQuantizationSpec:
    made: Any = RangeObserver.with_args(eps=eps)
    if training:
        made = rounding(eps, observer=RangeObserver)
    return SteppedQuantizationSpec(
        usual.dtype, made, usual.quant_min, usual.quant_max, usual.qscheme, step=step
    )


@cache
def _weight(
    axis: int | None, low: int, high: int, by_data: bool, training: bool
) -> QuantizationSpec:
    if axis is None:
        made: Any = PerTensorWeightObserver.with_args(by_data=by_data)
        if training:
            made = rounding(LEAST)
        return QuantizationSpec(torch.int8, made, low, high, torch.per_tensor_symmetric)
    made = PerChannelWeightObserver.with_args(by_data=by_data)
    if training:
        made = rounding(LEAST, axis)
    return QuantizationSpec(torch.int8, made, low, high, torch.per_channel_symmetric, axis)


def _products(
    observers: list[Any], values: Tensor | None = None, repeats: int = 1
) -> tuple[Tensor, Tensor]:
    """The scale of a bias: that of the products, or larger where 32 bits would not hold it."""
    (source, _), (weight, _) = (observer.calculate_qparams() for observer in observers)
    scales = (source * weight).repeat(repeats)
    if values is not None:
        most = values.detach().float().abs()
        scales = torch.maximum(scales, (most if scales.numel() > 1 else most.max()) / _BIAS_MOST)
    return scales, torch.zeros(scales.shape, dtype=torch.int32)


@dataclass(frozen=True, slots=True)
class BlockScheme:
    """Linear and convolution layers in a block-scaled (MX) type; everything else stays in float.

    Weights are rounded when the model is compiled, activations when it runs. Blocks of 32 input
    channels share a scale, so nothing is calibrated.
    """

    name: str
    element: d.DType

    @property
    def _extensions(self) -> tuple[str, ...]:
        if self.element is d.MXI8:
            return "mx", "mxint8"
        name = self.element.name.replace("f", "fp", 1)
        return *((name,) if self.element.is_float else ()), "mx", f"mx{name}"

    @property
    def env(self) -> str:
        """What a layer needs to lower to; ``mxfp`` is all block-scaled types and operators."""
        return "+".join(("TOSA-1.1", "FP", *self._extensions, "mxfpconv"))

    def check(self, env: Env) -> None:
        """InvalidInput if a specification lacks the type."""
        has = env.profiles | env.extensions
        missing = [name for name in ("FP", *self._extensions) if name not in has]
        if missing:
            raise InvalidInput(
                f"the scheme {self.name} is for TOSA 1.1 with block-scaled types, and {env} has no "
                f"{', '.join(missing)}: compile for TOSA-1.1+FP+mxfp, or take another scheme"
            )


def _per_tensor(scheme: Scheme) -> Scheme:
    return replace(scheme, name=f"{scheme.name}_per_tensor", per_channel=False)


_PER_CHANNEL = (
    Scheme("int8", torch.int8, -128, 127, torch.per_tensor_affine),
    Scheme("a16w8", torch.int16, -32767, 32767, torch.per_tensor_symmetric),
    Scheme("a8w4", torch.int8, -128, 127, torch.per_tensor_affine, -7, 7),
)
_INT8, _INT16, _ = _PER_CHANNEL
# Calls at the borders of parts with 16 bits: a convolution gives them as cheaply as 8.
_BORDERS = (
    replace(_INT8, name="int8_to_int16", gives="a16w8"),
    replace(_INT16, name="int16_to_int8", gives="int8"),
)
SCHEMES = {s.name: s for s in (*_PER_CHANNEL, *map(_per_tensor, _PER_CHANNEL), *_BORDERS)}

BLOCK_SCHEMES = {
    name: BlockScheme(name, element)
    for name, element in (
        ("mxfp8", d.F8E4M3), ("mxfp8_e5m2", d.F8E5M2), ("mxfp6_e2m3", d.F6E2M3),
        ("mxfp6_e3m2", d.F6E3M2), ("mxfp4", d.F4E2M1), ("mxint8", d.MXI8),
    )
}  # fmt: skip


# Parts of spectra and their magnitudes: RESCALE gives no more than this, whatever its factor is.
LONG = Scheme("a32w8", torch.int32, -(2**29) + 1, 2**29 - 1, torch.per_tensor_symmetric)


def scheme_of(name: str) -> Scheme:
    """The scheme of integers of that name."""
    if name not in SCHEMES:
        is_float = re.fullmatch(r"(b?fp?|b?float)\d*", str(name)) is not None
        way = "; a model in float needs no scheme and a target with FP" if is_float else ""
        near = get_close_matches(str(name).lower(), SCHEMES, 1)
        meant = f", perhaps {near[0]}" if near else ""
        known = ", ".join((*SCHEMES, *BLOCK_SCHEMES))
        raise InvalidInput(f"there is no scheme {name!r}{meant}; there are {known} and auto{way}")
    return SCHEMES[name]


def wider(scheme: Scheme, target: Target | None) -> Scheme:
    """The scheme of values that want 16 bits, where the target has functions of such."""
    env = Env.parse(scheme.env) if target is None else target.env
    return SCHEMES["a16w8"] if env.has("int16") else scheme
