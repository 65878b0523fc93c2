"""Every scheme on every sample with weights: exact, and near to the operator.

What a scheme changes besides its activations is the weights alone, so the samples without weights
are those of tests/rules/test_rule_samples.py.
"""

from __future__ import annotations

import pytest

from judges.samples import check_integers
from tosaic.lowering.samples import Case, Weights, cases
from tosaic.spec.dtypes import I4, I8, I16, DType
from tosaic.spec.env import Env

CASES = [case for case in cases() if case.rule.policy == "WEIGHTED"]
NARROW, WHOLE = Weights(I4), Weights(I8, per_channel=False)
SCHEMES: dict[str, tuple[DType, Weights, DType, str]] = {
    "a8w4": (I8, NARROW, I8, "TOSA-1.0+INT+int4"),
    "a8w4_per_tensor": (I8, Weights(I4, False), I8, "TOSA-1.0+INT+int4"),
    "a8w4_without_int4": (I8, NARROW, I8, "TOSA-1.0+INT"),
    "int8_per_tensor": (I8, WHOLE, I8, "TOSA-1.0+INT"),
    "a16w8_per_tensor": (I16, WHOLE, I16, "TOSA-1.0+INT+int16"),
    "int8_to_int16": (I8, Weights(), I16, "TOSA-1.0+INT+int16"),
    "int16_to_int8": (I16, Weights(), I8, "TOSA-1.0+INT+int16"),
}


def kinds(graph: object) -> set[str]:
    """The types of weights in a graph."""
    return {
        str(op.operand("weight").dtype)
        for op in graph.walk()  # type: ignore[attr-defined]
        if "CONV" in op.name
    }


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("case", CASES, ids=[str(c) for c in CASES])
def test_a_scheme_is_exact_on_every_sample_with_weights(case: Case, scheme: str) -> None:
    kind, weights, out, env = SCHEMES[scheme]
    if {kind, out} - set(case.integers):
        pytest.skip(f"no such form: {case.rule.integers_why}")
    graph = check_integers(case, Env.parse(env), kind, weights, out)
    assert kinds(graph) == {"i4" if "int4" in env else "i8"}


def test_there_are_samples_of_every_form_of_weights() -> None:
    names = {case.target.split(".")[1] for case in CASES}
    assert names >= {"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d"}
