"""Every rule on its samples: support is lowering, and the result is the operator's."""

from __future__ import annotations

import numpy as np
import pytest

from judges.integers import has_form, in_integers
from judges.rules import Case, cases, finish, quantized, run_both
from tosaic.front.lower import Lowering
from tosaic.spec.dtypes import I8, I16, DType
from tosaic.spec.env import Env

CASES = list(cases())
IDS = [str(c) for c in CASES]
FLOAT = Env.parse("TOSA-1.0+FP")
INTEGERS = {I8: Env.parse("TOSA-1.0+INT"), I16: Env.parse("TOSA-1.0+INT+int16")}


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_in_float_a_rule_computes_its_operator(case: Case) -> None:
    b = Lowering(FLOAT)
    tensors = case.tensors()
    weighted = case.rule.policy == "WEIGHTED" or case.rule.constants
    values = [
        b.tensor(t) if weighted and i else b.input(case.sample.kind(i) or "f32", t.shape, f"x{i}")
        for i, t in enumerate(tensors)
    ]
    graph = finish(b, case.lower(b, values), FLOAT)
    arrays = [t.numpy() for t in (tensors[:1] if weighted else tensors)]
    ours, theirs = run_both(graph, arrays)
    expected = case.eager(tensors).numpy()
    assert ours.shape == expected.shape
    assert len(np.unique(expected)) > 1 or expected.size == 1
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(theirs, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [I8, I16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_in_integers_a_rule_is_within_its_steps(case: Case, kind: DType) -> None:
    if not has_form(case, kind):
        pytest.skip(f"no {kind} form: {case.rule.integers_why}")
    made = in_integers(case, kind, INTEGERS[kind])
    ours, theirs = run_both(made.graph, made.arrays)
    assert np.array_equal(ours, theirs)
    if made.wanted is None:
        assert np.array_equal(ours, made.expected.numpy())
        assert len(np.unique(ours)) > 1 or ours.size == 1
        return
    ideal = quantized(made.expected, made.wanted, kind)
    assert len(np.unique(ideal)) > 2 or ideal.size == 1
    off = np.abs(ours.astype(np.int64) - ideal.astype(np.int64)).max()
    allowed = max(case.sample.steps, case.sample.steps16 if kind is I16 else 0)
    assert off <= allowed, f"{off} steps off"
