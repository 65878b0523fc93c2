"""Sweeps: networks on targets with options and precisions, compiled, judged and compared.

What is known of a sweep is in its store at any time; after an interruption only what is missing is
computed.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tosaic.errors import InvalidInput, UnknownOption
from tosaic.quant.schemes import scheme_of
from tosaic.runtime.printed import Printed, grid, plain
from tosaic.runtime.versions import versions
from tosaic.search.datasets import Stream, stream_of
from tosaic.search.evaluate import Disagreement, Evaluation, Score, evaluate, shown
from tosaic.search.front import Row, front
from tosaic.search.judge import FLOAT, Form, Judging
from tosaic.search.points import OUT_OF_REACH, Network, Point, choice_key, choice_task
from tosaic.search.store import Store
from tosaic.search.tasks import REFUSED, Done, Executor, unpacked
from tosaic.targets.catalog import target_of

SWEEP = "sweep"
_PLAIN = ("int8", "a16w8", "a8w4")
_NEAREST = 0.5  # decibels from int8 or int16 within which a goal is not worth a search
Told = Callable[[Done], None]


@dataclass(frozen=True, slots=True)
class Space:
    """What a sweep goes over: every network on every target with every choice of options.

    ``schemes`` are names, or calls with 16 bits; none are those that a target takes. ``mixed`` is
    how many forms lie between int8 and int16; ``goals`` are signal-to-noise ratios of more of them.
    """

    networks: tuple[Network, ...]
    targets: tuple[str, ...]
    options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    schemes: tuple[str | tuple[str, ...], ...] = ()
    mixed: int = 3
    goals: tuple[float, ...] = ()

    def settings(self, target: str) -> Iterator[dict[str, Any]]:
        """The choices of options that a target has; options of other targets are none of its."""
        names = [name for name in self.options if _refused(target, name) is None]
        for values in itertools.product(*(self.options[name] for name in names)):
            chosen = {n: v for n, v in zip(names, values) if _belongs(str(v), target)}
            if len(chosen) == len(names):
                target_of(target, chosen)  # which refuses values that it does not know
                yield chosen

    def check_options(self) -> None:
        """Refuse an option that none of the targets has, and a value that is none of its."""
        for name in self.options:
            refusals = [_refused(target, name) for target in self.targets]
            if refusals and all(refusals):
                raise refusals[0] or AssertionError
        for target in self.targets:
            list(self.settings(target))

    def plain(self) -> Iterator[Point]:
        """The points with one scheme."""
        for network, target in itertools.product(self.networks, self.targets):
            for options in self.settings(target):
                for scheme in self.schemes or _schemes(target):
                    is_name = isinstance(scheme, str)
                    given = (scheme,) if is_name else ("mixed", scheme)
                    yield Point(network, target, options, *given)

    def choosers(self) -> Iterator[tuple[Point, tuple[str, ...]]]:
        """Where calls are chosen: the first target of each kind, with those that follow it."""
        if not self.mixed and not self.goals:
            return
        for network in self.networks:
            kinds: dict[str, list[str]] = {}
            for target in self.targets:
                if target_of(target).env.has("int16"):
                    kinds.setdefault(str(target_of(target).env), []).append(target)
            for targets in kinds.values():
                options = next(self.settings(targets[0]), None)
                if options is not None:
                    yield Point(network, targets[0], options, "auto"), tuple(targets)


def _refused(target: str, option: str) -> UnknownOption | None:
    """Why a target does not take an option, whatever its value; None if it has it."""
    try:
        target_of(target, {option: None})
    except UnknownOption as refusal:
        return refusal
    return None


def _belongs(value: str, target: str) -> bool:
    """Whether a setting can be of this device: one that names another product is not."""
    product = re.compile(r"ethos[-_]?(u\d+)", re.IGNORECASE)
    named, own = product.search(value), product.search(target)
    return named is None or own is None or named[1].lower() == own[1].lower()


def _schemes(target: str) -> list[str]:
    """The plain schemes that a target takes, or float."""
    env, found = target_of(target).env, []
    if "INT" not in env.profiles:
        return [FLOAT]
    for name in _PLAIN:
        try:
            scheme_of(name).check(env)
        except InvalidInput:
            continue
        found.append(name)
    return found


@dataclass(frozen=True)
class Sweep(Printed):
    """The table of a sweep, with the front marked, and the evaluation that it rests on."""

    metric: str
    rows: tuple[Row, ...]
    evaluations: tuple[Evaluation, ...] = ()
    is_lower_better: bool = False
    is_finished: bool = False
    database: str = ""
    notes: tuple[str, ...] = ()

    @property
    def front(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.is_on_front)

    def data(self) -> Any:
        made = plain(self)
        del made["database"]  # the same figures in another file are the same
        made["evaluations"] = [each.data() for each in self.evaluations]
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a page (``.html``, with a folder of files beside it), ``.json`` or ``.csv``."""
        from tosaic.search.writers import write

        with closing(Store(self.database, must_exist=True)) as store:
            write(path, self, store)

    def parts(self) -> Iterable[Any]:
        units = dict.fromkeys(row.unit for row in self.rows if row.cycles is not None)
        cost = ", ".join(units) or "cycles"
        numbers = ["", self.metric, cost, "ms", "SRAM", "flash", "on the CPU"]
        columns = ["", "front", "point", *numbers[1:], "problem"]
        lines = [
            (
                str(row.number), "●" if row.is_on_front else "", row.title,
                "" if row.score is None else shown(self.metric, row.score),
                *(f"{n:,}" if n is not None else "" for n in (row.cycles,)),
                "" if row.milliseconds is None else f"{row.milliseconds:.3g}",
                *(f"{n:,}" if n is not None else "" for n in (row.sram, row.flash)),
                str(row.cpu_calls or ""), row.problem,
            )
            for row in sorted(self.rows, key=lambda r: (not r.is_on_front, r.number))
        ]  # fmt: skip
        used = [n for n, _ in enumerate(columns) if n < 4 or any(line[n] for line in lines)]
        table = grid(*(columns[n] for n in used), numbers=numbers)
        for line in lines:
            table.add_row(*(line[n] for n in used))
        yield table
        left = sum(row.problem == "not computed yet" for row in self.rows)
        more = f"; {left} are not computed yet" if left else ""
        yield f"{len(self.front)} of {len(self.rows)} points are on the front{more}"
        yield from self.notes


