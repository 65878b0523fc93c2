"""Every rule on its samples: support is lowering, and the result is the operator's."""

from __future__ import annotations

import pytest

from judges.samples import check_float, check_integers, graph_of, refusal
from tosaic.errors import Unsupported
from tosaic.files.text import print_graph
from tosaic.ir.graph import Graph
from tosaic.lowering.samples import Case, cases
from tosaic.spec.dtypes import I8, I16, DType
from tosaic.spec.env import Env

CASES = list(cases())
IDS = [str(c) for c in CASES]
FLOAT = Env.parse("TOSA-1.0+FP")
INTEGERS = {I8: Env.parse("TOSA-1.0+INT"), I16: Env.parse("TOSA-1.0+INT+int16")}
NEWER = {kind: Env.parse(str(env).replace("1.0", "1.1")) for kind, env in INTEGERS.items()}


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_in_float_a_rule_computes_its_operator(case: Case) -> None:
    check_float(case, FLOAT)


@pytest.mark.parametrize("kind", [I8, I16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_in_integers_a_rule_is_within_its_steps(case: Case, kind: DType) -> None:
    if kind not in case.integers:
        if kind in case.rule.integers:
            pytest.skip(f"near a jump of the function a step of {kind} decides")
        pytest.skip(f"no {kind} form: {case.rule.integers_why}")
    check_integers(case, INTEGERS[kind], kind)


def body(graph: Graph) -> str:
    return print_graph(graph).partition("func.func")[2]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_where_tosa_1_1_differs_the_result_is_still_the_operators(case: Case) -> None:
    """The same graph gives the same result; another one is judged again."""
    newer = Env.parse("TOSA-1.1+FP")
    if body(graph_of(case, newer, None)) != body(graph_of(case, FLOAT, None)):
        check_float(case, newer)
    for kind in case.integers:
        older = body(graph_of(case, INTEGERS[kind], kind))
        if body(graph_of(case, NEWER[kind], kind)) != older:
            check_integers(case, NEWER[kind], kind)


@pytest.mark.parametrize(
    "env", ["TOSA-1.0+FP", "TOSA-1.0+INT", "TOSA-1.0+INT+int16", "TOSA-1.1+INT+FP"]
)
def test_what_is_said_to_be_supported_lowers_and_the_rest_does_not(env: str) -> None:
    """Each answer against a lowering of its own, that is finished and verified."""
    answers = {True: 0, False: 0}
    for case in CASES:
        for kind in (None, *case.integers):
            supported = refusal(case, Env.parse(env), kind) is None
            answers[supported] += 1
            try:
                graph_of(case, Env.parse(env), kind)
                lowers = True
            except Unsupported:
                lowers = False
            assert supported is lowers, f"{case} {kind}"
    assert answers[True] > 300
    assert answers[False] > 300 or env == "TOSA-1.1+INT+FP"
