"""Generated graphs that break one rule each: the reader or the verifier refuses every one."""

from __future__ import annotations

import pytest

from judges.recipes import ERRORIF, Recipe
from judges.suite import judge, work
from judges.systems import tosaic_system

WORK = work(ERRORIF)


@pytest.mark.parametrize(("recipe", "operator"), WORK, ids=[f"{r.name}-{o}" for r, o in WORK])
def test_broken_rule_is_refused_with_a_sentence(recipe: Recipe, operator: str) -> None:
    tally = judge(recipe, operator, "small", tosaic_system())
    assert tally.total, f"the generator made no negative test of {operator}"
    assert not tally.failures, str(tally)
