"""Operator support of a target: every sample of every rule, lowered and counted.

The answers for Tosaic's own targets come with the package (``op_support_answers`` reads them).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence

import tosaic.rules  # noqa: F401  (fills the registry)
from tosaic.errors import TosaicError, Unsupported
from tosaic.front import torchapi
from tosaic.front.registry import RULES
from tosaic.ir.graph import Op
from tosaic.lowering.samples import Case, cases, emitted
from tosaic.lowering.target import Target
from tosaic.pipeline.composites import COMPOSITES, composite
from tosaic.pipeline.explain import explain_model
from tosaic.pipeline.op_support_answers import Answer, Column, Row, columns_for
from tosaic.spec.dtypes import DType
from tosaic.targets.catalog import target_of

__all__ = ["Answer", "Column", "Row", "columns_for", "composite_support", "support"]


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


def composite_support(columns: Sequence[Column], wanted: Callable[[str], bool]) -> list[Row]:
    """The same of operators that compile by their parts: is nothing of such a module refused?"""
    names = [name for name in COMPOSITES if wanted(name)]
    return [Row(name, tuple(_by_parts(name, column) for column in columns)) for name in names]


def _by_parts(name: str, column: Column) -> Answer:
    scheme = None if column.kind is None else "a16w8" if column.kind.bits == 16 else "int8"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            told = explain_model(*composite(name), column.target, scheme)
    except TosaicError as problem:
        return Answer(0, 1, problem.reason)
    reasons = sorted((r.reason for r in told.refused), key=lambda reason: name not in reason)
    return Answer(int(not reasons), 1, reasons[0] if reasons else "")


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