def run_sweep(
    store: Store,
    executor: Executor,
    space: Space,
    judging: Judging,
    stream: Stream | None = None,
    limit: int | None = None,
    engine: str = "tosa",
    told: Told = lambda _: None,
) -> Sweep:
    """Compute what the store lacks of a sweep, and compare all of it."""
    points = list(space.plain())
    if not points:
        lacks = "no target is named" if not space.targets else "no target has such options"
        raise InvalidInput(f"there is nothing to compile: {lacks}")
    store.describe(SWEEP, _described(points, judging))
    choosers = list(space.choosers())
    first = (choice_task(point, OUT_OF_REACH) for point, _ in choosers if space.mixed)
    faults = _run(store, executor, itertools.chain(first, (p.task() for p in points)), told)
    aims = [(point, targets, _goals(store, point, space)) for point, targets in choosers]
    tasks = (choice_task(point, goal) for point, _, goals in aims for goal in goals)
    faults |= _run(store, executor, tasks, told)
    mixed, notes = _mixed(store, space, aims, faults)
    points += mixed
    store.describe(SWEEP, _described(points, judging, None, notes))
    faults |= _run(store, executor, (p.task() for p in points), told)
    found = _judged(store, executor, points, judging, stream, limit, engine, told)
    described = _described(points, judging, plain(found), notes)
    store.describe(SWEEP, described)
    return _rows_of(store, points, described, faults)


