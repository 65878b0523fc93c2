"""The interface of an artifact: names, types and quantization of its inputs and outputs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.boundary.memory_order import example_of, order_of
from tosaic.boundary.ports import names_of, qparams_at
from tosaic.boundary.qparams import QParams
from tosaic.front import torchapi
from tosaic.front.calls import label
from tosaic.front.program import Program


@dataclass(frozen=True, slots=True)
class Port:
    """A tensor that a program takes or gives.

    ``shape`` is PyTorch's. ``dim_order`` are its axes as they lie in memory, the outermost first.
    Integers with a scale stand for real numbers: real = scale · (integer − zero_point), each of
    them within ``quant_min`` and ``quant_max``.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    dim_order: tuple[int, ...]
    scale: float | None = None
    zero_point: int | None = None
    quant_min: int | None = None
    quant_max: int | None = None

    @property
    def is_contiguous(self) -> bool:
        return self.dim_order == tuple(range(len(self.shape)))

    @property
    def bytes(self) -> int:
        """How many bytes it takes; 0 for what is no tensor."""
        found = getattr(torch, self.dtype, None)
        return math.prod(self.shape) * found.itemsize if isinstance(found, torch.dtype) else 0

    @property
    def meaning(self) -> str:
        """Scale and zero point in words."""
        if self.scale is None:
            return ""
        return f"scale {self.scale:.6g}, zero point {self.zero_point}"

    def quantize(self, real: Any) -> Tensor:
        """Real numbers as this tensor has them; floats stay what they are if it has no scale."""
        tensor, kind = torch.as_tensor(real), self._kind()
        return tensor if kind is None or not tensor.is_floating_point() else kind.quantize(tensor)

    def dequantize(self, value: Any) -> Tensor:
        """The real numbers that this tensor's values stand for."""
        tensor, kind = torch.as_tensor(value), self._kind()
        return tensor if kind is None or tensor.is_floating_point() else kind.dequantize(tensor)

    def _kind(self) -> QParams | None:
        low, high = self.quant_min, self.quant_max
        if self.scale is None or self.zero_point is None or low is None or high is None:
            return None
        return QParams(
            self.scale, self.zero_point, low=low, high=high, dtype=_torch_type(self.dtype)
        )


@dataclass(frozen=True, slots=True)
class Boundary:
    """The inputs and outputs of a program, in the order in which a file has them."""

    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()

    def data(self) -> dict[str, Any]:
        """The same as dictionaries, lists and numbers."""
        return {
            "inputs": [{**asdict(port), "bytes": port.bytes} for port in self.inputs],
            "outputs": [{**asdict(port), "bytes": port.bytes} for port in self.outputs],
        }

    def json(self) -> str:
        """The same as text; each scale has all of its digits."""
        return json.dumps(self.data(), indent=1)

    def quantized(self, values: Sequence[Any]) -> list[Any]:
        """Inputs with floats made what the program takes."""
        return [p.quantize(v) if isinstance(v, Tensor) else v for p, v in zip(self.inputs, values)]

    def dequantized(self, values: Sequence[Any]) -> list[Any]:
        """Outputs with integers made what they stand for."""
        pairs = zip(self.outputs, values, strict=True)
        return [port.dequantize(v) if isinstance(v, Tensor) else v for port, v in pairs]


def boundary_of(program: Program) -> Boundary:
    """What a program's first and last calls say of its arguments and results."""
    own = program.outputs[: len(program.outputs) - program.changes]
    names = [label(n) for n in program.arguments], names_of(program)
    inputs, outputs = (
        tuple(_port(program, node, name) for node, name in zip(nodes, found))
        for nodes, found in zip((program.arguments, own), names)
    )
    return Boundary(inputs, outputs)


def _port(program: Program, node: Any, name: str) -> Port:
    example = example_of(node) if isinstance(node, fx.Node) else node
    if not isinstance(example, Tensor):
        return Port(name, type(example).__name__, (), ())
    shape, order = torchapi.known_shape(example) or (), order_of(node)
    meaning = qparams_at(program, node)
    kind = _type_name(meaning.dtype if meaning is not None else example.dtype)
    made = Port(name, kind, shape, order or tuple(range(len(shape))))
    if meaning is None:
        return made
    return replace(made, scale=meaning.scale, zero_point=meaning.zero_point,
                   quant_min=meaning.low, quant_max=meaning.high)  # fmt: skip


def _type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _torch_type(name: str) -> torch.dtype:
    found = getattr(torch, name)
    assert isinstance(found, torch.dtype)
    return found
