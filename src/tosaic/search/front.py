"""The Pareto front: points that no other point is at least as good as in everything."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# What a design costs; less is better. Accuracy comes first, and counts as its metric says.
COSTS = ("cycles", "sram", "flash", "multipliers", "cpu_calls")


@dataclass(frozen=True, slots=True)
class Row:
    """A point of a sweep with all that is known of it.

    ``group`` are the points that it is compared with: NPUs by their size, other targets each alone,
    since their instructions are not those of another core; and a ratio to one network's original
    says nothing of another's.
    """

    number: int
    model: str
    size: str
    target: str
    options: dict[str, Any]
    precision: str
    command: str
    key: str
    score: float | None = None
    low: float | None = None
    high: float | None = None
    agreement: float | None = None
    original: float | None = None
    cycles: int | None = None
    unit: str = "cycles"
    milliseconds: float | None = None
    sram: int | None = None
    flash: int | None = None
    multipliers: int = 0
    cpu_calls: int = 0
    group: str = ""
    is_on_front: bool = False
    problem: str = ""
    checks: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)
    wide: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        words = (self.model, self.size, self.target, *option_words(self.options))
        return " · ".join([word for word in words if word] + [self.precision])


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Values of options, with their names where a value alone says nothing."""
    bare = re.compile(r"[-+.\d]+|true|false|none", re.IGNORECASE)
    return [f"{n}={v}" if bare.fullmatch(str(v)) else str(v) for n, v in options.items()]


def front(rows: Sequence[Row], is_lower_better: bool = False) -> set[int]:
    """Numbers of the rows on the front; of equal ones the first."""
    groups: dict[str, list[tuple[Row, tuple[float, ...]]]] = {}
    for row in rows:
        if not row.problem and row.score is not None:
            groups.setdefault(row.group, []).append((row, _costs(row, is_lower_better)))
    found: set[int] = set()
    for members in groups.values():
        for row, costs in members:
            if not any(_beats(other, costs, o.number < row.number) for o, other in members):
                found.add(row.number)
    return found


def _costs(row: Row, is_lower_better: bool) -> tuple[float, ...]:
    assert row.score is not None
    score = row.score if is_lower_better else -row.score
    return score, *(float(getattr(row, name) or 0) for name in COSTS)


def _beats(one: tuple[float, ...], other: tuple[float, ...], is_first: bool) -> bool:
    """Whether it is nowhere worse, and better somewhere, or equal and before it."""
    return all(a <= b for a, b in zip(one, other)) and (one != other or is_first)
