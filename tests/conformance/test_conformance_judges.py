"""The judges themselves: they say no to wrong answers, and they look at every operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from judges import recipes
from judges.cases import Case
from judges.generate import cases
from judges.recipes import Recipe
from judges.reference import ReferenceRefused, intermediates, run_reference
from judges.suite import judge
from judges.systems import REFERENCE
from judges.verdict import System, acceptance, complaint

INT, FP = recipes.INTEGER[0], recipes.FLOAT[0]
FP_DOT = recipes.FLOAT[1]
ERRORIF = recipes.ERRORIF[0]
# Operators of TOSA 1.1 that Arm's generator makes no test of, or only in extensions we leave out.
WITHOUT_TESTS = {
    *("CUSTOM", "VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE"),
    *("CAST_FROM_BLOCK_SCALED", "CAST_TO_BLOCK_SCALED", "CONV2D_BLOCK_SCALED"),
    *("MATMUL_T_BLOCK_SCALED", "RESHAPE_BLOCK_SCALED", "ROW_GATHER_BLOCK_SCALED"),
}
SAMPLE = [
    *((INT, o) for o in ("add", "conv2d_3x3", "rescale", "pad", "table", "gather", "resize")),
    *((FP, o) for o in ("add", "exp", "pow", "tanh", "conv2d_3x1", "reduce_product", "cast")),
    *((FP_DOT, o) for o in ("matmul", "reduce_sum")),
]
Perturb = Callable[[np.ndarray], np.ndarray]


def _altered(perturb: Perturb) -> System:
    """The reference model with its first output spoilt."""

    def run(graph: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        first, *others = run_reference(graph, inputs)
        return [perturb(first), *others]

    return replace(REFERENCE, run=run)


def _spoil_one_element(output: np.ndarray) -> np.ndarray:
    """One element wrong: an integer by 1, a boolean turned, a float by more than any rule allows.

    Arm's bounds are wide where inputs are large: 0.7 for TANH of a bfloat16, half of a dot product.
    """
    spoilt = output.copy()
    place = np.unravel_index(output.size // 2, output.shape)
    value = output[place]
    if output.dtype == np.bool_:
        spoilt[place] = not value
    elif output.dtype.kind == "i":
        spoilt[place] = value - 1 if value > 0 else value + 1
    else:
        usual = float(value) if np.isfinite(float(value)) else 0.0
        with np.errstate(over="ignore"):
            spoilt[place] = -4 * usual - 4
    return spoilt


def _some(recipe: Recipe, operator: str) -> list[Case]:
    found = [c for c in cases(recipe, operator, "small") if c.expected(0).size]
    return found[:: max(1, len(found) // 12)]


@pytest.mark.parametrize(("recipe", "operator"), SAMPLE, ids=[f"{r.name}-{o}" for r, o in SAMPLE])
def test_judge_accepts_the_reference_and_refuses_one_wrong_element(
    recipe: Recipe, operator: str
) -> None:
    spoilt = _altered(_spoil_one_element)
    for case in _some(recipe, operator):
        assert complaint(case, REFERENCE) is None, case
        if "_rmI_" not in str(case):  # INEXACT_ROUND allows a difference of 1
            assert complaint(case, spoilt), case


@pytest.mark.parametrize(
    "perturb",
    [
        lambda a: a.astype(np.int64 if a.dtype.kind == "i" else np.float64),
        lambda a: a[..., None],
        np.zeros_like,
    ],
    ids=["type", "shape", "zeros"],
)
@pytest.mark.parametrize("recipe", [INT, FP], ids=["int", "fp"])
def test_judge_refuses_another_type_shape_or_zeros(recipe: Recipe, perturb: Perturb) -> None:
    case = max(cases(recipe, "sub", "small"), key=lambda c: c.expected(0).size)
    assert complaint(case, _altered(perturb))


def test_judge_refuses_a_system_that_gives_too_few_outputs_or_breaks() -> None:
    case = cases(INT, "add", "small")[0]
    assert complaint(case, replace(REFERENCE, run=lambda graph, inputs: []))
    assert "ZeroDivisionError" in str(complaint(case, replace(REFERENCE, run=lambda g, i: 1 // 0)))


def test_negative_test_needs_a_refusal_in_a_sentence() -> None:
    case = cases(ERRORIF, "add", "small")[0]

    def refuse(words: str) -> System:
        def verify(graph: bytes) -> None:
            raise ReferenceRefused("no", words)

        return replace(REFERENCE, verify=verify)

    assert acceptance(case, refuse("the shapes differ")) is None
    assert acceptance(case, refuse(""))
    assert acceptance(case, replace(REFERENCE, verify=lambda graph: None)) == "accepted"


def test_every_negative_test_is_an_error_to_the_reference_model_too() -> None:
    for operator in ("add", "conv2d_1x1", "resize", "cond_if_const"):
        for case in cases(ERRORIF, operator, "small"):
            assert case.status == "TOSA_ERROR", case


def test_every_operator_has_tests_or_is_named_as_without() -> None:
    from tosaic.spec import OPS

    tested = {
        cases(recipe, operator, "small")[0].operator
        for recipe in (*recipes.INTEGER, *recipes.FLOAT, *recipes.BEYOND_1_0)
        for operator in recipe.operators
    }
    assert tested | WITHOUT_TESTS == set(OPS)
    assert not tested & WITHOUT_TESTS


@pytest.mark.parametrize("operator", ["mul", "conv2d_1x1", "rescale", "exp"])
def test_expected_outputs_vary(operator: str) -> None:
    tally = judge(FP if operator == "exp" else INT, operator, "small", REFERENCE)
    assert not tally.failures
    assert tally.varied > 4 * tally.constant


def test_reference_gives_int48_and_bfloat16_in_our_types() -> None:
    wide = next(c for c in cases(INT, "conv2d_1x1", "small") if "i16xi8" in str(c))
    assert run_reference(wide.graph, wide.inputs)[0].dtype == np.int64
    brain = next(c for c in cases(FP, "add", "small") if "_bf16" in str(c))
    assert run_reference(brain.graph, brain.inputs)[0].dtype.name == "bfloat16"


def test_intermediates_hold_constants_and_outputs_by_name() -> None:
    case = cases(INT, "conv2d_1x1", "small")[0]
    tensors = intermediates(case.graph, case.inputs)
    assert "const-0" in tensors
    assert np.array_equal(tensors["result-0"], case.expected(0))
