"""Firmware: networks as an image that boots on a board, built and run here before there is one.

``project`` makes the files, ``run`` builds them, runs them under QEMU with the simulated NPU on
the same memory, and gives what the programs themselves would.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from tosaic.boundary.arguments import leaves_of
from tosaic.errors import ToolFailed
from tosaic.firmware import emulation, values
from tosaic.firmware.boards import Board, board_of, names
from tosaic.firmware.emulation import Ran
from tosaic.firmware.project import Project, project

__all__ = ["Board", "Project", "Ran", "board_of", "names", "project", "run", "usual_target"]


def usual_target(board: Board) -> str:
    """What a board is compiled for unless told otherwise: its NPU, else its core."""
    usual = {
        "ethos-u55": "ethos-u55-128",
        "ethos-u65": "ethos-u65-256",
        "ethos-u85": "ethos-u85-256",
    }
    if board.npu is None:
        return board.core
    kind = board.npu.kinds[0]
    return usual.get(kind, kind)


def run(
    made: Project, inputs: Mapping[str, Sequence[tuple[Any, ...]]], **options: Any
) -> tuple[dict[str, list[list[Any]]], Ran]:
    """Run a project over arguments of its programs: the leaves of the outputs of each run.

    ``inputs`` are lists of arguments by network, one for each inference; a state lasts from one to
    the next. ToolFailed has the image's own sentence where it fails.
    """
    known = {network.name: network for network in made.networks}
    started = {
        name: [values.start(n, leaves_of(n.artifact.program, a, {})) for a in inputs.get(name, ())]
        for name, n in known.items()
    }
    arrays = {
        name: [values.taken(known[name], each) for each in runs] for name, runs in started.items()
    }
    with tempfile.TemporaryDirectory(prefix="tosaic-project-") as folder:
        made.save(folder)
        ran = emulation.run(folder, arrays, **options)
    if ran.status:
        found = "; ".join(ran.findings[:1])
        raise ToolFailed(f"the image fails: {ran.reason}{f' ({found})' if found else ''}")
    results = {
        name: [
            values.given(known[name], before, row)
            for before, row in zip(runs, ran.outputs[name], strict=True)
        ]
        for name, runs in started.items()
    }
    return results, ran
