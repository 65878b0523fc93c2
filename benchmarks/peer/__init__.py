"""The peer beside which Tosaic is measured: ExecuTorch's Arm backend, in a process of its own.

It may live in another environment: `--peer-python PATH`, or PEER_PYTHON in the environment, names
the interpreter that has executorch, torch and torchao. Otherwise this one serves, if it has them.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "program.py"
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
ABSENT = "no peer: --peer-python or PEER_PYTHON names an interpreter that has executorch 1.5"


def add_option(parser: argparse.ArgumentParser) -> None:
    here = sys.executable if importlib.util.find_spec("executorch") else None
    default = os.environ.get("PEER_PYTHON", here)
    parser.add_argument("--peer-python", metavar="PATH", default=default, help=ABSENT)


def run(python: str, *arguments: str) -> None:
    """One run of the peer's program; what it says on the way is kept for a failure."""
    command = [python, str(PROGRAM), *arguments]
    with tempfile.TemporaryFile("w+") as log:
        done = subprocess.run(
            command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | THREADS, check=False
        )
        if done.returncode:
            log.seek(0)
            raise SystemExit(f"the peer failed: {' '.join(command)}\n{log.read()[-4000:]}")
