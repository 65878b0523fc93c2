"""``tosaic firmware``: from models to an image for a board, and a run of it on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from tosaic.cli import options as o
from tosaic.cli.show import busy, show_data
from tosaic.errors import InvalidInput, ToolFailed

_MODELS = "as for compile, each a network of the image; NAME=MODEL names it"
_BUILD = "--build is an option of CMake as NAME=VALUE"
_RUNS = 3  # inferences of --run: the example, then calibration data


def firmware(
    models: Annotated[list[str], typer.Argument(help=_MODELS, show_default=False, metavar="MODEL")],
    output: Annotated[Path, typer.Option("--output", "-o", help="a folder for the project")],
    board: Annotated[
        str, typer.Option("--board", "-b", help="a board's name, or a .toml of your own")
    ] = "corstone-300",
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="the board's NPU or core, as ethos-u55-128")
    ] = None,
    calibration: o.Calibration = None,
    scheme: o.Scheme = None,
    shape: o.Shape = None,
    io: o.Io = None,
    place: Annotated[
        list[str] | None, typer.Option(help="a part's memory, as arena=ddr or weights=flash")
    ] = None,
    option: o.Option = None,
    run: Annotated[bool, typer.Option("--run", help="build it, and run it under QEMU")] = False,
    build: o.Build = None,
    timeout: o.Timeout = 600.0,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Make a CMake project of models for a board: start-up, linker script, driver, networks."""
    import tosaic
    from tosaic import firmware as fw
    from tosaic.cli.boundary import boundary
    from tosaic.cli.commands import calibration_of, source_from

    chosen, sources = fw.board_of(board), dict[str, Any]()
    with busy("loading the models", quiet):
        for text in models:
            name, model = _named(text, sources)
            sources[name] = source_from(model, shape)
    wanted = fw.usual_target(chosen, target)
    artifacts, inputs = {}, dict[str, list[Any]]()
    given = o.target_options(option, None, None, None, None, None)
    for name, source in sources.items():
        with busy(f"compiling {name}", quiet):
            data = calibration_of(source, calibration)
            artifacts[name] = tosaic.compile(
                source.model, source.inputs, target=wanted, scheme=scheme, calibration=data,
                io=boundary(io), **given,
            )  # fmt: skip
        more = data if isinstance(data, list) else []
        inputs[name] = [source.inputs, *more][:_RUNS]
    made = fw.project(artifacts, chosen, _pairs(place, "--place is PART=MEMORY"), inputs)
    made.save(output)
    told: dict[str, Any] = {"board": chosen.name, "target": wanted, "files": len(made.files)}
    if run:
        with busy("building and running under QEMU", quiet):
            options = _pairs(build, _BUILD)
            results, ran = fw.run(made, inputs, options=options, timeout=timeout)
        told |= {"runs": {k: dict(v) for k, v in ran.figures.items()}}
        told["equal"] = _equal(artifacts, inputs, results)
    if as_json:
        show_data(told)
    elif not quiet:
        typer.echo(f"written: {output} ({len(made.files)} files) for {chosen.name}, {wanted}")
        if run:
            typer.echo(ran.console.strip())
            typer.echo(
                "outputs: " + ("equal to art.run in every bit" if told["equal"] else "DIFFERENT")
            )
    if run and not told["equal"]:
        raise ToolFailed("the image gives other results than art.run: report the network")


def _named(text: str, known: dict[str, Any]) -> tuple[str, str]:
    """The name of a network and its model: as it was given, or by the model's own name."""
    from tosaic.firmware.project import check_name

    name, equals, model = text.partition("=")
    if equals and not Path(text.rpartition(":")[0] or text).exists():
        check_name(name)
        found = name
    else:
        model = text
        stem = text.rpartition(":")[2] if ":" in text else Path(text).stem
        found = re.sub(r"\W", "_", stem).lower().strip("_") or "net"
        found = found if found[0].isalpha() else f"net_{found}"
    if found in known:
        raise InvalidInput(f"two networks are called '{found}': give NAME=MODEL")
    return found, model


def _pairs(given: list[str] | None, what: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in given or []]
    for name, equals, value in pairs:
        if not equals:
            raise InvalidInput(f"{what}, not '{name}{value}'")
    return {name: value for name, _, value in pairs}


def run_folder(
    folder: Path, given: list[Any], build: list[str] | None, timeout: float
) -> tuple[list[Any], str]:
    """Build and run a project: the outputs of its networks, and what the image and the NPU told.

    ``given`` are the inputs of one inference, network by network; without them those that the
    project keeps are taken.
    """
    import numpy as np

    from tosaic.firmware import emulation

    manifest, inputs = emulation.read_manifest(folder), None
    if given:
        wanted = [len(network["inputs"]) for network in manifest["networks"]]
        if len(given) != sum(wanted):
            raise InvalidInput(f"the image has {sum(wanted)} inputs, and {len(given)} are given")
        rest = iter(np.asarray(each) for each in given)
        inputs = {n["name"]: [[next(rest) for _ in n["inputs"]]] for n in manifest["networks"]}
    ran = emulation.run(folder, inputs, options=_pairs(build, _BUILD), timeout=timeout)
    if ran.status:
        raise ToolFailed("; ".join([f"the image fails: {ran.reason}", *ran.findings[:1]]))
    told = [ran.console.strip(), *(f"finding: {each}" for each in ran.findings)]
    return [o for runs in ran.outputs.values() for each in runs for o in each], "\n".join(told)


def _equal(artifacts: dict[str, Any], inputs: dict[str, list[Any]], results: Any) -> bool:
    import torch

    from tosaic.front import torchapi

    for name, artifact in artifacts.items():
        artifact.reset()
        for arguments, found in zip(inputs[name], results[name], strict=True):
            wanted, _ = torchapi.flatten(artifact.run(*arguments, raw=True))
            if len(wanted) != len(found) or not all(map(torch.equal, wanted, found)):
                return False
    return True


ALL = (firmware,)
