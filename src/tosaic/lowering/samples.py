"""The samples of rules as uses of their operators: what tests run, and what support tables say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tosaic.errors import Unsupported
from tosaic.front.registry import RULES, Rule, Sample
from tosaic.ir.graph import Array, Op, Quant, Value
from tosaic.lowering.alternatives.data_movement import joined
from tosaic.lowering.alternatives.mask import is_mask, mask_input
from tosaic.lowering.builder import Lowering
from tosaic.lowering.target import Target
from tosaic.spec.dtypes import I8, I16, I32, I48, DType


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
        """Arguments that are tensors, the same ones each time."""
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
                made[i] = _of_kind(tensor, kind, self.sample.domain, generator)
        return made

    @property
    def is_possible(self) -> bool:
        """An operator in place cannot make its first operand larger."""
        if not self.target.split(".")[1].endswith("_"):
            return True
        try:
            return np.broadcast_shapes(*self.sample.shapes) == self.sample.shapes[0]
        except ValueError:  # it does not broadcast: indices and what they pick
            return True

    @property
    def integers(self) -> tuple[DType, ...]:
        """The quantized types that it has a form for."""
        return self.rule.integers if self.sample.integers is None else self.sample.integers

    def call(self, tensors: list[Any]) -> Any:
        """The operator itself, with the sample's other arguments."""
        return self.overload(*self._arguments(tensors), **self._keywords())

    def eager(self, tensors: list[Any]) -> Tensor:
        """What PyTorch computes; several results one after the other."""
        result = self.call([_copy(t) for t in tensors])
        if isinstance(result, list):
            return torch.cat([r.flatten() for r in result])
        first: Tensor = result[0] if isinstance(result, tuple) else result
        return first

    def lower(self, b: Lowering, values: list[Value]) -> Any:
        """What the rule makes of it; several results one after the other."""
        schema = self.overload._schema
        arguments = self._arguments(values)
        arguments = [_value(b, v) for v in arguments]
        named = {a.name: v for a, v in zip(schema.arguments, arguments)}
        rest = {
            a.name: a.default_value
            for a in schema.arguments[len(arguments) :]
            if a.has_default_value() and a.name not in self._keywords()
        }
        result = self.rule.lower(b, **{**named, **rest, **self._keywords()})
        if isinstance(result, list):
            return joined(b, [b.reshape(v, (v.type.size,)) for v in result], 0)
        return result[0] if isinstance(result, tuple) else result

    def _arguments(self, tensors: list[Any]) -> list[Any]:
        schema, tensors, others = self.overload._schema, [*tensors], [*self.sample.arguments]
        if str(schema.arguments[0].type).startswith("List["):
            return [tensors, *others]
        made: list[Any] = []
        for argument in schema.arguments:
            kind = str(argument.type)
            if kind.startswith("List[") and others and ... in _items(others[0]):
                made.append([tensors.pop(0) if v is ... else v for v in others.pop(0)])
                continue
            takes = tensors if "Tensor" in kind and tensors else others
            if made and others and others[0] is ...:
                others.pop(0)
            elif made and others and (kind.startswith("List[") or isinstance(others[0], Tensor)):
                takes = others  # a constant stands at its place among the others
            if not takes or argument.kwarg_only:
                break
            made.append(takes.pop(0))
        return [*made, *tensors, *others]

    def _keywords(self) -> dict[str, Any]:
        return dict(self.sample.keywords)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _value(b: Lowering, argument: Any) -> Any:
    """An argument with tensors as constants."""
    if isinstance(argument, list):
        return [_value(b, item) for item in argument]
    return b.tensor(argument) if isinstance(argument, Tensor) else argument


def _of_kind(
    tensor: Tensor, kind: str, domain: tuple[float, float], generator: torch.Generator
) -> Tensor:
    """Random numbers of a type that is not real, from random real ones."""
    low, high = domain
    name, _, size = kind.partition(":")
    if name == "bool":
        return tensor > (low + high) / 2
    if name == "i32":
        return tensor.to(torch.int32)
    if name == "index":  # PyTorch takes int64 everywhere
        return torch.randint(0, int(size), tensor.shape, generator=generator)
    if name == "signed":
        return torch.randint(-int(size), int(size), tensor.shape, generator=generator)
    rows = [torch.randperm(int(size), generator=generator) for _ in range(tensor[..., 0].numel())]
    return torch.stack([r[: tensor.shape[-1]] for r in rows]).reshape(tensor.shape)


def cases() -> Iterator[Case]:
    """Every sample of every overload that has a rule."""
    for target, rule in RULES.items():
        for number, sample in enumerate(rule.samples):
            case = Case(target, rule, sample, number)
            if case.is_possible:
                yield case


@dataclass(slots=True)
class Operands:
    """Tensor arguments of a sample: values of a graph, what they mean, and the graph's inputs."""

    values: list[Value] = field(default_factory=list)
    real: list[Tensor] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)

    def add(self, value: Value, real: Tensor, array: Array | None = None) -> None:
        self.values.append(value)
        self.real.append(real)
        if array is not None:
            self.arrays.append(array)


@dataclass(frozen=True, slots=True)
class Weights:
    """The integers of weights: their type, and whether each channel has a scale."""

    kind: DType = I8
    per_channel: bool = True


