"""Evaluation: scores of forms of a network with confidence intervals, and where they disagree."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tosaic.errors import InvalidInput
from tosaic.runtime.printed import Printed, grid, plain
from tosaic.search.datasets import Stream
from tosaic.search.judge import Form, Judging, result_key, tasks_of
from tosaic.search.metrics import Metric
from tosaic.search.store import Store
from tosaic.search.tasks import REFUSED, Done, Executor

_LISTED = 1000  # disagreements


@dataclass(frozen=True, slots=True)
class Score:
    """What a form reaches, within which bounds, and how often it says what its original says."""

    form: str
    score: float
    low: float
    high: float
    agreement: float | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A sample for which a form gives another answer than its original."""

    index: int
    name: str
    label: Any
    form: str
    answer: Any
    original: Any
    picture: str = ""


@dataclass(frozen=True)
class Evaluation(Printed):
    """Scores of all forms on one data set."""

    metric: str
    inputs: int
    scores: tuple[Score, ...]
    disagreements: tuple[Disagreement, ...] = ()
    is_lower_better: bool = False
    counts: dict[str, int] = field(default_factory=dict)

    def score_of(self, form: str) -> Score:
        return next(score for score in self.scores if score.form == form)

    def data(self) -> Any:
        """The same for JSON; pictures are for the page."""
        made = plain(self)
        for row in made["disagreements"]:
            del row["picture"]
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a page (``.html``), ``.json`` or ``.csv``."""
        from tosaic.search.writers import write

        write(path, self, None)

    def parts(self) -> Iterable[Any]:
        numbers = [self.metric, "95 %", "as the original"]
        table = grid(f"{self.inputs:,} inputs", *numbers, numbers=numbers)
        for row in self.scores:
            if row.problem:
                table.add_row(row.form, "", "", row.problem)
                continue
            same = "" if row.agreement is None else f"{row.agreement:.2%}"
            bounds = f"{shown(self.metric, row.low)} to {shown(self.metric, row.high)}"
            table.add_row(row.form, shown(self.metric, row.score), bounds, same)
        yield table
        for form, count in self.counts.items():
            first = [str(d.index) for d in self.disagreements if d.form == form][:10]
            more = ", …" if count > len(first) else ""
            if count:
                noun = "input" if count == 1 else "inputs"
                yield f"{form} disagrees on {count:,} {noun}: {', '.join(first)}{more}"


def shown(metric: str, value: float) -> str:
    """A score in words: decibels, a share, or a number."""
    if metric == "sqnr":
        return f"{value:.1f} dB"
    if metric in ("top1", "top5", "map", "map50", "wer"):
        return f"{value:.2%}"
    return f"{value:.5g}"


def evaluate(
    store: Store,
    executor: Executor,
    stream: Stream,
    forms: Sequence[Form],
    judging: Judging,
    limit: int | None = None,
    told: Callable[[Done], None] = lambda _: None,
) -> Evaluation:
    """Judge forms on a data set: what the store has of it is not computed again.

    A sample that cannot be read, and a function of the user's that fails, end it at once.
    """
    seen: list[tuple[str, int]] = []
    for done in store.run(executor, tasks_of(stream, forms, judging, store.has, limit, seen)):
        told(done)
        if problem := done.outcome.refusal or done.outcome.fault:
            raise InvalidInput(problem)
    if not seen:
        raise InvalidInput("the data set is empty")
    rows = [_Rows(store, form, judging, [key for key, _ in seen]) for form in forms]
    originals = {row.form.original: row for row in rows if row.form.blob == row.form.original}
    scores, found, counts = [], list[Disagreement](), dict[str, int]()
    for row in rows:
        scores.append(row.score(judging.metric, originals.get(row.form.original)))
        differing = list(row.differing(seen, originals.get(row.form.original)))
        counts[row.form.name] = len(differing)
        found += differing[:_LISTED]
    count = sum(size for _, size in seen)
    lower = judging.metric.is_lower_better
    return Evaluation(judging.metric.name, count, tuple(scores), tuple(found), lower, counts)


class _Rows:
    """What the store has of one form, chunk by chunk."""

    def __init__(self, store: Store, form: Form, judging: Judging, chunks: list[str]) -> None:
        self.form, self._store = form, store
        told = judging.key
        self._keys = [result_key(chunk, form, told) for chunk in chunks]
        self.problem = next((data[REFUSED] for data in self.chunks() if REFUSED in data), "")

    def chunks(self) -> Iterator[dict[str, Any]]:
        return (self._store.get(key) or {REFUSED: "not computed"} for key in self._keys)

    def score(self, metric: Metric, original: _Rows | None) -> Score:
        if self.problem:
            return Score(self.form.name, 0.0, 0.0, 0.0, None, self.problem)
        records = [record for data in self.chunks() for record in data["records"]]
        low, high = metric.interval(records)
        return Score(self.form.name, metric.score(records), low, high, self._agreement(original))

    def _agreement(self, original: _Rows | None) -> float | None:
        if original is None or original is self or original.problem:
            return None
        same = count = 0
        for ours, real in zip(self.chunks(), original.chunks()):
            count += len(ours["answers"])
            same += sum(a == b for a, b in zip(ours["answers"], real["answers"]))
        return same / count if count else None

    def differing(
        self, seen: list[tuple[str, int]], original: _Rows | None
    ) -> Iterator[Disagreement]:
        if original is None or original is self or self.problem or original.problem:
            return
        start = 0
        for (_, size), ours, real in zip(seen, self.chunks(), original.chunks()):
            for place, name in ours["names"].items():
                index = int(place)
                yield Disagreement(
                    start + index, name, ours["labels"][place], self.form.name,
                    ours["answers"][index], real["answers"][index], ours["pictures"].get(place, ""),
                )  # fmt: skip
            start += size
