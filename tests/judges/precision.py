"""Whole-operator recipes on real data in the form of every target: how far each result is from
the real one of the same integers, in steps of the result. The best rounding is 0.5 off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from judges.rules import called, dequantized, finish, quantized, range_quant
from tosaic.ir.graph import Graph, Value
from tosaic.lowering.alternatives.mask import mask_input
from tosaic.lowering.builder import Lowering
from tosaic.lowering.target import Target
from tosaic.spec.dtypes import I8, I16, DType
from tosaic.spec.env import Env
from tosaic.targets.ethosu.target import ETHOS_U


@dataclass(frozen=True, slots=True)
class Form:
    """What a recipe is lowered for: a specification or an NPU, and the type of activations."""

    device: Target
    kind: DType = I8


def _plain(text: str) -> Target:
    return Target(text, Env.parse(text), ())


_SHORT = _plain("TOSA-1.0+INT+int16")
_U55, _U85 = ETHOS_U["ethos-u55-128"], ETHOS_U["ethos-u85-256"]
FORMS = {
    "INT": Form(_plain("TOSA-1.0+INT")),
    "INT+int16": Form(_SHORT),
    "u55": Form(_U55),
    "u85": Form(_U85),
    "INT+int16 a16": Form(_SHORT, I16),
    "u55 a16": Form(_U55, I16),
    "u85 a16": Form(_U85, I16),
}


@dataclass(frozen=True)
class Use:
    """An operator with its operands: those that are quantized, and what follows them.

    Tensors among the rest are constants; bool tensors are masks, which are computed.
    """

    target: str
    tensors: Sequence[Tensor]
    rest: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def real(self, *operands: Tensor) -> Tensor:
        """The result in PyTorch's float64."""
        packet, name = self.target.removeprefix("aten.").rsplit(".", 1)
        call = getattr(getattr(torch.ops.aten, packet), name)
        made = call(*operands, *(_precise(v) for v in self.rest), **self.keywords)
        return made[0] if isinstance(made, tuple) else made


def _precise(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


@dataclass(frozen=True)
class Made:
    """A use in the form of a target, and the result as it should be, in steps."""

    graph: Graph
    arrays: list[np.ndarray]
    ideal: np.ndarray

    def off(self, result: np.ndarray) -> float:
        return float(np.abs(result - self.ideal).max())


def inputs_of(
    b: Lowering, tensors: Iterable[Tensor], kind: DType
) -> tuple[list[Value], list[Tensor], list[np.ndarray]]:
    """Inputs with ranges that cover tensors, what these are then, and as integers."""
    values: list[Value] = []
    real: list[Tensor] = []
    arrays: list[np.ndarray] = []
    for i, tensor in enumerate(tensors):
        if tensor.dtype is torch.bool:
            values.append(mask_input(b, tuple(tensor.shape), f"x{i}"))
            arrays.append(tensor.numpy().astype(values[-1].dtype.array))
            real.append(tensor)
            continue
        quant = range_quant(tensor, kind)
        arrays.append(quantized(tensor, quant, kind))
        real.append(dequantized(arrays[-1], quant))
        values.append(b.with_quant(b.input(kind, tensor.shape, f"x{i}"), quant))
    return values, real, arrays


def made(use: Use, form: Form) -> Made:
    """Lowered as a compiler does it, with ranges that cover operands and result."""
    device, kind = form.device, form.kind
    b = Lowering.of(device)
    values, real, arrays = inputs_of(b, use.tensors, kind)
    expected = use.real(*real)
    wanted = range_quant(expected, kind)
    b.wanted = (wanted, kind)
    rest = [b.tensor(v) if isinstance(v, Tensor) else v for v in use.rest]
    result = called(b, use.target, *values, *rest, **use.keywords)
    result = result[0] if isinstance(result, tuple) else result
    graph = finish(
        b, b.requantize(result, wanted, kind), device.env, device.constraints, device.cost
    )
    ideal = expected.numpy() / wanted.scale + wanted.zero_point
    beyond = np.abs(ideal - np.clip(ideal, *kind.range)).max()
    assert beyond < 0.51, "the result saturates"
    return Made(graph, arrays, ideal)
