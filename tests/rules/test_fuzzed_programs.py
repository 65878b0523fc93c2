"""Programs that a generator writes compile on every target without a fault."""

from __future__ import annotations

import pytest

from judges.fuzz.case import Case
from judges.fuzz.generate import program
from judges.fuzz.program import load
from judges.fuzz.reduce import reduced
from judges.fuzz.run import chosen, limited
from judges.rendezvous import name_by_number

COUNT, BATCH = 96, 8


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_fuzzed_programs_have_no_fault(first: int) -> None:
    for seed in range(first, first + BATCH):
        case = Case(program(seed).text, f"<program {seed}>")
        for configuration in chosen(seed):
            faults = limited(case, configuration).faults
            assert not faults, f"--seed {seed} --target {configuration}: {faults}\n{case.text}"


@pytest.mark.filterwarnings("ignore")
def test_a_seed_gives_the_same_program_each_time() -> None:
    for seed in range(10):
        assert program(seed).text == program(seed).text


def test_a_sample_that_is_added_leaves_what_is_drawn_as_it_was() -> None:
    """But for the draws that choose the new one, which are its share."""
    names, numbers = [f"add.Tensor-{n}" for n in range(50)], range(0, 1 << 60, 1 << 50)
    more = [*names[:20], "a new one", *names[20:]]
    before, after = ([name_by_number(given, n) for n in numbers] for given in (names, more))
    changed = [now for then, now in zip(before, after) if then != now]
    assert set(changed) == {"a new one"}
    assert len(changed) < len(numbers) / 30
    assert set(before) == set(names)


@pytest.mark.filterwarnings("ignore")
def test_a_program_is_reduced_to_the_statement_that_fails() -> None:
    made = next(p for p in map(program, range(100)) if len(p.statements) > 5)
    last = made.statements[-1].makes[-1]
    whole = made.text
    found = reduced(made, lambda p: last in p.text and last in p.outputs)
    assert len(found.statements) <= 1
    assert len(found.text) < len(whole)
    load(found.text)
