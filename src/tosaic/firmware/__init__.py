"""Firmware: networks as an image that boots on a board, built and run here before there is one.

``project`` makes the files, ``run`` builds them, runs them under QEMU with the simulated NPU on
the same memory, and gives what the programs themselves would.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from torch import fx

from tosaic.boundary.arguments import leaves_of
from tosaic.errors import InvalidInput, ToolFailed
from tosaic.firmware import emulation, values
from tosaic.firmware.boards import Board, board_of, names
from tosaic.firmware.emulation import Ran
from tosaic.firmware.project import Project, project
from tosaic.pipeline.artifact import Artifact

__all__ = [
    "Board", "Project", "Ran", "board_for", "board_of", "names", "project", "run", "run_artifact",
    "usual_target",
]  # fmt: skip


def usual_target(board: Board, given: str | None = None) -> str:
    """What a board is compiled for: what was given, else its NPU, with its core beside an NPU.

    So what the NPU refuses becomes C on the core.
    """
    usual = {
        "ethos-u55": "ethos-u55-128",
        "ethos-u65": "ethos-u65-256",
        "ethos-u85": "ethos-u85-256",
    }
    if given is None:
        if board.npu is None or board.is_linux:
            return board.core
        given = usual.get(board.npu.kinds[0], board.npu.kinds[0])
    return f"{given}+{board.core}" if given.startswith("ethos-") and "+" not in given else given


def board_for(target: str) -> Board:
    """The board that comes with Tosaic and has a target's NPU and core."""
    first, _, host = target.partition("+")
    for board in map(board_of, names()):
        has_npu = board.npu is not None and first.startswith(board.npu.kinds)
        if board.emulator is not None and (
            first == board.core or (has_npu and host in ("", board.core))
        ):
            return board
    raise InvalidInput(f"no board that comes with Tosaic has {target}: give one as a .toml file")


def run_artifact(artifact: Artifact, leaves: Sequence[Any]) -> dict[fx.Node, Any]:
    """One run of an artifact as the image of a board that has its target: all its values."""
    if artifact.program.changes:
        raise InvalidInput(
            "the program keeps a state, and each run of engine='firmware' boots anew: give all "
            "inputs at once to tosaic.firmware.run"
        )
    made = project(artifact, board_for(artifact.target))
    found, _ = _run(made, {"net": [leaves]}, {})
    return found["net"][0]


def run(
    made: Project, inputs: Mapping[str, Sequence[tuple[Any, ...]]], **options: Any
) -> tuple[dict[str, list[list[Any]]], Ran]:
    """Run a project over arguments of its programs: the leaves of the outputs of each run.

    ``inputs`` are lists of arguments by network, one for each inference; a state lasts from one to
    the next. ToolFailed has the image's own sentence where it fails.
    """
    known = {network.name: network for network in made.networks}
    for name in inputs:
        if name not in known:
            raise InvalidInput(f"the image has no network '{name}'; it has {', '.join(known)}")
    leaves = {
        name: [leaves_of(known[name].artifact.program, each, {}) for each in runs]
        for name, runs in inputs.items()
    }
    found, ran = _run(made, leaves, options)
    return {
        name: [values.outputs(known[name], each) for each in runs] for name, runs in found.items()
    }, ran


def _run(
    made: Project, inputs: Mapping[str, Sequence[Sequence[Any]]], options: Mapping[str, Any]
) -> tuple[dict[str, list[dict[fx.Node, Any]]], Ran]:
    networks = [network for network in made.networks if network.name in inputs]
    begun = {n.name: [values.start(n, each) for each in inputs[n.name]] for n in networks}
    arrays = {n.name: [values.taken(n, each) for each in begun[n.name]] for n in networks}
    with tempfile.TemporaryDirectory(prefix="tosaic-project-") as folder:
        made.save(folder)
        ran = emulation.run(folder, arrays, **options)
    if ran.status:
        found = "; ".join(ran.findings[:1])
        raise ToolFailed(f"the image fails: {ran.reason}{f' ({found})' if found else ''}")
    return {
        n.name: [
            values.finish(n, *pair) for pair in zip(begun[n.name], ran.outputs[n.name], strict=True)
        ]
        for n in networks
    }, ran
