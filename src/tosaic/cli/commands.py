"""The commands that take a model. Each imports what it needs when it runs, so help is quick."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tosaic.cli import boundary
from tosaic.cli import options as o
from tosaic.cli.problems import as_data, say, told
from tosaic.cli.show import busy, show, show_data
from tosaic.errors import InvalidInput, TosaicError, Unsupported
from tosaic.runtime.phases import printing

if TYPE_CHECKING:
    from tosaic.cli.sources import Source
    from tosaic.pipeline.artifact import Artifact

_COMPARED = 4  # sets of calibration data that a report is made with


def compile(
    context: typer.Context,
    model: o.Model,
    target: o.Target = "TOSA-1.0+INT",
    output: o.Output = None,
    shape: o.Shape = None,
    calibration: o.Calibration = None,
    scheme: o.Scheme = None,
    goal: o.Goal = None,
    budget: o.Budget = None,
    io: o.Io = None,
    report: o.Report = None,
    vela_ini: o.VelaIni = None,
    system_config: o.SystemConfig = None,
    memory_mode: o.MemoryMode = None,
    max_scratch: o.MaxScratch = None,
    max_flash: o.MaxFlash = None,
    option: o.Option = None,
    print_after: o.PrintAfter = None,
    timing: o.Timing = False,
    strict: o.Strict = False,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Compile a model, and write the file that a device runs."""
    import tosaic

    if _lists_phases(print_after):
        return
    if report is not None and report.suffix != ".html":
        raise InvalidInput(f"a report is an .html file, not '{report}'")
    if (goal is not None or budget is not None) and scheme != "auto":
        raise InvalidInput("--goal and --budget are for --scheme auto")
    for path in filter(None, (output, report)):
        _check_output(path, target)
    _warn_of_plain_tosa(context, output, target)
    given = o.target_options(option, vela_ini, system_config, memory_mode, max_scratch, max_flash)
    with busy("loading the model", quiet), printing(print_after):
        source, kept = source_from(model, shape), _Kept(_COMPARED)
        chosen = calibration_of(source, calibration)
        artifact = tosaic.compile(
            source.model, source.inputs, target=target, scheme=o.scheme_of(scheme),
            calibration=chosen if chosen is None or isinstance(chosen, str) else kept.of(chosen),
            io=boundary.boundary(io), accuracy=o.goal_of(goal), budget_s=budget, **given,
        )  # fmt: skip
        problem = None
        if output is not None:
            tests = kept.items or [source.inputs]
            problem = _saved(artifact, output, {"test_inputs": tests})
        if report is not None:
            artifact.save(
                report, model=source.model, inputs=kept.items or [source.inputs],
                title=title_of(source, model),
            )  # fmt: skip
    if as_json:
        show_data(artifact.report.data() | ({"error": as_data(problem)} if problem else {}))
    else:
        show(artifact.report, False, quiet)
    if timing and not as_json:
        show(artifact.timing, False, False)
    sizes = {str(path): _bytes_of(path) for path in (output, report)
             if path is not None and not (problem and path is output)}  # fmt: skip
    if sizes and not as_json and not quiet:
        typer.echo("written: " + ", ".join(f"{p} ({size:,} bytes)" for p, size in sizes.items()))
    if problem is not None:
        sentence, code = told(problem)
        say("error:", "bold red", sentence)
        raise typer.Exit(code)
    if strict and artifact.report.refused:
        raise typer.Exit(1)


def _bytes_of(path: Path) -> int:
    """The size of a file, or of all files of a folder."""
    files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
    return sum(each.stat().st_size for each in files)


def _saved(artifact: Artifact, path: Path, tests: dict[str, Any]) -> TosaicError | None:
    """Write the result; what a file cannot hold is told when all else has been."""
    try:
        artifact.save(path, **(tests if path.suffix == ".bpte" else {}))
    except (InvalidInput, Unsupported) as problem:
        return problem
    return None


