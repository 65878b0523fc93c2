"""Which operators a target takes: every rule's samples, lowered, and the answers counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import tosaic.rules  # noqa: F401  (fills the registry)
from tosaic.front.registry import RULES
from tosaic.front.samples import Case, cases, refusal
from tosaic.spec.dtypes import I8, I16, DType
from tosaic.spec.env import Env


@dataclass(frozen=True, slots=True)
class Column:
    """A target and what the values are: floats, or integers of a type."""

    title: str
    target: str
    kind: DType | None


COLUMNS = (
    Column("float", "TOSA-1.0+FP", None),
    Column("int8", "TOSA-1.0+INT", I8),
    Column("int16", "TOSA-1.0+INT+int16", I16),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """How many of an operator's samples lower, and the first reason of those that do not."""

    taken: int
    of: int
    reason: str = ""

    def __str__(self) -> str:
        if self.taken == self.of:
            return "yes"
        return f"{self.taken} of {self.of}" if self.taken else "no"


@dataclass(frozen=True, slots=True)
class Row:
    """An overload and its answers, one for each column."""

    op: str
    answers: tuple[Answer, ...]


def support(columns: Sequence[Column] = COLUMNS) -> list[Row]:
    """The table of all operators, in alphabetic order."""
    samples: dict[str, list[Case]] = {target: [] for target in RULES}
    for case in cases():
        samples[case.target].append(case)
    rows = []
    for target, uses in sorted(samples.items()):
        if uses:
            rows.append(Row(target, tuple(_answer(uses, column) for column in columns)))
    return rows


def _answer(uses: Iterable[Case], column: Column) -> Answer:
    env = Env.parse(column.target)
    found = [refusal(case, env, column.kind) for case in uses]
    reasons = [reason for reason in found if reason is not None]
    return Answer(len(found) - len(reasons), len(found), reasons[0] if reasons else "")
