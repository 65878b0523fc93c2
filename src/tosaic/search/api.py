"""Design space exploration and evaluation in Python: ``tosaic.tune`` and ``tosaic.evaluate``.

The command line calls the same functions with files in place of objects. Importing this loads
nothing: PyTorch is loaded by the first call.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tosaic.errors import InvalidInput
from tosaic.runtime.lock import in_turn

if TYPE_CHECKING:
    from tosaic.pipeline.artifact import Artifact
    from tosaic.search.evaluate import Evaluation
    from tosaic.search.judge import Form, Judging
    from tosaic.search.networks import Subject
    from tosaic.search.store import Store
    from tosaic.search.tasks import Done, Executor
    from tosaic.search.tune import Sweep

Place = str | os.PathLike[str]
Several = str | Iterable[str]
Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Workers:
    """Where tasks run: on so many processes or on a Ray cluster, and what is told on the way.

    ``prepare`` makes functions of the user's known in a process that was not forked.
    """

    jobs: int | None = None
    ray: str | None = None
    journal: str = ""
    prepare: Callable[[], None] | None = None
    progress: Told | None = None

    @contextmanager
    def executor(self, store: Store) -> Iterator[Executor]:
        from tosaic.search.executors import executor_for

        given = (self.jobs, self.ray, self.prepare, self.journal)
        with closing(executor_for(store.path, store.blob, *given)) as made:
            yield made

    def told(self, done: Done) -> None:
        if self.progress is not None:
            self.progress(done.task.name)

    def __post_init__(self) -> None:
        if self.jobs is not None:
            check_count("jobs", self.jobs, 1)
        if self.progress is not None and not callable(self.progress):
            raise InvalidInput(f"progress is a function of a text, not {self.progress!r}")


@in_turn
def tune(
    model: Any,
    example_inputs: Any = None,
    *,
    target: Several,
    scheme: Any = (),
    mixed: int = 3,
    goals: float | Iterable[float] = (),
    sizes: Several = (),
    calibration: Iterable[Any] | None = None,
    data: Any = None,
    metric: Any = None,
    transform: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
    limit: int | None = None,
    db: Place = "tune.db",
    jobs: int | None = None,
    ray: str | None = None,
    progress: Told | None = None,
    **options: Any,
) -> Sweep:
    """Compile networks in many ways, and find those that nothing beats: the Pareto front.

    ``model`` is what ``compile`` takes, or a dict of several by name: each a tuple of model,
    example inputs and, if there is any, calibration data. Every one is compiled for each
    ``target``, ``scheme`` (those that a target takes, unless told) and value of ``options``, such
    as ``memory_mode=["Sram_Only", "Shared_Sram"]``; pictures also have each of ``sizes``, as
    "96x96". ``mixed`` forms lie between int8 and int16, and one more reaches each ratio, in
    decibels, of ``goals``.

    Points are judged by the signal-to-noise ratio on the calibration data, or by ``metric`` on
    ``data``, as ``evaluate`` has them. All results are in the file ``db``: the same call goes on
    after an interruption. The result prints as a table; ``front`` and ``rows`` are the points, and
    ``save`` writes a page, JSON or CSV.
    """
    from tosaic.front.examples import in_order

    if isinstance(model, Mapping):
        subjects = {str(name): _subject(str(name), given) for name, given in model.items()}
        if not subjects:
            raise InvalidInput("there is no model: the dict of them is empty")
        if example_inputs is not None or calibration is not None:
            raise InvalidInput(
                "a dict of models has their inputs and calibration data in it: give each as "
                "(model, example_inputs, calibration)"
            )
    elif isinstance(model, (list, tuple)):
        raise InvalidInput(
            "give several models as a dict by name, each as (model, example_inputs, calibration)"
        )
    elif (example_inputs := in_order(model, example_inputs)) is None:
        raise InvalidInput("give the example inputs of the model")
    else:
        is_module = hasattr(model, "_get_name") and not isinstance(model, type)
        name = type(model).__name__ if is_module else "model"
        subjects = {name: _subject(name, (model, example_inputs, calibration))}
    return run_tune(
        subjects, {"target": target, "scheme": scheme, "sizes": sizes}, options, mixed,
        goals, judging_of(data, metric, transform, decode, "sqnr"),
        None if data is None else _stream(data), limit, db, Workers(jobs, ray, progress=progress),
    )  # fmt: skip


def _subject(name: str, given: Any) -> Subject:
    from tosaic.search.networks import Subject

    if not isinstance(given, tuple) or not 2 <= len(given) <= 3:
        raise InvalidInput(f"'{name}' is no tuple of a model, example inputs and calibration data")
    return Subject(*given)


def run_tune(
    subjects: Mapping[str, Subject], words: Mapping[str, Any], options: Mapping[str, Any],
    mixed: int, goals: Any, judging: Judging, stream: Any, limit: int | None,
    db: Place, workers: Workers,
) -> Sweep:  # fmt: skip
    """A sweep over subjects by name."""
    from tosaic.search.networks import networks_of
    from tosaic.search.store import Store
    from tosaic.search.tune import Space, run_sweep
    from tosaic.targets.catalog import target_of

    _check_limit(limit)
    check_count("mixed", mixed, 0)
    ratios = _ratios(goals)
    schemes = _schemes(words["scheme"])
    several = {name: _texts(name, words[name]) for name in ("target", "sizes")}
    for name in several["target"]:
        target_of(name)
    chosen = {name: _values(value) for name, value in options.items()}
    Space((), several["target"], chosen).check_options()
    with closing(Store(db)) as store, workers.executor(store) as executor:
        networks = tuple(
            network
            for name, subject in subjects.items()
            for network in networks_of(store, name, subject, several["sizes"])
        )
        space = Space(networks, several["target"], chosen, schemes, mixed, ratios)
        return run_sweep(store, executor, space, judging, stream, limit, told=workers.told)


@in_turn
def evaluate(
    model: Any,
    example_inputs: Any = None,
    artifacts: Artifact | Mapping[str, Artifact] | None = None,
    *,
    data: Any,
    metric: Any = "top1",
    engine: Several = (),
    transform: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
    limit: int | None = None,
    device: str | None = None,
    db: Place | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    progress: Told | None = None,
) -> Evaluation:
    """Judge a model and what it was compiled to on a data set, in one pass over it.

    ``artifacts`` is one, or several by name; with the result of ``tune`` as the ``model``, they are
    all of its points. ``data`` is an iterable of pairs of an input and a label or a function that
    gives one, a folder, ``.tar`` shards or ``hf:name:split``; it may be larger than memory.
    ``metric`` is "top1", "top5", "map", "map50", "wer", "sqnr", or a function of one output and its
    label. ``transform`` makes the model's inputs of a picture's pixels, or of what an iterable
    gives, ``decode`` what the metric reads of an output.

    Each ``engine`` runs all artifacts: "tosa", or one of the target's own, which is the default.
    ``device="cuda"`` is where the interpreter runs. With the file ``db`` an evaluation goes on
    after an interruption. The result prints as a table with intervals of 95 % confidence;
    ``scores`` and ``disagreements`` hold the same, and ``save`` writes a page, JSON or CSV.
    """
    from tosaic.front.examples import in_order
    from tosaic.search.networks import forms_of, forms_of_sweep
    from tosaic.search.tune import Sweep

    engines = _texts("engine", engine)
    judging, stream = judging_of(data, metric, transform, decode, "top1"), _stream(data)
    workers = Workers(jobs, ray, progress=progress)
    if isinstance(model, Sweep):
        if artifacts is not None or db is not None:
            raise InvalidInput("a sweep has its artifacts, and a file that keeps the results")
        return run_evaluate(
            lambda store: forms_of_sweep(store, engines, device),
            judging, stream, limit, model.database, True, device, workers,
        )  # fmt: skip
    if hasattr(model, "report") or hasattr(example_inputs, "forward"):
        raise InvalidInput("evaluate takes the model, its example inputs, what compile gave of it")
    example_inputs = in_order(model, example_inputs)
    if example_inputs is None or not artifacts:
        raise InvalidInput("give the example inputs of the model, and what it was compiled to")
    named = artifacts if isinstance(artifacts, Mapping) else {"": artifacts}
    return run_evaluate(
        lambda store: forms_of(store, model, example_inputs, named, engines, device),
        judging, stream, limit, db, False, device, workers,
    )  # fmt: skip


def run_evaluate(
    make: Callable[[Store], list[Form]], judging: Judging, stream: Any, limit: int | None,
    db: Place | None, must_exist: bool, device: str | None, workers: Workers,
) -> Evaluation:  # fmt: skip
    """What ``make`` puts into a store, judged on a stream."""
    from tosaic.interp.device import checked
    from tosaic.search.evaluate import evaluate as judged
    from tosaic.search.store import Store

    _check_limit(limit)
    with ExitStack() as opened:
        if db is None:
            db = Path(opened.enter_context(tempfile.TemporaryDirectory())) / "results.db"
        store = opened.enter_context(closing(Store(db, must_exist)))
        forms = make(store)
        if device and workers.ray is None:
            checked(device)
            workers = replace(workers, jobs=workers.jobs or 1)  # one process has the device
        executor = opened.enter_context(workers.executor(store))
        found = judged(store, executor, stream, forms, judging, limit, workers.told)
    problem = next((score.problem for score in found.scores if score.problem), "")
    if problem and all(score.problem for score in found.scores):
        raise InvalidInput(problem)
    return found


def judging_of(data: Any, metric: Any, transform: Any, decode: Any, otherwise: str) -> Judging:
    """How forms are judged: with labelled data by classes, without by what ``otherwise`` is."""
    from tosaic.search.functions import own
    from tosaic.search.judge import Judging as Made
    from tosaic.search.metrics import metric_of

    judged = metric_of(metric if metric is not None else "top1" if data is not None else otherwise)
    if data is None and not judged.is_relative:
        raise InvalidInput(f"{judged.name} needs a labelled data set: give it with data")
    return Made(judged, own(transform), own(decode))


def _stream(data: Any) -> Any:
    from tosaic.search.datasets import stream_of

    return stream_of(data)


def _check_limit(limit: int | None) -> None:
    if limit is not None:
        check_count("limit", limit, 1)


def check_count(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number, or too small."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInput(f"{name} is a whole number, at least {least}, not {value!r}")


def _ratios(value: Any) -> tuple[float, ...]:
    """Decibels of goals, one or several."""
    found = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    if any(not isinstance(each, (int, float)) or not math.isfinite(each) for each in found):
        raise InvalidInput(f"goals are ratios in decibels, such as 30, not {value!r}")
    return found


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """One name or several; a text may have several, as on the command line."""
    texts = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if any(not isinstance(text, str) for text in texts):
        raise InvalidInput(f"{name} is a text, or several")
    parts = [part.strip() for text in texts for part in text.split(",")]
    return tuple(dict.fromkeys(part for part in parts if part))


def _schemes(value: Any) -> tuple[str | tuple[str, ...], ...]:
    """Schemes by name, and the calls with 16 bits of those that a sweep has found."""
    from tosaic.quant.selection import Schemes, resolved
    from tosaic.search.judge import FLOAT

    given = list(value) if isinstance(value, (list, tuple)) else [value]
    names = _texts("scheme", [each for each in given if not isinstance(each, Schemes)])
    for name in names:
        if name == "auto":
            raise InvalidInput("automatic precision is what mixed and goals are for in a sweep")
        if name != FLOAT:
            resolved(name)  # which refuses what it does not know
    found = list[str | tuple[str, ...]](names)
    for scheme in (each for each in given if isinstance(each, Schemes)):
        if scheme != Schemes("int8", nodes=dict.fromkeys(scheme.nodes, "a16w8")):
            raise InvalidInput("schemes by parts are for a sweep int8 with nodes in a16w8")
        found.append(tuple(map(str, scheme.nodes)))
    return tuple(found)


def _values(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple, set, frozenset)) else (value,)
