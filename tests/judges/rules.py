"""Runs a lowering rule on its samples, alone: in float and in quantized integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import tosaic.rules  # noqa: F401  (fills the registry)
from judges.reference import run_reference
from tosaic.files.flatbuffer import write
from tosaic.front.lower import Lowering
from tosaic.front.moves import joined
from tosaic.front.registry import RULES, Rule, Sample
from tosaic.interp.model import Model
from tosaic.ir import verify
from tosaic.ir.build import Constraint
from tosaic.ir.graph import Graph, Quant, Value
from tosaic.rewrite import remove_dead, sink_transposes
from tosaic.spec.dtypes import I16, I32, I48, DType
from tosaic.spec.env import Env


@dataclass(frozen=True)
class Case:
    """One sample of one overload."""

    target: str
    rule: Rule
    sample: Sample
    number: int

    def __str__(self) -> str:
        return f"{self.target.removeprefix('aten.')}-{self.number}"

    @property
    def overload(self) -> Any:
        packet, name = self.target.removeprefix("aten.").rsplit(".", 1)
        return getattr(getattr(torch.ops.aten, packet), name)

    def tensors(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(self.number)
        low, high = self.sample.domain
        made = [
            torch.rand(shape, generator=generator) * (high - low) + low
            for shape in self.sample.shapes
        ]
        if self.sample.whole:
            made = [t.round() for t in made]
        for i, tensor in enumerate(made):
            if kind := self.sample.kind(i):
                made[i] = tensor > (low + high) / 2 if kind == "bool" else tensor.to(torch.int32)
        return made

    @property
    def is_possible(self) -> bool:
        """An operator in place cannot make its first operand larger."""
        if not self.target.split(".")[1].endswith("_"):
            return True
        return torch.broadcast_shapes(*self.sample.shapes) == self.sample.shapes[0]

    def eager(self, tensors: list[Any]) -> Tensor:
        result = self.overload(*self._arguments([_copy(t) for t in tensors]), **self._keywords())
        if isinstance(result, list):
            return torch.cat([r.flatten() for r in result])
        return result[0] if isinstance(result, tuple) else result

    def lower(self, b: Lowering, values: list[Value]) -> Any:
        schema = self.overload._schema
        arguments = self._arguments(values)
        arguments = [b.tensor(v) if isinstance(v, Tensor) else v for v in arguments]
        named = {a.name: v for a, v in zip(schema.arguments, arguments)}
        rest = {
            a.name: a.default_value
            for a in schema.arguments[len(arguments) :]
            if a.has_default_value() and a.name not in self._keywords()
        }
        result = self.rule.lower(b, **{**named, **rest, **self._keywords()})
        if isinstance(result, list):
            return self._all_of(b, result)
        return result[0] if isinstance(result, tuple) else result

    def _all_of(self, b: Lowering, results: list[Value]) -> Value:
        """Several results, each of the right shape, one after the other."""
        expected = self.overload(*self._arguments(self.tensors()), **self._keywords())
        assert [v.shape for v in results] == [tuple(t.shape) for t in expected]
        return joined(b, [b.reshape(v, (v.type.size,)) for v in results], 0)

    def _arguments(self, tensors: list[Any]) -> list[Any]:
        schema, tensors, others = self.overload._schema, [*tensors], [*self.sample.arguments]
        if str(schema.arguments[0].type).startswith("List["):
            return [tensors, *others]
        made: list[Any] = []
        for argument in schema.arguments:
            takes = tensors if "Tensor" in str(argument.type) and tensors else others
            if not takes or argument.kwarg_only:
                break
            made.append(takes.pop(0))
        return [*made, *tensors, *others]

    def _keywords(self) -> dict[str, Any]:
        return dict(self.sample.keywords)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def cases() -> Iterator[Case]:
    for target, rule in RULES.items():
        for number, sample in enumerate(rule.samples):
            case = Case(target, rule, sample, number)
            if case.is_possible:
                yield case


def finish(b: Lowering, result: Value, env: Env, constraints: Sequence[Constraint] = ()) -> Graph:
    """The graph with its output, rewritten and verified; an input that passes through is copied."""
    b.output(result if result.producer is not None else b.IDENTITY(result))
    graph = remove_dead(sink_transposes(b.graph, env, constraints))
    verify(graph, env, constraints)
    return graph


def run_both(graph: Graph, inputs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """What the interpreter and the reference model give."""
    (ours,) = Model(graph).run(*inputs)
    (theirs,) = run_reference(write(graph), inputs)
    return ours, theirs


def range_quant(values: Tensor, kind: DType) -> Quant:
    """Parameters that cover the values: affine for int8, symmetric for int16."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    if kind is I16:
        return Quant(max(-low, high, 1e-6) / 32767)
    scale = max(high - low, 1e-6) / 255
    return Quant(scale, int(np.clip(round(-128 - low / scale), -128, 127)))


def quantized(values: Tensor, quant: Quant, kind: DType) -> np.ndarray:
    real = values.double().numpy() / quant.scale + quant.zero_point
    return np.clip(np.round(real), *kind.range).astype(kind.array)


def dequantized(values: np.ndarray, quant: Quant) -> Tensor:
    return torch.as_tensor((values.astype(np.float64) - quant.zero_point) * quant.scale)


def weight_constant(b: Lowering, weight: Tensor, axis: int = 0) -> tuple[Value, Tensor]:
    """int8 with a scale for each output channel, and the weights it stands for."""
    others = [i for i in range(weight.dim()) if i != axis]
    shaped = weight.abs().amax(others, keepdim=True).clamp(min=1e-6).double() / 127
    levels = (weight.double() / shaped).round().clamp(-127, 127)
    quant = Quant(tuple(shaped.flatten().tolist()), 0, axis)
    return b.tensor(levels.to(torch.int8), quant), levels * shaped


def bias_constant(
    b: Lowering, bias: Tensor, input: Quant, weight: Value, kind: DType
) -> tuple[Value, Tensor]:
    assert weight.quant is not None
    scales = torch.tensor(weight.quant.scale, dtype=torch.float64) * input.scale
    scales = scales.repeat(len(bias) // len(scales))  # groups share those of a transposed one
    levels = (bias.double() / scales).round()
    value = b.const(levels.numpy(), I48 if kind is I16 else I32)
    return value, levels * scales