def _run(store: Store, executor: Executor, tasks: Iterable[Any], told: Told) -> dict[str, str]:
    """Run tasks; why some of them failed, by key."""
    faults: dict[str, str] = {}
    for done in store.run(executor, tasks):
        told(done)
        if done.outcome.fault:
            faults[done.task.keys[0]] = done.outcome.fault
    return faults


def _goals(store: Store, point: Point, space: Space) -> list[float]:
    """Ratios between those of int8 and int16, evenly, and those that were asked for."""
    goals = list(space.goals)
    ends = store.get(choice_key(point, OUT_OF_REACH)) or {}
    ratios = ends.get("ratios", [])
    if space.mixed and len(ratios) > 1:
        low, high = min(ratios), max(ratios)
        even = [low + (high - low) * n / (space.mixed + 1) for n in range(1, space.mixed + 1)]
        goals += [round(goal, 2) for goal in even if high - low > 2 * _NEAREST]
    return list(dict.fromkeys(goals))


def _mixed(
    store: Store, space: Space, aims: Sequence[tuple[Point, tuple[str, ...], list[float]]],
    faults: Mapping[str, str],
) -> tuple[list[Point], list[str]]:  # fmt: skip
    """A point for every choice of calls, target and options; and why a goal has none."""
    made: dict[str, Point] = {}
    notes: dict[str, list[str]] = {}  # goals by what is said of them
    for chooser, targets, goals in aims:
        about = f"{chooser.network.title} on {chooser.target}"
        if not goals:
            key = choice_key(chooser, OUT_OF_REACH)
            ends = store.get(key) or {REFUSED: faults.get(key, "")}
            why = ends.get(REFUSED, f"int8 and int16 are within {2 * _NEAREST:g} dB")
            notes[f"{about} has no mixed precision{{}}: {why}"] = []
        for goal in goals:
            key = choice_key(chooser, goal)
            found = store.get(key) or {REFUSED: faults.get(key, "")}
            wide = tuple(found.get("wide", ()))
            if not wide or len(wide) == found["calls"]:
                why = found.get("sentence") or found[REFUSED]
                told = f"{about} has no mixed precision{{}}: {why}"
                notes.setdefault(told, []).append(f"{goal:g} dB")
                continue
            for target in targets:
                for options in space.settings(target):
                    point = Point(chooser.network, target, options, "mixed", wide)
                    made.setdefault(point.key, point)
    said = [
        told.replace("{}", f" for {', '.join(values)}" if values else "")
        for told, values in notes.items()
    ]
    return list(made.values()), said


def _judged(
    store: Store, executor: Executor, points: Sequence[Point], judging: Judging,
    stream: Stream | None, limit: int | None, engine: str, told: Told,
) -> list[Evaluation]:  # fmt: skip
    """Every point that was compiled, on the data set, or each network on its own calibration."""
    forms: dict[str, list[Form]] = {}
    for point in points:
        found = store.get(point.key) or {}
        own = "" if stream is not None else point.network.program
        if "artifact" in found:
            known = forms.setdefault(own, [])
            original = form_of_original(point.network)
            if original not in known and not judging.metric.is_relative:
                known.append(original)
            known.append(form_of(point.network, point.key, found, engine))
    made = []
    for own, group in forms.items():
        data = stream or _calibration(store, next(p for p in points if p.network.program == own))
        try:
            made.append(evaluate(store, executor, data, group, judging, limit, told))
        except InvalidInput as problem:
            if stream is not None:  # the same for every network
                raise
            scores = tuple(Score(form.name, 0.0, 0.0, 0.0, None, str(problem)) for form in group)
            made.append(Evaluation(judging.metric.name, 0, scores))
    return made


def form_of_original(network: Network) -> Form:
    return Form(network.title, network.program, FLOAT, network.program, network.examples)


def form_of(network: Network, key: str, found: Mapping[str, Any], engine: str) -> Form:
    return Form(
        key, found["artifact"], engine, network.program, network.examples, found["identity"]
    )  # fmt: skip


def _calibration(store: Store, point: Point) -> Stream:
    data = unpacked(store.blob(point.network.calibration))
    return stream_of([(item if len(item) > 1 else item[0], None) for item in data])


