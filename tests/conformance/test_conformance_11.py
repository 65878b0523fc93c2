"""Generated tests: what TOSA 1.1 adds runs as the reference model runs it."""

from __future__ import annotations

import pytest

from judges.recipes import BEYOND_1_0, NARROW, Recipe
from judges.suite import judge, work
from judges.systems import tosaic_system

WORK = work((*BEYOND_1_0, *NARROW))


@pytest.mark.parametrize(("recipe", "operator"), WORK, ids=[f"{r.name}-{o}" for r, o in WORK])
def test_operator_of_1_1_matches_the_reference_model(recipe: Recipe, operator: str) -> None:
    tally = judge(recipe, operator, "small", tosaic_system())
    assert tally.total, f"the generator made no test of {operator}"
    assert not tally.failures, str(tally)
