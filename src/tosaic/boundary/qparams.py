"""Quantization parameters of calls: what integers of PyTorch's tensors stand for."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial

import torch
from torch import Tensor, fx

from tosaic.boundary.types import IO
from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE
from tosaic.front.program import Program
from tosaic.ir.graph import Quant
from tosaic.runtime.warn import warn

_TYPES = {"uint8": torch.uint8, "int8": torch.int8, "int16": torch.int16}


def without_nan(real: Tensor) -> Tensor:
    """Real numbers to be quantized: infinities saturate, and NaN counts as 0, the zero point.

    PT2E's operator converts NaN to an integer, for which C++ and the processors have no rule.
    """
    if bool(real.isnan().any()):
        warn("a tensor that is quantized has NaN in it, which integers cannot hold: it counts as 0")
    return real.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)


@dataclass(frozen=True, slots=True)
class QParams(Quant):
    """Quantization parameters of a call: one scale and zero point, the integers and their type."""

    scale: float
    zero_point: int = 0
    _: KW_ONLY
    low: int
    high: int
    dtype: torch.dtype

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest real number."""
        low, high = (self.scale * (end - self.zero_point) for end in (self.low, self.high))
        return low, high

    def quantize(self, real: Tensor) -> Tensor:
        """Integers for real numbers, as PT2E's own operator makes them; NaN is the zero point."""
        levels = torch.round(without_nan(real.float()) * (1.0 / self.scale)) + self.zero_point
        return levels.clamp(self.low, self.high).to(self.dtype)

    def dequantize(self, integers: Tensor) -> Tensor:
        """The real numbers that integers stand for."""
        return (integers.to(torch.float32) - self.zero_point) * self.scale

    def means(self, other: QParams) -> bool:
        """Whether each has the same number for each of as many steps, be it int8 or uint8."""
        ours, theirs = (m.zero_point - torch.iinfo(m.dtype).min for m in (self, other))
        same = ours == theirs and self.high - self.low == other.high - other.low
        return same and self.scale == other.scale

    def become(self, io: IO) -> QParams:
        """The same numbers in a type, as exactly as it can have all of them."""
        dtype = _TYPES[io.dtype]
        limits, sixteen = torch.iinfo(dtype), dtype is torch.int16
        of_type = partial(QParams, low=limits.min, high=limits.max, dtype=dtype)
        if io.scale is not None:
            return of_type(io.scale, io.zero_point or 0)
        if dtype is self.dtype:
            return self
        if sixteen:  # 128 steps for each of the 256, whatever their zero point is
            return of_type(self.scale / 128, low=-limits.max)
        if self.dtype is torch.int16:
            return of_type(self.scale * 32767 / 127, limits.max - 127)
        shift = limits.min - torch.iinfo(self.dtype).min
        low, high = self.low + shift, self.high + shift
        return QParams(self.scale, self.zero_point + shift, low=low, high=high, dtype=dtype)


def qparams_of(call: fx.Node) -> QParams | None:
    """What a call quantizes to or dequantizes from; None if it does neither, or by channel."""
    bound = torchapi.bound_arguments(call)
    if torchapi.target_name(call) not in (QUANTIZE, *DEQUANTIZE) or "quant_min" not in bound:
        return None
    numbers = [bound[name] for name in ("scale", "zero_point", "quant_min", "quant_max")]
    if not all(isinstance(number, (int, float)) for number in numbers):
        return None
    scale, zero, low, high = numbers
    return QParams(float(scale), int(zero), low=int(low), high=int(high), dtype=bound["dtype"])


def input_qparams(program: Program, node: fx.Node) -> QParams | None:
    """What an input's integers stand for, if all that read it agree on that."""
    example, found = node.meta.get("val"), set[QParams | None]()
    for user in program.users.get(node, ()):
        found.add(qparams_of(user) if torchapi.target_name(user) in DEQUANTIZE else None)
    return found.pop() if len(found) == 1 and isinstance(example, Tensor) else None


def is_unsigned(node: fx.Node) -> bool:
    """Whether a node is a tensor of uint8, or quantizes to it or dequantizes from it."""
    if torchapi.target_name(node) in (QUANTIZE, *DEQUANTIZE):
        return torchapi.bound_arguments(node).get("dtype") is torch.uint8
    example = node.meta.get("val")
    return isinstance(example, torch.Tensor) and example.dtype is torch.uint8


def real_numbers(integers: Tensor, meaning: Quant) -> Tensor:
    """What quantized values stand for, for PyTorch to go on with."""
    scale = torch.tensor(meaning.scale, dtype=torch.float64)
    zero = torch.tensor(meaning.zero_point, dtype=torch.float64)
    if meaning.axis is not None:
        shape = [1] * integers.dim()
        shape[meaning.axis] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape if zero.dim() else ())
    return ((integers.double() - zero) * scale).float()
