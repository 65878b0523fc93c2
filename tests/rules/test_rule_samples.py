"""Every rule on its samples: support is lowering, and the result is the operator's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from judges.rules import (
    Case,
    bias_constant,
    cases,
    dequantized,
    finish,
    quantized,
    range_quant,
    run_both,
    weight_constant,
)
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
    forms = case.rule.integers if case.sample.integers is None else case.sample.integers
    if kind not in forms:
        pytest.skip(f"no {kind} form: {case.rule.integers_why}")
    b = Lowering(INTEGERS[kind])
    tensors = case.tensors()
    weighted = case.rule.policy == "WEIGHTED"
    values, real, arrays = [], [], []
    for i, tensor in enumerate(tensors):
        if kind_given := case.sample.kind(i):
            value, meant = b.input(kind_given, tensor.shape, f"x{i}"), tensor
            arrays.append(tensor.numpy())
        elif case.rule.constants and i:
            value, meant = b.tensor(tensor), tensor.double()
        elif weighted and i:
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
    expected = case.eager(real)
    if not expected.dtype.is_floating_point:
        graph = finish(b, case.lower(b, values), INTEGERS[kind])
        ours, theirs = run_both(graph, arrays)
        assert np.array_equal(ours, theirs)
        assert np.array_equal(ours, expected.numpy())
        assert len(np.unique(ours)) > 1 or ours.size == 1
        return
    given = next(v.quant for v in values if v.quant is not None)
    wanted = given if case.rule.policy == "SHARED" else range_quant(expected, kind)
    b.wanted = (wanted, kind)
    graph = finish(b, b.settle(case.lower(b, values), wanted, kind), INTEGERS[kind])
    ours, theirs = run_both(graph, arrays)
    assert np.array_equal(ours, theirs)
    ideal = quantized(expected, wanted, kind)
    assert len(np.unique(ideal)) > 2 or ideal.size == 1
    off = np.abs(ours.astype(np.int64) - ideal.astype(np.int64)).max()
    allowed = max(case.sample.steps, case.sample.steps16 if kind is I16 else 0)
    assert off <= allowed, f"{off} steps off"
