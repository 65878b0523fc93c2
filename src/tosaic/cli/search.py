"""The commands that search and evaluate: ``tosaic tune`` and ``tosaic evaluate``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tosaic.cli import options as o
from tosaic.cli.show import bar, busy, show
from tosaic.errors import InvalidInput

if TYPE_CHECKING:
    from tosaic.search.api import Workers
    from tosaic.search.datasets import Stream
    from tosaic.search.judge import Form, Judging
    from tosaic.search.networks import Subject
    from tosaic.search.store import Store

_SET = (
    "a folder (classes are folders, or labels lie beside), .tar shards as s-{000..009}.tar, "
    "hf:name:split, .npz with x and y, .pt with a pair, or file.py:name (an iterable of pairs)"
)
_METRIC = "top1, top5, map, map50, wer, sqnr, or file.py:name (a function of output and label)"

Networks = Annotated[
    list[str] | None,
    typer.Argument(help=f"{o.MODEL}; may be several", show_default=False, metavar="MODEL..."),
]
Set = Annotated[str | None, typer.Option("--data", "-d", help=_SET)]
Metric = Annotated[str | None, typer.Option(help=_METRIC)]
Transform = Annotated[
    str | None, typer.Option(help="file.py:name: from a picture or tensors to the model's inputs")
]
Decode = Annotated[
    str | None, typer.Option(help="file.py:name: from the model's output to what the metric reads")
]
Limit = Annotated[int | None, typer.Option(help="take so many inputs only")]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", help="processes; else one a core")]
Ray = Annotated[
    str | None, typer.Option(metavar="auto|ADDRESS", help="run on a Ray cluster instead")
]
Journal = Annotated[str | None, typer.Option(help="a file that gets a line whenever a task begins")]
Outputs = Annotated[
    list[Path] | None, typer.Option("--output", "-o", help=".html, .json or .csv; may be several")
]


def tune(
    models: Networks = None,
    target: Annotated[
        list[str] | None, typer.Option("--target", "-t", help="may be several, or A,B")
    ] = None,
    db: Annotated[Path, typer.Option(help="the file that keeps all results")] = Path("tune.db"),
    size: Annotated[
        list[str] | None, typer.Option(help="of pictures, as 96x96,128x128; else the model's own")
    ] = None,
    scheme: Annotated[
        list[str] | None, typer.Option(help="int8, a16w8, …, a sweep's .json; else a target's own")
    ] = None,
    mixed: Annotated[int, typer.Option(help="forms between int8 and int16, chosen by call")] = 3,
    goal: Annotated[
        list[str] | None, typer.Option(help="sqnr=30: one more form, of that ratio")
    ] = None,
    memory_mode: Annotated[list[str] | None, typer.Option(help="Memory_Modes, as A,B")] = None,
    system_config: Annotated[list[str] | None, typer.Option(help="System_Configs, as A,B")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-O", help="of targets, as name=a,b")
    ] = None,
    calibration: o.Calibration = None,
    data: Set = None, metric: Metric = None, transform: Transform = None, decode: Decode = None,
    limit: Limit = None, jobs: Jobs = None, ray: Ray = None, journal: Journal = None,
    output: Outputs = None,
    show_only: Annotated[
        bool, typer.Option("--show", help="show what the file has, and compute nothing")
    ] = False,
    point: Annotated[
        int | None, typer.Option(help="write the files of one point to the folder --to")
    ] = None,
    to: Annotated[Path, typer.Option(help="the folder for --point")] = Path("point"),
    as_json: o.Json = False, quiet: o.Quiet = False,
) -> None:  # fmt: skip
    """Compile networks in many ways, and show the Pareto front.

    Accuracy, cycles, SRAM and flash of every precision, target and option. Everything is kept in
    one file: after an interruption the same command goes on where it was.
    """
    from tosaic.search.api import run_tune

    _check_outputs(output)
    if show_only or point is not None:
        _show(db, point, to, output, as_json, quiet)
        return
    if not models or not target:
        raise InvalidInput("name a model and a target, or show a file with --show --db FILE")
    judging, stream = _judging(data, metric, transform, decode, "sqnr")
    with busy("loading the models", quiet):
        subjects = _subjects(models, calibration)
    schemes = [o.scheme_of(text) for text in _split(scheme)]
    words = {"target": target, "scheme": schemes, "sizes": size or ()}
    with _workers("tasks", jobs, ray, journal, quiet) as workers:
        made = run_tune(
            subjects, words, _choices(option, memory_mode, system_config), mixed,
            tuple(_ratio(text) for text in goal or ()), judging, stream, limit, db, workers,
        )  # fmt: skip
    _told(made, output, as_json, quiet)


def evaluate(
    model: Annotated[
        str | None, typer.Argument(help=o.MODEL, show_default=False, metavar="MODEL")
    ] = None,
    data: Set = None,
    target: o.Target = "TOSA-1.0+INT", shape: o.Shape = None,
    calibration: o.Calibration = None, scheme: o.Scheme = None, io: o.Io = None,
    engine: Annotated[
        list[str] | None, typer.Option(help="tosa, or the target's own, as npu; may be several")
    ] = None,
    sweep: Annotated[
        Path | None, typer.Option(help="judge every point of `tosaic tune`'s file instead")
    ] = None,
    metric: Metric = None, transform: Transform = None, decode: Decode = None, limit: Limit = None,
    device: Annotated[str | None, typer.Option(help="where the interpreter runs, as cuda")] = None,
    db: Annotated[
        Path | None, typer.Option(help="a file that keeps results, to go on after an interruption")
    ] = None,
    jobs: Jobs = None, ray: Ray = None, journal: Journal = None, output: Outputs = None,
    as_json: o.Json = False, quiet: o.Quiet = False,
) -> None:  # fmt: skip
    """Evaluate the original and its compiled forms on a data set, in one pass."""
    from tosaic.search.api import run_evaluate
    from tosaic.search.networks import forms_of_sweep

    _check_outputs(output)
    if (model is None) is (sweep is None):
        raise InvalidInput("give a model, or a sweep of `tosaic tune` with --sweep FILE")
    if data is None:
        raise InvalidInput("give the data set with --data")
    judging, stream = _judging(data, metric, transform, decode, "top1")

    def make(store: Store) -> list[Form]:
        with busy("compiling", quiet):
            if model is None:
                return forms_of_sweep(store, _split(engine), device)
            given = (target, shape, calibration, scheme, io, engine, device)
            return _forms(store, model, *given)

    with _workers("chunks", jobs, ray, journal, quiet) as workers:
        found = run_evaluate(
            make, judging, stream, limit, sweep or db, sweep is not None, device, workers
        )
    _told(found, output, as_json, quiet)


ALL = (tune, evaluate)


@contextmanager
def _workers(
    words: str, jobs: int | None, ray: str | None, journal: str | None, quiet: bool
) -> Iterator[Workers]:
    """Where tasks run, with one bar for all of them."""
    from tosaic.cli.sources import reload_files
    from tosaic.search.api import Workers

    with bar(words, quiet) as step:
        yield Workers(jobs, ray, journal or "", reload_files(), step)


def _split(texts: list[str] | None) -> list[str]:
    parts = [part.strip() for text in texts or () for part in text.split(",")]
    return list(dict.fromkeys(part for part in parts if part))


def _ratio(text: str) -> float:
    made = o.goal_of(text)
    if made is None or made.sqnr is None:
        raise InvalidInput(f"a goal of a sweep is sqnr=DECIBELS, not {text!r}")
    return float(made.sqnr)


def _choices(
    option: list[str] | None, memory_mode: list[str] | None, system_config: list[str] | None
) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for name, values in (("system_config", system_config), ("memory_mode", memory_mode)):
        if values:
            found[name] = tuple(_split(values))
    for text in option or ():
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidInput(f"--option is name=a,b, not '{text}'")
        found[name] = tuple(_split([value]))
    return found


def _judging(
    data: str | None, metric: str | None, transform: str | None, decode: str | None, otherwise: str
) -> tuple[Judging, Stream | None]:
    """How and on what forms are judged."""
    from tosaic.cli.data import labelled_stream
    from tosaic.cli.sources import function_of
    from tosaic.search.api import judging_of
    from tosaic.search.functions import own

    by: Any = function_of(metric) if metric and ":" in metric else metric
    before, after = (own(function_of(t), t) if t else None for t in (transform, decode))
    made = judging_of(data, by, before, after, otherwise)
    return made, labelled_stream(data) if data is not None else None


def _subjects(models: list[str], calibration: str | None) -> dict[str, Subject]:
    from tosaic.cli.commands import calibration_of, source_from, title_of
    from tosaic.search.networks import Subject

    found: dict[str, Subject] = {}
    for text in models:
        source = source_from(text, None)
        name = text.rpartition(":")[2] if ":" in Path(text).name else title_of(source, text)
        data: Any = calibration_of(source, calibration)
        found[text if name in found else name] = Subject(source.model, source.inputs, data, text)
    return found


def _forms(
    store: Store, model: str, target: str, shape: list[str] | None, calibration: str | None,
    scheme: str | None, io: list[str] | None, engine: list[str] | None, device: str | None,
) -> list[Any]:  # fmt: skip
    """The original, and what it is compiled to on each engine."""
    import tosaic
    from tosaic.cli.boundary import boundary
    from tosaic.cli.commands import calibration_of, source_from
    from tosaic.search.networks import forms_of

    source = source_from(model, shape)
    artifact = tosaic.compile(
        source.model, source.inputs, target=target, scheme=o.scheme_of(scheme),
        calibration=calibration_of(source, calibration), io=boundary(io),
    )  # fmt: skip
    return forms_of(store, source.model, source.inputs, {"": artifact}, _split(engine), device)


def _check_outputs(paths: list[Path] | None) -> None:
    from tosaic.search.writers import check_place

    for path in paths or ():
        check_place(path)


def _told(made: Any, output: list[Path] | None, as_json: bool, quiet: bool) -> None:
    for path in output or ():
        made.save(path)
    show(made, as_json, quiet)


def _show(
    db: Path, point: int | None, to: Path, output: list[Path] | None, as_json: bool, quiet: bool
) -> None:
    """What a file has; or the files of one point: what the device loads, its report, its scheme."""
    from tosaic.files.whole import write_folder
    from tosaic.search.store import Store
    from tosaic.search.tune import sweep_of
    from tosaic.search.writers import point_files

    with closing(Store(db, must_exist=True)) as store:
        made = sweep_of(store)
        if point is None:
            _told(made, output, as_json, quiet)
            return
        found = [row for row in made.rows if row.number == point]
        if not found or not found[0].files:
            raise InvalidInput(f"there is no compiled point {point}; --show lists them")
        files = point_files(store, found[0])
        write_folder(to, files)
    if not quiet:
        typer.echo(f"written to {to}: {', '.join(files)}")
