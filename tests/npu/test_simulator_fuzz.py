"""Damaged streams, weights and blobs are refused or run: no crash, no hang, no other error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_COUNT = 2000
_TESTS = Path(__file__).resolve().parent.parent


def test_damaged_streams_are_refused_or_run(tmp_path: Path) -> None:
    progress = tmp_path / "number"
    command = [sys.executable, "-m", "npu.fuzz", "--count", str(_COUNT), "--progress", progress]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(_TESTS), *sys.path])},
    )  # fmt: skip
    at = progress.read_text() if progress.exists() else "the start"
    assert done.returncode in (0, 1), f"ended at damaged stream {at}: {done.stderr[-3000:]}"
    assert done.returncode == 0, done.stdout[-6000:]
    last = done.stdout.splitlines()[-1]
    for outcome in ("InvalidInput", "Unsupported", "result"):
        assert outcome in last, f"the fuzz never saw {outcome}: {last}"
