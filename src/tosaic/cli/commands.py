"""The commands. Each imports what it needs when it runs, so that help is quick."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tosaic.cli import boundary
from tosaic.errors import InvalidInput

if TYPE_CHECKING:
    from tosaic.targets.report import Printed

_MODEL = "file.py[:name] (a module, or a function that gives module and inputs), or file.pt2"
Model = Annotated[str, typer.Argument(help=_MODEL, show_default=False)]
Target = Annotated[str, typer.Option("--target", "-t", help="ethos-u55-128, TOSA-1.0+INT, …")]
Shape = Annotated[list[str] | None, typer.Option(help="of an input, as 1,3,224,224")]
Calibration = Annotated[str | None, typer.Option(help=".npy, .npz, .pt, a folder, file.py:name")]
Scheme = Annotated[str | None, typer.Option(help="int8 (default) or a16w8")]
Io = Annotated[list[str] | None, typer.Option("--io", help=boundary.HELP)]
Json = Annotated[bool, typer.Option("--json", help="print data for machines")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print nothing but errors")]


def compile(
    model: Model,
    target: Target = "TOSA-1.0+INT",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=".tosa, .mlir, .pte")
    ] = None,
    shape: Shape = None,
    calibration: Calibration = None,
    scheme: Scheme = None,
    io: Io = None,
    strict: Annotated[bool, typer.Option(help="exit with 1 if a call stays in PyTorch")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compile a model, and write the file that a device runs."""
    import tosaic
    from tosaic.cli.sources import data, model_and_inputs

    if output is not None and not output.parent.is_dir():
        raise InvalidInput(f"there is no folder '{output.parent}' to write to")
    module, inputs = model_and_inputs(model, shape or [])
    given = data(calibration) if calibration else None
    artifact = tosaic.compile(
        module, inputs, target=target, scheme=scheme, calibration=given,
        io=boundary.boundary(io or []),
    )  # fmt: skip
    if output is not None:
        artifact.save(output)
    _show(artifact.report, as_json, quiet)
    if strict and artifact.report.refused:
        raise typer.Exit(1)


def explain(
    model: Model, target: Target = "TOSA-1.0+INT", shape: Shape = None, scheme: Scheme = None,
    strict: Annotated[bool, typer.Option(help="exit with 1 if a call stays in PyTorch")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Say what of a model would be compiled, and why not all of it."""
    import tosaic
    from tosaic.cli.sources import model_and_inputs

    module, inputs = model_and_inputs(model, shape or [])
    told = tosaic.explain(module, inputs, target=target, scheme=scheme)
    _show(told, as_json)
    if strict and told.refused:
        raise typer.Exit(1)


def compare(
    model: Model, target: Target = "TOSA-1.0+INT", shape: Shape = None,
    calibration: Calibration = None, scheme: Scheme = None,
    inputs: Annotated[str | None, typer.Option(help="data to compare on")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compile a model and compare it with the original, layer by layer."""
    import tosaic
    from tosaic.cli.sources import data, model_and_inputs

    module, example = model_and_inputs(model, shape or [])
    given = data(calibration) if calibration else None
    artifact = tosaic.compile(module, example, target=target, scheme=scheme, calibration=given)
    sets = list(data(inputs)) if inputs else [example]
    _show(tosaic.compare(module, artifact, sets), as_json)


def run(
    file: Annotated[Path, typer.Argument(help=".tosa or .pte", show_default=False)],
    inputs: Annotated[list[str] | None, typer.Option("--input", "-i", help="one .npy each")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="a folder for results")
    ] = None,
    expect: Annotated[list[str] | None, typer.Option(help="one .npy each, to compare")] = None,
) -> None:
    """Run a compiled file on this machine, exactly."""
    import numpy as np

    import tosaic
    from tosaic.cli.sources import data

    model = tosaic.load(file)
    given = [array for name in inputs or [] for each in data(name) for array in each]
    results = [np.asarray(r) for r in model.run(*given)]
    for number, result in enumerate(results):
        typer.echo(f"output {number}: {result.dtype} {'×'.join(map(str, result.shape))}")
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for number, result in enumerate(results):
            np.save(output / f"output_{number}.npy", result)
    wanted = [np.asarray(a) for name in expect or [] for each in data(name) for a in each]
    for number, (result, right) in enumerate(zip(results, wanted)):
        wrong = result.shape != right.shape or not np.array_equal(result, right)
        typer.echo(f"output {number}: {'differs' if wrong else 'as expected'}")
        if wrong:
            raise typer.Exit(1)


def ops(as_json: Json = False) -> None:
    """List the PyTorch operators that lower, and to what."""
    from tosaic.targets.report import grid
    from tosaic.targets.support import COLUMNS, support

    rows = support()
    if as_json:
        names = [column.title for column in COLUMNS]
        typer.echo(
            json.dumps({r.op: dict(zip(names, map(str, r.answers))) for r in rows}, indent=1)
        )
        return
    table = grid("operator", *(column.title for column in COLUMNS))
    for row in rows:
        table.add_row(row.op, *map(str, row.answers))
    _console().print(table)


def dump(file: Annotated[Path, typer.Argument(help=".tosa", show_default=False)]) -> None:
    """Print a compiled graph as text."""
    from tosaic.files.flatbuffer import read
    from tosaic.files.text import print_graph

    sys.stdout.write(print_graph(read(file)))


def targets() -> None:
    """List what can be compiled for."""
    from tosaic.targets.vela import ACCELERATORS

    typer.echo("TOSA-1.0+INT, TOSA-1.0+FP, TOSA-1.1+INT+FP+int16 and the like: plain TOSA")
    for name in ACCELERATORS:
        typer.echo(name)


def doctor() -> None:
    """Say what is installed, and how to get the rest."""
    from importlib import metadata

    from rich.markup import escape

    from tosaic.targets.report import grid

    table = grid("package", "version", "for")
    for name, use, get in _PACKAGES:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = f"absent: pip install {get}"
        table.add_row(name, escape(version), use)
    _console().print(table)


_PACKAGES = (
    ("torch", "models", '"torch==2.13.*"'),
    ("torchao", "quantization", '"torchao==0.18.*"'),
    ("tosa-tools", "the reference model", "tosa-tools"),
    ("ethos-u-vela", "Ethos-U targets", "ethos-u-vela"),
    ("executorch", ".pte files", '"tosaic[executorch]"'),
)

ALL = (compile, run, explain, compare, ops, dump, targets, doctor)


def _console() -> Any:
    from rich.console import Console

    return Console()


def _show(told: Printed, as_json: bool, quiet: bool = False) -> None:
    if as_json:
        typer.echo(json.dumps(told.data(), indent=1))
    elif not quiet:
        _console().print(told)
