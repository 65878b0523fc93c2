"""The types of torchao's PT2E flow: specifications, annotations and observers.

torchao itself takes longer to load than a network takes to compile, so quantizing after training
has words of its own, with torchao's names and fields, and ``prepare`` and ``convert`` to go with
them. Where torchao's own flow is at work, ``join_torchao`` lets it take ours for its own.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

EdgeOrNode = Any  # fx.Node for a result, (fx.Node, fx.Node) for a value as a call reads it


@dataclass(frozen=True)
class QuantizationSpec:
    """Integers whose meaning an observer finds."""

    dtype: torch.dtype
    observer_or_fake_quant_ctr: Any
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: torch.qscheme | None = None
    ch_axis: int | None = None
    is_dynamic: bool = False


@dataclass(frozen=True)
class SteppedQuantizationSpec(QuantizationSpec):
    """The same for values that are multiples of a step."""

    step: float = 0.0


@dataclass(frozen=True)
class FixedQParamsQuantizationSpec:
    """Integers with a meaning that is given."""

    dtype: torch.dtype
    scale: float
    zero_point: int
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: torch.qscheme | None = None
    is_dynamic: bool = False


@dataclass(frozen=True)
class SharedQuantizationSpec:
    """The same as for another value."""

    edge_or_node: EdgeOrNode


@dataclass(frozen=True)
class DerivedQuantizationSpec:
    """Integers whose meaning follows from those of others."""

    derived_from: list[EdgeOrNode]
    derive_qparams_fn: Callable[[list[Any]], tuple[Tensor, Tensor]]
    dtype: torch.dtype
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: torch.qscheme | None = None
    ch_axis: int | None = None
    is_dynamic: bool = False


@dataclass
class QuantizationAnnotation:
    """What a call reads and gives."""

    input_qspec_map: dict[fx.Node, Any] = field(default_factory=dict)
    output_qspec: Any = None
    allow_implicit_sharing: bool = True
    _annotated: bool = False


@dataclass(frozen=True, eq=False)
class Making:
    """How observers of a kind are made, with some of their options."""

    kind: type[ObserverBase]
    options: dict[str, Any]

    @property
    def __name__(self) -> str:
        return self.kind.__name__

    def with_args(self, **options: Any) -> Making:
        return Making(self.kind, self.options | options)

    def __call__(self) -> ObserverBase:
        return self.kind(**self.options)


class ObserverBase(nn.Module, ABC):
    """Looks at values and says what integers stand for them."""

    def __init__(self, dtype: torch.dtype, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic

    @classmethod
    def with_args(cls, **options: Any) -> Making:
        return Making(cls, options)

    @abstractmethod
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point."""


class UniformQuantizationObserverBase(ObserverBase):
    """Scale and zero point from the ends of a range, as torchao computes them."""

    eps: Tensor

    def __init__(
        self,
        dtype: torch.dtype,
        quant_min: int,
        quant_max: int,
        qscheme: torch.qscheme = torch.per_tensor_affine,
        eps: float = torch.finfo(torch.float32).eps,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(dtype, is_dynamic)
        self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
        self.register_buffer("eps", torch.tensor([eps]))

    def _calculate_qparams(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        low, high = low.clamp(max=0), high.clamp(min=0)
        steps = float(self.quant_max - self.quant_min)
        if self.qscheme in (torch.per_tensor_symmetric, torch.per_channel_symmetric):
            middle = (self.quant_min + self.quant_max + 1) // 2  # 128 for uint8
            scale = torch.maximum(torch.maximum(-low, high) / (steps / 2), self.eps)
            points = torch.full(scale.shape, 0 if self.dtype.is_signed else middle)
            return scale, points
        scale = torch.maximum((high - low) / steps, self.eps)
        zero_point = self.quant_min - torch.round(low / scale).to(torch.int)
        return scale, zero_point.clamp(self.quant_min, self.quant_max)


class FixedQParamsObserver(ObserverBase):
    """Scale and zero point that are given."""

    def __init__(self, spec: FixedQParamsQuantizationSpec) -> None:
        super().__init__(spec.dtype)
        self.spec, self.qscheme = spec, spec.qscheme
        self.quant_min, self.quant_max = spec.quant_min, spec.quant_max

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return torch.tensor([self.spec.scale]), torch.tensor([self.spec.zero_point])


class DerivedObserverOrFakeQuantize(ObserverBase):
    """Scale and zero point from those of other observers."""

    def __init__(
        self,
        dtype: torch.dtype,
        obs_or_fqs: list[Any],
        derive_qparams_fn: Callable[[list[Any]], tuple[Tensor, Tensor]],
        quant_min: int | None = None,
        quant_max: int | None = None,
        qscheme: torch.qscheme | None = None,
        ch_axis: int | None = None,
    ) -> None:
        super().__init__(dtype)
        self.derive_qparams_fn, self.qscheme, self.ch_axis = derive_qparams_fn, qscheme, ch_axis
        self.quant_min, self.quant_max = quant_min, quant_max
        self._others = tuple(obs_or_fqs)  # modules with places of their own

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        return self.derive_qparams_fn(list(self._others))


def join_torchao() -> None:
    """Let torchao take our words for its own, if it is loaded."""
    if "torchao.quantization.pt2e" not in sys.modules:
        return
    from torchao.quantization import pt2e
    from torchao.quantization.pt2e import quantizer

    pt2e.ObserverBase.register(ObserverBase)
    DerivedObserverOrFakeQuantize.register(pt2e.DerivedObserverOrFakeQuantize)
    for own in (QuantizationSpec, FixedQParamsQuantizationSpec, SharedQuantizationSpec,
                DerivedQuantizationSpec):  # fmt: skip
        getattr(quantizer, own.__name__).register(own)
