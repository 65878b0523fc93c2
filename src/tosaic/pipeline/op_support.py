"""Operator support of a target: every sample of every rule, lowered and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import tosaic.rules  # noqa: F401  (fills the registry)
from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.registry import RULES
from tosaic.ir.graph import Op
from tosaic.lowering.samples import Case, cases, emitted
from tosaic.lowering.target import Target
from tosaic.spec.dtypes import I8, I16, DType
from tosaic.targets.catalog import known_families, target_of


@dataclass(frozen=True, slots=True)
class Column:
    """A target and what the values are: floats, or integers of a type."""

    title: str
    target: str
    kind: DType | None


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


def columns_for(name: str | None) -> tuple[Column, ...]:
    """The columns of one target: what it has of floats, int8 and int16; all of them without."""
    if name is None:
        kinds = [each for family in known_families() for each in family.kinds.items()]
        return (*_PLAIN, *(c for target, title in kinds if title for c in _columns(target, title)))
    return _columns(name, name)


def _columns(name: str, title: str) -> tuple[Column, ...]:
    env = target_of(name).env
    kinds: list[tuple[str, DType | None]] = [("float", None)] if "FP" in env.profiles else []
    kinds += [("int8", I8)] if "INT" in env.profiles else []
    kinds += [("int16", I16)] if "int16" in env.extensions else []
    return tuple(Column(f"{title} {word}", name, kind) for word, kind in kinds)


def support(
    columns: Sequence[Column] | None = None, wanted: Callable[[str], bool] = lambda _: True
) -> list[Row]:
    """The table of all operators, or of those that are wanted, in alphabetic order.

    Overloads that programs may have in the place of a canonical one have its answers.
    """
    columns = columns_for(None) if columns is None else columns
    known = {target: (target, *torchapi.aliases(target)) for target in RULES}
    names = {target: [n for n in every if wanted(n)] for target, every in known.items()}
    samples: dict[str, list[Case]] = {target: [] for target in RULES if names[target]}
    for case in cases():
        if case.target in samples:
            samples[case.target].append(case)
    rows = []
    for target, uses in samples.items():
        answers = tuple(_answers(uses, columns)) if uses else ()
        rows += [Row(name, answers) for name in names[target] if uses]
    return sorted(rows, key=lambda row: row.op)


def _answers(uses: Sequence[Case], columns: Sequence[Column]) -> Iterator[Answer]:
    """What each column says of an operator. Equal types are lowered once for all targets.

    A target that refuses none of the operators of plain TOSA's form has that form.
    """
    forms: dict[tuple[str, DType | None], Sequence[Op] | str] = {}
    for column in columns:
        target, reasons = target_of(column.target), []
        for case in uses:
            key = str(case), column.kind
            if target.emit is None or key not in forms:
                forms[key] = _form(case, target, column.kind)
            found = forms[key]
            if not isinstance(found, str) and any(map(target.refuses, found)):
                found = _form(case, target, column.kind)
            if isinstance(found, str):
                reasons.append(found)
        yield Answer(len(uses) - len(reasons), len(uses), reasons[0] if reasons else "")


def _form(case: Case, target: Target, kind: DType | None) -> Sequence[Op] | str:
    """The operators that a sample becomes, or why it becomes none."""
    try:
        return emitted(case, target, kind)
    except Unsupported as refusal:
        return refusal.reason
