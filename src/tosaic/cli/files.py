"""The commands that take a compiled file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tosaic.cli import options as o
from tosaic.cli.firmware import run_folder
from tosaic.cli.show import busy, show_data
from tosaic.errors import InvalidInput
from tosaic.executorch.api import SUFFIXES

_ENGINE = "tosa (the interpreter), cuda (a GPU), vulkan (.vgf, .pte), or a device for a .tosa"
_INPUT = "a .npy each, or one .npz for all, by name or in order"
File = Annotated[
    Path,
    typer.Argument(
        help=".tosa, .pte, .bpte, a target's own, or a firmware project", show_default=False
    ),
]


Weights = Annotated[
    list[Path] | None, typer.Option("--weights", help="a .ptd with weights of a .pte")
]


def run(
    file: File,
    inputs: Annotated[list[str] | None, typer.Option("--input", "-i", help=_INPUT)] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="a folder for results")
    ] = None,
    expect: Annotated[
        list[str] | None, typer.Option(help="a .npy each, or one .npz, to compare with")
    ] = None,
    tolerance: Annotated[float, typer.Option(min=0.0, help="how far a result may be off")] = 0.0,
    engine: Annotated[str | None, typer.Option(help=_ENGINE)] = None,
    weights: Weights = None,
    build: o.Build = None,
    timeout: o.Timeout = 600.0,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Run a compiled file, or a firmware project, on this machine, exactly."""
    said = ""
    with busy("building and running the image" if file.is_dir() else "loading the file", quiet):
        if file.is_dir():
            results, said = run_folder(file, _arrays(inputs), build, timeout)
        else:
            results = _results(file, inputs, engine, weights or [])
        wanted = _arrays(expect)
    if expect and len(wanted) != len(results):
        raise InvalidInput(f"there are {len(results)} outputs, and {len(wanted)} are expected")
    names = [f"output_{number}.npy" for number in range(len(results))]
    if output is not None:
        _save(output, dict(zip(names, results)))
    off = [_difference(*pair) for pair in zip(results, wanted)]
    told = [
        {"output": n, "dtype": str(r.dtype), "shape": list(r.shape)} for n, r in enumerate(results)
    ]
    for row, distance in zip(told, off):
        row["as_expected"] = distance <= tolerance
        row["largest_difference"] = distance if distance != float("inf") else None
    if as_json:
        show_data({"outputs": told, **({"console": said.splitlines()} if said else {})})
    elif not quiet:
        if said:
            typer.echo(said)
        for row in told:
            typer.echo(_line(row))
    if any(distance > tolerance for distance in off):
        raise typer.Exit(1)


def _line(row: dict[str, Any]) -> str:
    line = f"output {row['output']}: {row['dtype']} {'×'.join(map(str, row['shape'])) or 'scalar'}"
    if "as_expected" not in row:
        return line
    if row["as_expected"]:
        return line + ", as expected"
    most = row["largest_difference"]
    return line + (", differs in shape" if most is None else f", differs by up to {most:g}")


def _arrays(names: list[str] | None, model: Any = None) -> list[Any]:
    from tosaic.cli.data import data

    return [array for name in names or [] for each in data(name, model) for array in each]


def _results(
    file: Path, inputs: list[str] | None, engine: str | None, weights: list[Path]
) -> list[Any]:
    """What a file gives, leaf by leaf, by the engine that was asked for."""
    import numpy as np

    import tosaic
    from tosaic.front import torchapi

    if not file.is_file():
        raise InvalidInput(f"there is no file '{file}'")
    place: dict[str, Any] = {}
    if engine and (file.suffix in SUFFIXES or engine in _own_engines(file)):
        place = {"engine": engine}
    elif engine and engine.startswith("cuda"):
        place = {"device": engine}
    elif engine not in (None, "tosa"):
        return _on_device(file, inputs, str(engine))
    loaded = tosaic.load(file, external_weights=weights)
    flat, _ = torchapi.flatten(loaded.run(*_arrays(inputs, loaded), **place))
    return [np.asarray(result) for result in flat]


