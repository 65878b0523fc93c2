"""Steps of the hunt that are samples of the rules: every ATen call with a rule, whatever its form.

The operands of a sample are values of the graph, brought to the shape that the sample has, with
parameters that cover its domain; constants and indices are the sample's own.
"""

from __future__ import annotations

import math
from functools import cache

import torch

import tosaic.rules  # noqa: F401  (registers them)
from judges.rendezvous import name_by_number
from npu.calls import real
from npu.maker import Maker
from npu.operators import need
from tosaic.errors import Unsupported
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.mask import mask_input
from tosaic.lowering.samples import (
    Case,
    Operands,
    Weights,
    bias_constant,
    cases,
    lowered,
    range_quant,
    weight_constant,
)
from tosaic.spec.dtypes import I4, I8, I16, DType

_MOST = 3000  # elements of an operand


@cache
def _cases() -> dict[str, Case]:
    small = (c for c in cases() if all(math.prod(s) <= _MOST for s in c.sample.shapes))
    return {str(c): c for c in small if c.integers}


def sampled(m: Maker, x: Value) -> Value:
    """A sample of a rule with the value as an operand."""
    need(x.dtype in (I8, I16))
    known = _cases()
    case = known[name_by_number(tuple(known), int(m.rng.integers(1 << 63)))]
    need(x.dtype in case.integers)
    return lowered(m.b, case, _operands(m, case, x), x.dtype)


def _operands(m: Maker, case: Case, x: Value) -> Operands:
    made, rule = Operands(), case.rule
    weighted, quant = rule.policy == "WEIGHTED", range_quant(_domain(case), x.dtype)
    for i, tensor in enumerate(case.tensors()):
        if case.sample.kind(i):
            made.add(_given(m, tensor, case.sample.kind(i)), tensor)
        elif i and rule.constants:
            made.add(m.b.tensor(tensor), tensor.double())
        elif i == 1 and weighted:
            kind = I4 if x.dtype is I8 and m.chance(0.25) else I8
            weights = Weights(kind, m.chance(0.8))
            made.add(*weight_constant(m.b, tensor, rule.weight_axis, weights))
        elif i and weighted:
            made.add(*bias_constant(m.b, tensor, quant, made.values[1], x.dtype))
        else:
            value = fitted(m, x if not i else _other(m, x), tuple(tensor.shape), quant)
            made.add(value, real(m, value))
    return made


def _domain(case: Case) -> torch.Tensor:
    return torch.tensor(case.sample.domain)


def _given(m: Maker, tensor: torch.Tensor, kind: str) -> Value:
    """An input that is no quantized value: a mask, indices, whole numbers."""
    name = f"input_{len(m.data) + 1}"
    shape = tuple(tensor.shape)
    value = mask_input(m.b, shape, name) if kind == "bool" else m.b.input("i32", shape, name)
    m.data.append(tensor.numpy().astype(value.dtype.array))
    return value


def _other(m: Maker, x: Value) -> Value:
    """Another operand: the same value, an earlier one, an input or a constant."""
    known = [v for op in m.b.graph.ops for v in op.outs if v.dtype is x.dtype]
    if m.chance(0.2):
        return x
    return m.pick(*known) if known and m.chance(0.6) else m.either(x.dtype, (m.size(1, 40),))


def fitted(m: Maker, x: Value, shape: tuple[int, ...], quant: Quant | None = None) -> Value:
    """The elements of a value in another shape, repeated or cut where there are too few or many."""
    size = math.prod(shape)
    need(size > 0)
    if x.type.size != size:
        x = m.b.RESHAPE(x, m.b.shape((x.type.size,)))
        if x.type.size < size:
            x = m.b.TILE(x, m.b.shape((-(-size // x.type.size),)))
        if x.type.size > size:
            start = m.size(0, x.type.size - size)
            x = m.b.SLICE(x, m.b.shape((start,)), m.b.shape((size,)))
    made = m.b.RESHAPE(x, m.b.shape(shape))
    made.quant = quant
    return made


def cast(m: Maker, x: Value, kind: DType) -> Value:
    """A value of another type, scaled so that it fills the type."""
    if x.dtype is kind:
        return x
    if x.dtype.name == "bool":
        raise Unsupported("a mask")
    return m.settle(x, kind, per_channel=False, rounding="SINGLE_ROUND")
