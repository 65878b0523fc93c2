"""A sample against its judges: PyTorch, the reference model, the interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from judges.rules import finish, run_both
from tosaic.errors import Unsupported
from tosaic.ir.build import Constraint
from tosaic.ir.graph import Graph
from tosaic.lowering.builder import Lowering
from tosaic.lowering.samples import USUAL, Case, Weights, emitted, lowered, operands, quantized
from tosaic.lowering.target import Target
from tosaic.spec.dtypes import I16, DType
from tosaic.spec.env import Env


def graph_of(case: Case, env: Env, kind: DType | None) -> Graph:
    b = Lowering(env)
    return finish(b, lowered(b, case, operands(b, case, kind), kind), env)


def refusal(
    case: Case, env: Env, kind: DType | None, constraints: Sequence[Constraint] = ()
) -> str | None:
    """Why a sample has no form for a target, in float or quantized to a type; None if it has."""
    try:
        emitted(case, Target(str(env), env, tuple(constraints)), kind)
    except Unsupported as problem:
        return problem.reason
    return None


def check_float(case: Case, env: Env) -> Graph:
    b = Lowering(env)
    made = operands(b, case, None)
    graph = finish(b, lowered(b, case, made, None), env)
    ours, theirs = run_both(graph, made.arrays)
    expected = case.eager(case.tensors()).numpy()
    assert ours.shape == expected.shape
    assert len(np.unique(expected)) > 1 or expected.size == 1
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(theirs, expected, rtol=1e-4, atol=1e-5)
    return graph


def check_integers(
    case: Case, env: Env, kind: DType, weights: Weights = USUAL, out: DType | None = None
) -> Graph:
    """Bit for bit as the reference model has it, and as near to PyTorch as the sample says."""
    b, out = Lowering(env), out or kind
    made = operands(b, case, kind, weights)
    result = lowered(b, case, made, kind, out)
    graph = finish(b, result, env)
    ours, theirs = run_both(graph, made.arrays)
    assert np.array_equal(ours, theirs)
    expected = case.eager(made.real)
    if not expected.dtype.is_floating_point:
        assert np.array_equal(ours, expected.numpy())
        assert len(np.unique(ours)) > 1 or ours.size == 1
        return graph
    assert result.quant is not None
    ideal = quantized(expected, result.quant, out)
    few = 2 if any(v.quant is not None for v in made.values) else 1  # a mask has two
    assert len(np.unique(ideal)) > few or ideal.size == 1
    off = np.abs(ours.astype(np.int64) - ideal.astype(np.int64)).max()
    allowed = max(case.sample.steps, case.sample.steps16 if I16 in (kind, out) else 0)
    assert off <= allowed, f"{off} steps off"
    return graph
