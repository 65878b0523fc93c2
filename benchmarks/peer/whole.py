"""Whole flows, from a module to a file, each in a process of its own with one thread."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from pathlib import Path
from typing import Any

from peer import THREADS

ROOT = Path(__file__).resolve().parent.parent.parent


def cpu() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def measured(script: str, side: str, python: str, *arguments: str) -> Any:
    """What a script tells of one side in its last line."""
    search = os.pathsep.join([str(ROOT / "src"), str(ROOT / "examples")])
    command = [python, "-W", "ignore", script, "--side", side, *arguments]
    programs = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", "")])
    known = {**os.environ, **THREADS, "PYTHONPATH": search, "PATH": programs}
    done = subprocess.run(command, env=known, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def peer_program(
    net: Any, calibration: list[tuple[Any, ...]], quantizer: Any, partitioner: Any
) -> tuple[Any, float]:
    """The program of the other backend, by the flow of its documentation.

    Beside it the CPU seconds when everything was imported.
    """
    import torch
    from executorch.backends.arm.quantizer import get_symmetric_quantization_config
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    imported = cpu()
    quantizer.set_global(get_symmetric_quantization_config())
    with torch.no_grad():
        exported = torch.export.export(net, calibration[0], strict=False)
        prepared = prepare_pt2e(exported.module(check_guards=False), quantizer)
        for arguments in calibration:
            prepared(*arguments)
        again = torch.export.export(convert_pt2e(prepared), calibration[0], strict=False)
        edge = to_edge_transform_and_lower(again, partitioner=[partitioner])
        return edge.to_executorch(), imported
