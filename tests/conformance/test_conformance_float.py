"""Generated tests: a floating-point operator obeys the conformance rules of its kind."""

from __future__ import annotations

import pytest

from judges.recipes import FLOAT, Recipe
from judges.suite import judge, work
from judges.systems import tosaic_system

WORK = work(FLOAT)


@pytest.mark.parametrize(("recipe", "operator"), WORK, ids=[f"{r.name}-{o}" for r, o in WORK])
def test_float_operator_obeys_the_conformance_rules(recipe: Recipe, operator: str) -> None:
    tally = judge(recipe, operator, "small", tosaic_system())
    assert tally.total, f"the generator made no test of {operator}"
    assert not tally.failures, str(tally)
