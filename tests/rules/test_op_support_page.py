"""The page of supported operators is what the rules say now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    tool = ROOT / "tools" / "op_support.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, f"run make op-support: {done.stderr.decode()[-500:]}"