def _own_engines(file: Path) -> tuple[str, ...]:
    """What runs a file of a target's own as it is."""
    from tosaic.targets.catalog import formats

    own = formats().get(file.suffix)
    return () if own is None else own.engines


def _on_device(file: Path, inputs: list[str] | None, name: str) -> list[Any]:
    """Compile a ``.tosa`` for a device, and run what it would get."""
    import numpy as np

    import tosaic
    from tosaic.interp.model import Model
    from tosaic.targets.catalog import target_of

    target, model = target_of(name, {"check": False}), tosaic.load(file)
    if target.emit is None or not target.engines:
        raise InvalidInput(f"{target.name} has no engine of its own; --engine tosa interprets TOSA")
    assert isinstance(model, Model)
    made, given = target.emit(model.graph, None, False), _arrays(inputs, model)
    found = next(iter(target.engines.values()))(made).run(*(np.asarray(each) for each in given))
    ports = zip(found, model.outputs, strict=True)
    return [array.reshape(port.shape).astype(port.dtype.array) for array, port in ports]


def _save(folder: Path, arrays: dict[str, Any]) -> None:
    """All results, or none."""
    from io import BytesIO

    import numpy as np

    from tosaic.files.whole import write_folder

    files = {}
    for name, array in arrays.items():
        buffer = BytesIO()
        np.save(buffer, array)
        files[name] = buffer.getvalue()
    write_folder(folder, files)


def _difference(result: Any, right: Any) -> float:
    """The largest distance between two arrays; infinite if their shapes differ."""
    import numpy as np

    right = np.asarray(right)
    if result.shape != right.shape:
        return float("inf")
    if not result.size or np.array_equal(result, right):
        return 0.0
    distance = float(np.abs(result.astype(np.float64) - right.astype(np.float64)).max())
    return distance if distance == distance else float("inf")


def dump(
    file: File,
    npu: Annotated[bool, typer.Option("--npu", help="disassemble the streams of NPUs")] = False,
    tosa: Annotated[bool, typer.Option("--tosa", help="print TOSA delegates as text")] = False,
    weights: Weights = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="draw it: .html is a report, .json Model Explorer's"),
    ] = None,
) -> None:
    """Print the contents of a compiled file: TOSA as text, delegates, NPU commands."""
    from tosaic.cli.contents import draw, lines

    if not file.is_file():
        raise InvalidInput(f"there is no file '{file}'")
    if output is not None:
        draw(file, output, weights or [])
        return
    for line in lines(file, npu, tosa, weights or []):
        sys.stdout.write(line + "\n")


def check(
    file: Annotated[Path, typer.Argument(help="a .tosa", show_default=False)],
    target: o.Target = "ethos-u55-128",
    inputs: Annotated[list[str] | None, typer.Option("--input", "-i", help=_INPUT)] = None,
    reduce: Annotated[
        bool, typer.Option("--reduce", help="write the fewest operators that are wrong beside FILE")
    ] = False,
    quiet: o.Quiet = False,
) -> None:
    """Compile a .tosa file for an Ethos-U, and compare the stream with the graph."""
    import tosaic

    with busy("compiling", quiet):
        found = tosaic.check(file, target, _arrays(inputs) or None, reduce=reduce)
    failure, words = found.failure, [*found.told]
    if found.reduced is not None:
        tosa, text = found.save(file.with_suffix(".reduced"))
        names = ", ".join(op.name for op in found.reduced.graph.ops)
        words += [
            f"reduced to {len(found.reduced.graph.ops)} of {found.operators} operators: {names}",
            f"written: {tosa}, {text}",
            f"to repeat it: tosaic check {tosa} --target {target}",
        ]
    if not quiet:
        typer.echo(f"{file} on {target}: {failure.reason if failure else 'right'}")
        for sentence in words:
            typer.echo(f"  {sentence}")
    if failure is not None:
        raise typer.Exit(1)


ALL = (run, dump, check)
