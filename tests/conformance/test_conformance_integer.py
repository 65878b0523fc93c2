"""Generated tests: an integer operator matches the reference model bit by bit."""

from __future__ import annotations

import pytest

from judges.recipes import INTEGER, Recipe
from judges.suite import judge, work
from judges.systems import tosaic_system

WORK = work(INTEGER)


@pytest.mark.parametrize(("recipe", "operator"), WORK, ids=[f"{r.name}-{o}" for r, o in WORK])
def test_integer_operator_matches_the_reference_model(recipe: Recipe, operator: str) -> None:
    tally = judge(recipe, operator, "small", tosaic_system())
    assert tally.total, f"the generator made no test of {operator}"
    assert not tally.failures, str(tally)