def _described(
    points: Sequence[Point], judging: Judging, evaluations: Any = None, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """A sweep for the store: its points, and what came of judging them."""
    metric = judging.metric
    return {
        "points": [{**plain(point), "known": point.key} for point in points],
        "versions": versions(), "metric": metric.name, "evaluations": evaluations,
        "is_lower_better": metric.is_lower_better, "is_relative": metric.is_relative,
        "notes": list(notes),
    }  # fmt: skip


def sweep_of(store: Store) -> Sweep:
    """The sweep that a store holds, as far as it has come."""
    with _of_a_sweep(store):
        told = store.described(SWEEP)
        return _rows_of(store, _points(told), told, {})


def points_of(store: Store) -> list[Point]:
    """The points of the sweep that a store holds; InvalidInput where another version made them."""
    with _of_a_sweep(store):
        told = store.described(SWEEP)
        points, made_by = _points(told), told["versions"]
    if made_by != versions():
        said = ", ".join(f"{name} {version}" for name, version in made_by.items())
        raise InvalidInput(f"'{store.path}' was computed by {said}: run `tosaic tune` again")
    return points


@contextmanager
def _of_a_sweep(store: Store) -> Iterator[None]:
    """InvalidInput for a file that is damaged, or of something else."""
    if store.described(SWEEP) is None:
        raise InvalidInput(f"'{store.path}' holds no sweep")
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise InvalidInput(f"the sweep in '{store.path}' is damaged: {problem!r}") from None


def _points(told: Mapping[str, Any]) -> list[Point]:
    return [
        Point(
            Network(**p["network"]), p["target"], p["options"], p["scheme"], tuple(p["wide"]),
            p["known"],
        )
        for p in told["points"]
    ]  # fmt: skip


def _rows_of(
    store: Store, points: Sequence[Point], told: Mapping[str, Any], faults: Mapping[str, str]
) -> Sweep:
    evaluations = tuple(map(_evaluation, told["evaluations"] or ()))
    scores = {s.form: s for each in evaluations for s in each.scores}
    rows = []
    for number, point in enumerate(points, 1):
        key, network = point.key, point.network
        data = store.get(key) or {REFUSED: faults.get(key, "not computed yet")}
        row = Row(
            number, network.name, network.size, point.target, dict(point.options),
            point.precision, point.command(), key, problem=data.get(REFUSED, ""), wide=point.wide,
        )  # fmt: skip
        if not row.problem:
            own, original = scores.get(key), scores.get(network.title)
            unit = "no estimate" if data["cycles"] is None else data["unit"]
            if not data["multipliers"]:  # no size tells what it costs
                unit += f" on {point.target}"
            row = replace(
                row, **{name: data[name] for name in _MEASURED}, checks=tuple(data["checks"]),
                group=f"{unit} {network.title if told['is_relative'] else ''}".strip(),
                problem=own.problem if own is not None else "",
                original=original.score if original is not None else None,
            )  # fmt: skip
            if own is not None and not own.problem:
                row = replace(
                    row, score=own.score, low=own.low, high=own.high, agreement=own.agreement
                )
        rows.append(row)
    best = front(rows, told["is_lower_better"])
    rows = [replace(row, is_on_front=row.number in best) for row in rows]
    finished = told["evaluations"] is not None
    return Sweep(
        told["metric"], tuple(rows), evaluations, told["is_lower_better"], finished,
        str(store.path), tuple(told["notes"]),
    )  # fmt: skip


_MEASURED = (
    "cycles", "unit", "milliseconds", "sram", "flash", "multipliers", "cpu_calls", "files",
    "sha256",
)  # fmt: skip


def _evaluation(data: Mapping[str, Any]) -> Evaluation:
    return Evaluation(
        data["metric"], data["inputs"], tuple(Score(**s) for s in data["scores"]),
        tuple(Disagreement(**d) for d in data["disagreements"]), data["is_lower_better"],
        data["counts"],
    )  # fmt: skip
