"""A sample of a rule in quantized integers: its graph for a target, its inputs, what it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from judges.rules import (
    Case,
    bias_constant,
    dequantized,
    finish,
    quantized,
    range_quant,
    weight_constant,
)
from tosaic.front.lower import Lowering
from tosaic.front.masks import mask_input
from tosaic.ir.build import Constraint
from tosaic.ir.graph import Graph, Quant, Value
from tosaic.spec.dtypes import DType
from tosaic.spec.env import Env


@dataclass(frozen=True)
class Integers:
    """A graph with inputs for it, the real result, and the parameters that it is wanted in."""

    graph: Graph
    arrays: list[np.ndarray]
    expected: Tensor
    wanted: Quant | None


def has_form(case: Case, kind: DType) -> bool:
    forms = case.rule.integers if case.sample.integers is None else case.sample.integers
    return kind in forms


def in_integers(
    case: Case, kind: DType, env: Env, constraints: Sequence[Constraint] = ()
) -> Integers:
    """The sample lowered in int8 or int16; Unsupported where the target refuses it."""
    b = Lowering(env, constraints=constraints)
    values, real, arrays = _operands(b, case, kind)
    expected = case.eager(real)
    if not expected.dtype.is_floating_point:
        graph = finish(b, case.lower(b, values), env, constraints)
        return Integers(graph, arrays, expected, None)
    given = next(v.quant for v in values if v.quant is not None)
    wanted = given if case.rule.policy == "SHARED" else range_quant(expected, kind)
    b.wanted = (wanted, kind)
    graph = finish(b, b.settle(case.lower(b, values), wanted, kind), env, constraints)
    return Integers(graph, arrays, expected, wanted)


def _operands(
    b: Lowering, case: Case, kind: DType
) -> tuple[list[Value], list[Tensor], list[np.ndarray]]:
    tensors = case.tensors()
    values: list[Value] = []
    real, arrays = [], []
    for i, tensor in enumerate(tensors):
        if kind_given := case.sample.kind(i):
            make = mask_input if kind_given == "bool" else partial(Lowering.input, kind=kind_given)
            value, meant = make(b, shape=tensor.shape, name=f"x{i}"), tensor
            arrays.append(tensor.numpy().astype(value.dtype.array))
        elif case.rule.constants and i:
            value, meant = b.tensor(tensor), tensor.double()
        elif case.rule.policy == "WEIGHTED" and i:
            value, meant = (
                weight_constant(b, tensor, case.rule.weight_axis)
                if i == 1
                else bias_constant(b, tensor, values[0].quant, values[1], kind)
            )
        else:
            shared = case.rule.policy == "SHARED"
            all_real = [t.flatten() for j, t in enumerate(tensors) if not case.sample.kind(j)]
            quant = range_quant(torch.cat(all_real) if shared else tensor, kind)
            value = b.marked(b.input(kind, tensor.shape, f"x{i}"), quant)
            arrays.append(quantized(tensor, quant, kind))
            meant = dequantized(arrays[-1], quant)
        values.append(value)
        real.append(meant)
    return values, real, arrays
