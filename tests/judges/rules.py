"""Graphs of samples, finished as a compiler finishes them, and run by both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import tosaic.rules  # noqa: F401  (fills the registry)
from judges.reference import run_reference
from tosaic.files.flatbuffer import write
from tosaic.front.registry import rule_of
from tosaic.interp.model import Model
from tosaic.ir import verify
from tosaic.ir.build import Constraint
from tosaic.ir.graph import Graph, Value
from tosaic.lowering.builder import Lowering
from tosaic.lowering.samples import (
    Case,
    bias_constant,
    cases,
    dequantized,
    quantized,
    range_quant,
    weight_constant,
)
from tosaic.rewrite import Cost, improve
from tosaic.spec.env import Env

__all__ = [
    "Case", "bias_constant", "called", "cases", "dequantized", "finish", "quantized",
    "range_quant", "run_both", "weight_constant",
]  # fmt: skip


def called(b: Lowering, target: str, *arguments: Any, **named: Any) -> Any:
    """What the rule of an operator makes of arguments, by name, as those of a program come."""
    packet, overload = target.removeprefix("aten.").split(".")
    schema = getattr(getattr(torch.ops.aten, packet), overload)._schema
    names = [argument.name for argument in schema.arguments]
    return rule_of(target).lower(b, **dict(zip(names, arguments)), **named)


def finish(
    b: Lowering, result: Value, env: Env, constraints: Sequence[Constraint] = (),
    cost: Cost | None = None,
) -> Graph:  # fmt: skip
    """The graph with its output, rewritten and verified; an input that passes through is copied."""
    b.output(result if result.producer is not None else b.IDENTITY(result))
    refuses = constraints[0] if constraints else None
    graph = improve(b.graph, env, refuses, cost, traits=b.traits)
    verify(graph, env, constraints)
    return graph


def run_both(graph: Graph, inputs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """What the interpreter and the reference model give."""
    (ours,) = Model(graph).run(*inputs)
    (theirs,) = run_reference(write(graph), inputs)
    return ours, theirs
