"""Judges whole operators: generates their tests, runs a system on them, counts and explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from judges.cases import Case
from judges.generate import cases
from judges.recipes import Recipe, Size
from judges.verdict import System, acceptance, complaint


@dataclass
class Tally:
    """What became of the tests of one operator in one recipe."""

    recipe: str
    operator: str
    total: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    by_error: Counter[str] = field(default_factory=Counter)
    survived: Counter[str] = field(default_factory=Counter)
    varied: int = 0
    constant: int = 0

    @property
    def passed(self) -> int:
        return self.total - len(self.failures)

    def __str__(self) -> str:
        lines = [f"{self.operator}: {len(self.failures)} of {self.total} tests failed"]
        lines += [f"  {name}: {reason}" for name, reason in self.failures.items()]
        lines += [
            f"  {error}: {self.by_error[error] - count} of {self.by_error[error]} refused"
            for error, count in self.survived.items()
        ]
        return "\n".join(lines)


def work(recipes: Iterable[Recipe]) -> list[tuple[Recipe, str]]:
    """Every operator of every recipe: what to parametrize a test by."""
    return [(recipe, operator) for recipe in recipes for operator in recipe.operators]


def judge(recipe: Recipe, operator: str, size: Size, system: System) -> Tally:
    """Run a system on the tests of one operator."""
    tally = Tally(recipe.name, operator)
    for case in cases(recipe, operator, size):
        tally.total += 1
        if recipe.kind == "positive":
            reason = complaint(case, system)
            _count_variation(case, tally)
        else:
            reason = acceptance(case, system)
            tally.by_error[case.error] += 1
            tally.survived[case.error] += bool(reason)
        if reason:
            tally.failures[str(case)] = reason
    return tally


def _count_variation(case: Case, tally: Tally) -> None:
    """An expected output with one value everywhere would let a constant pass for an answer."""
    if case.status != "TOSA_VALID":
        return
    for number in range(len(case.output_types)):
        expected = case.expected(number)
        if expected.size > 1:
            varies = len(np.unique(expected)) > 1
            tally.varied += varies
            tally.constant += not varies
