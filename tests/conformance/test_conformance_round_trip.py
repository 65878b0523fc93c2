"""Generated tests, read, printed, parsed and written again, still give the expected results."""

from __future__ import annotations

import pytest

from judges.recipes import BEYOND_1_0, FLOAT, INTEGER, Recipe
from judges.suite import judge, work
from judges.systems import round_trip_system

WORK = work((*INTEGER, *FLOAT, *BEYOND_1_0))


@pytest.mark.parametrize(("recipe", "operator"), WORK, ids=[f"{r.name}-{o}" for r, o in WORK])
def test_a_file_survives_text_and_writing(recipe: Recipe, operator: str) -> None:
    tally = judge(recipe, operator, "small", round_trip_system())
    assert tally.total, f"the generator made no test of {operator}"
    assert not tally.failures, str(tally)
