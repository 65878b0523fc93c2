"""Answers about operator support that come with the package, so that nothing has to be lowered.

``make op-support`` writes them, beside docs/op-support.md, from the samples of the rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from tosaic.spec.dtypes import I8, I16, DType
from tosaic.targets.catalog import known_families, target_of

FILE = "op_support.json"


@dataclass(frozen=True, slots=True)
class Column:
    """A target and what the values are: floats, or integers of a type."""

    title: str
    target: str
    kind: DType | None

    @property
    def key(self) -> str:
        """What answers are stored under."""
        return f"{self.target} {self.kind or 'float'}"


_KINDS: dict[str, DType | None] = {"float": None, "i8": I8, "i16": I16}
_PLAIN = (
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


def columns_for(name: str | None, *, anew: bool = False) -> tuple[Column, ...]:
    """The columns of one target: what it has of floats, int8 and int16; all of them without.

    What the package has stored is not asked of the target, which would load its compiler, unless
    everything is found out ``anew``.
    """
    if name is None:
        kinds = [each for family in known_families() for each in family.kinds.items()]
        titled = [(target, title) for target, title in kinds if title]
        return (*_PLAIN, *(c for each in titled for c in _columns(*each, anew)))
    return _columns(name, name, anew)


def _columns(name: str, title: str, anew: bool) -> tuple[Column, ...]:
    plain = name.lower().replace("_", "-")
    keys = [] if anew else [key.split(" ") for key in _stored()["columns"]]
    found = {word: target for target, word in keys if target.lower() == plain}
    if not found:
        target = target_of(name)
        env = target.env
        there = ("FP" in env.profiles, "INT" in env.profiles, "int16" in env.extensions)
        found = {word: target.name for word, has in zip(_KINDS, there) if has}
    return tuple(Column(f"{title} {_word(k)}", t, _KINDS[k]) for k, t in found.items())


def _word(kind: str) -> str:
    return kind.replace("i", "int") if kind != "float" else kind


def known(columns: Sequence[Column], wanted: Callable[[str], bool]) -> list[Row] | None:
    """The rows that are wanted; None if a column is of a target that nothing is stored for."""
    stored = _stored()
    places = {key: place for place, key in enumerate(stored["columns"])}
    if any(column.key not in places for column in columns):
        return None
    reasons = stored["reasons"]
    return [
        Row(op, tuple(_answer(answers[places[column.key]], reasons) for column in columns))
        for op, answers in stored["rows"].items() if wanted(op)
    ]  # fmt: skip


def as_text(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """Rows as the file has them, one a line."""
    reasons = list(dict.fromkeys(a.reason for row in rows for a in row.answers))
    at = {reason: place for place, reason in enumerate(reasons)}
    lines = [
        f"{json.dumps(row.op)}: {json.dumps([[a.taken, a.of, at[a.reason]] for a in row.answers])}"
        for row in rows
    ]
    head = f'{{"columns": {json.dumps([c.key for c in columns])},\n"reasons": '
    listed = ",\n".join(lines)
    return f'{head}{json.dumps(reasons, indent=0)},\n"rows": {{\n{listed}\n}}}}\n'


def _answer(stored: Sequence[int], reasons: Sequence[str]) -> Answer:
    taken, of, reason = stored
    return Answer(taken, of, reasons[reason])


@cache
def _stored() -> Any:
    return json.loads((resources.files(__package__) / FILE).read_text(encoding="utf-8"))
