"""Programs composed at random of the registry's samples compile, and agree with their judges."""

from __future__ import annotations

import pytest

from judges.randomprograms import (
    FLOAT,
    INTEGER,
    WIDE,
    RandomProgram,
    judge,
    left_to_the_check,
    pool,
)

COUNTS = {
    FLOAT: 120, INTEGER: 180, WIDE: 80,
    "ethos-u55-128": 40, "ethos-u65-256": 40, "ethos-u85-256": 40,
}  # fmt: skip
BATCH = 10
BATCHES = [(t, first) for t, count in COUNTS.items() for first in range(0, count, BATCH)]


def test_there_are_500_programs() -> None:
    assert sum(COUNTS.values()) >= 500


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("target", "first"), BATCHES, ids=[f"{t}-{n}" for t, n in BATCHES])
def test_random_programs_compile_and_agree(target: str, first: int) -> None:
    chosen, lowered, late = pool(target), 0, 0
    for seed in range(first, first + BATCH):
        program = RandomProgram(seed, chosen)
        try:
            art = judge(program, target)
        except Exception as problem:
            raise AssertionError(f"seed {seed}, {program}") from problem
        lowered += bool(art.partition.graphs)
        late += left_to_the_check(art)
    assert lowered >= BATCH * 0.8  # most of it is compiled at all
    assert late <= 1  # forms that Vela compiles wrongly are known beforehand, but for rare ones