def explain(
    model: o.Model, target: o.Target = "TOSA-1.0+INT", shape: o.Shape = None,
    scheme: o.Scheme = None, strict: o.Strict = False, as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:  # fmt: skip
    """List the calls of a model that would be compiled, and why others would not."""
    import tosaic

    with busy("loading the model", quiet):
        source = source_from(model, shape)
        told = tosaic.explain(
            source.model, source.inputs, target=target, scheme=o.scheme_of(scheme)
        )
    show(told, as_json, quiet)
    if strict and told.refused:
        raise typer.Exit(1)


def compare(
    model: o.Model, target: o.Target = "TOSA-1.0+INT", shape: o.Shape = None,
    calibration: o.Calibration = None, scheme: o.Scheme = None, io: o.Io = None,
    inputs: Annotated[str | None, typer.Option(help="data to compare on")] = None,
    as_json: o.Json = False, quiet: o.Quiet = False,
) -> None:  # fmt: skip
    """Compile a model and compare it with the original, layer by layer."""
    import tosaic
    from tosaic.cli.data import data

    with busy("loading the model", quiet):
        source = source_from(model, shape)
        sets = list(data(inputs, source.model)) if inputs else [source.inputs]
        artifact = tosaic.compile(
            source.model, source.inputs, target=target, scheme=o.scheme_of(scheme),
            calibration=calibration_of(source, calibration), io=boundary.boundary(io),
        )  # fmt: skip
        told = tosaic.compare(source.model, artifact, sets)
    show(told, as_json, quiet)


def calibrate(
    model: o.Model,
    data: o.Data = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="net.ranges.json; else its name")
    ] = None,
    shape: o.Shape = None,
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="one more target that it shall be for")
    ] = None,
    quiet: o.Quiet = False,
) -> None:
    """Run a model on calibration data, and write the statistics, for any target and scheme.

    `tosaic compile --calibration net.ranges.json` compiles from the file without the data, and
    gives the same bytes on every processor. The file is text, a line a tensor, to keep in Git.
    """
    import tosaic

    with busy("loading the model", quiet):
        source = source_from(model, shape)
        path = output or Path(f"{title_of(source, model)}.ranges.json")
        if path.suffix != ".json":
            raise InvalidInput(f"ranges are a .json file, not '{path}'")
        _check_output(path)
        given = calibration_of(source, data)
        if isinstance(given, str):
            raise InvalidInput(f"'{given}' has ranges already: give the data to calibrate with")
        made = tosaic.calibrate(source.model, source.inputs, calibration=given, target=target)
        made.save(path)
    if not quiet:
        seen = f"{made.count} input{'s' * (made.count != 1)}"
        typer.echo(f"written: {path}: {len(made.tensors)} tensors over {seen}")


ALL = (compile, calibrate, explain, compare)


def _check_output(path: Path, target: str = "TOSA-1.0+INT") -> None:
    """What can be known before a long run about writing its result."""
    from tosaic.pipeline import formats

    known = (".tosa", ".mlir", *formats.WRITERS)
    if path.suffix not in known:
        from tosaic.targets.catalog import elsewhere, target_of

        known = (*known, *target_of(target).formats)
        if path.suffix not in known:
            raise InvalidInput(formats.refusal(path, known) + elsewhere(path.suffix))
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder '{path.parent}' to write to")
    if path.is_dir():
        raise InvalidInput(f"'{path}' is a folder")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidInput(f"cannot write '{path}': there is no permission to")
    if path.suffix == ".bpte":  # a .pte needs it for what stays on the CPU alone
        from tosaic.executorch.api import require_executorch

        require_executorch()


def _warn_of_plain_tosa(context: typer.Context, output: Path | None, target: str) -> None:
    """A .pte of plain TOSA is for the reference model, which nobody means who names no target."""
    source = context.get_parameter_source("target")
    is_told = source is not None and source.name != "DEFAULT"
    if output is not None and output.suffix in (".pte", ".bpte") and not is_told:
        warnings.warn(
            f"no --target: '{output}' will hold {target}, which no board loads; name the device, "
            "as --target ethos-u55-128 (`tosaic targets` lists them)",
            stacklevel=1,
        )


def _lists_phases(print_after: str | None) -> bool:
    """Whether the phases are asked for instead of a compilation; then they are listed."""
    if print_after != "list":
        return False
    from tosaic.pipeline.phases import PHASES

    typer.echo("\n".join(PHASES))
    return True


def title_of(source: Source, name: str) -> str:
    """What a report is called: the model's class, or its file where the class says nothing."""
    kind = type(source.model).__name__
    vague = kind in ("Sequential", "GraphModule", "ExportedProgram")
    return Path(name.partition(":")[0]).stem if vague else kind


def source_from(model: str, shape: list[str] | None) -> Source:
    from tosaic.cli.sources import source_of

    return source_of(model, shape or [])


def calibration_of(source: Source, given: str | None) -> Iterable[Any] | str | None:
    """The data that was named, or the file of ranges; else the model's own data."""
    from tosaic.cli.data import data

    if given is not None and Path(given).suffix == ".json":
        return given
    return data(given, source.model) if given else source.calibration


class _Kept:
    """The first items of an iterable, kept while it is gone through."""

    def __init__(self, most: int) -> None:
        self.items: list[Any] = []
        self.most = most

    def of(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            if len(self.items) < self.most:
                self.items.append(item)
            yield item