USUAL = Weights()


def operands(b: Lowering, case: Case, kind: DType | None, weights: Weights = USUAL) -> Operands:
    """Float operands, or quantized ones of a type with parameters that cover them."""
    made, tensors = Operands(), case.tensors()
    weighted, constants = case.rule.policy == "WEIGHTED", case.rule.constants
    all_real = [t.flatten() for j, t in enumerate(tensors) if not case.sample.kind(j)]
    for i, tensor in enumerate(tensors):
        given = case.sample.kind(i)
        if given or (kind is None and not (i and (weighted or constants))):
            made.add(*_plain(b, tensor, given, f"x{i}"))
        elif kind is None or (constants and i):
            made.add(b.tensor(tensor), tensor if kind is None else tensor.double())
        elif weighted and i == 1:
            made.add(*weight_constant(b, tensor, case.rule.weight_axis, weights))
        elif weighted and i:
            quant = made.values[0].quant
            assert quant is not None
            made.add(*bias_constant(b, tensor, quant, made.values[1], kind))
        else:
            covered = torch.cat(all_real) if case.rule.policy == "SHARED" else tensor
            quant = range_quant(covered, kind)
            array = quantized(tensor, quant, kind)
            value = b.with_quant(b.input(kind, tensor.shape, f"x{i}"), quant)
            made.add(value, dequantized(array, quant), array)
    return made


def _plain(b: Lowering, tensor: Tensor, given: str, name: str) -> tuple[Value, Tensor, Array]:
    """An input that is not quantized, as the target has it."""
    shape = tuple(tensor.shape)
    form = given.partition(":")[0] or "f32"
    form = form if form in ("f32", "bool") else "i32"  # indices of any kind
    value = mask_input(b, shape, name) if form == "bool" else b.input(form, shape, name)
    return value, tensor, tensor.numpy().astype(value.dtype.array)


def lowered(
    b: Lowering, case: Case, made: Operands, kind: DType | None, out: DType | None = None
) -> Value:
    """The result of the rule in the parameters that a quantizer would give it, in a type."""
    if kind is None or not (expected := case.eager(made.real)).dtype.is_floating_point:
        plain: Value = case.lower(b, made.values)
        return plain
    given = next((v.quant for v in made.values if v.quant is not None and not is_mask(v)), None)
    wanted = given if case.rule.policy == "SHARED" else None
    out = out or kind
    wanted = wanted or range_quant(expected, out)
    b.wanted = (wanted, out)
    return b.requantize(case.lower(b, made.values), wanted, out)


def emitted(case: Case, target: Target, kind: DType | None) -> list[Op]:
    """The operators of a sample in float or quantized to a type; Unsupported if it has no form."""
    if kind is not None and kind not in case.integers:
        raise Unsupported(case.rule.integers_why or f"it has no {kind} form")
    b = Lowering.of(target)
    result = lowered(b, case, operands(b, case, kind), kind)
    if result.producer is None:
        b.IDENTITY(result)  # what passes through is copied, so the target must have its type
    return b.graph.ops


def range_quant(values: Tensor, kind: DType) -> Quant:
    """Parameters that cover the values: affine for int8, symmetric for int16."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    if kind is I16:
        return Quant(max(-low, high, 1e-6) / 32767)
    scale = max(high - low, 1e-6) / 255
    return Quant(scale, int(np.clip(round(-128 - low / scale), -128, 127)))


def quantized(values: Tensor, quant: Quant, kind: DType) -> Array:
    """The nearest integers; what is outside of the range is at its end."""
    real = values.double().numpy() / quant.scale + quant.zero_point
    made: Array = np.clip(np.round(real), *kind.range).astype(kind.array)
    return made


def dequantized(values: Array, quant: Quant) -> Tensor:
    """The real numbers that integers stand for."""
    return torch.as_tensor((values.astype(np.float64) - quant.zero_point) * quant.scale)


def weight_constant(
    b: Lowering, weight: Tensor, axis: int = 0, weights: Weights = USUAL
) -> tuple[Value, Tensor]:
    """Integers with a scale for each output channel or one, and the weights they stand for."""
    others = [i for i in range(weight.dim()) if i != axis or not weights.per_channel]
    most = weights.kind.range[1]
    shaped = weight.abs().amax(others, keepdim=True).clamp(min=1e-6).double() / most
    levels = (weight.double() / shaped).round().clamp(-most, most)
    quant = Quant(tuple(shaped.flatten().tolist()), 0, axis)
    if not weights.per_channel:
        quant = Quant(float(shaped))
    made = b.const(levels.numpy(), weights.kind, quant=quant, shape=tuple(weight.shape))
    return made, levels * shaped


def bias_constant(
    b: Lowering, bias: Tensor, input: Quant, weight: Value, kind: DType
) -> tuple[Value, Tensor]:
    """A bias in the scale of the products, and the numbers it stands for."""
    assert weight.quant is not None
    scales = torch.as_tensor(np.multiply(weight.quant.scale, input.scale)).reshape(-1)
    scales = scales.repeat(len(bias) // len(scales))  # groups share those of a transposed one
    levels = (bias.double() / scales).round()
    return b.const(levels.numpy(), I48 if kind is I16 else I32), levels * scales
