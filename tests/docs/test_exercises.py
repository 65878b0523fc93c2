"""The patches of CONTRIBUTING apply to the source, and do what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATCHES = re.findall(
    r"```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.S
)

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git applies the patches")

REFUSED = """
from tosaic.ir.build import Builder
from tosaic.errors import Unsupported
from tosaic.spec import dtypes as d
from tosaic.targets.catalog import target_of
device = target_of("ethos-u55-128")
b = Builder(device.env, None, device.constraints)
for name in ("ABS", "CLZ"):
    try:
        getattr(b, name)(b.input(d.I32, (2, 3), name))
        print(name, "taken")
    except Unsupported as refusal:
        print(refusal.reason)
"""

PANEL = """
import torch, tosaic
from torch import nn
art = tosaic.compile(nn.ReLU(), (torch.randn(1, 4),), target="TOSA-1.0+FP")
art.save("report.html")
"""


def patched(folder: Path, patch: str) -> dict[str, str]:
    """The environment of a copy of the product with a patch applied."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        ["git", "apply", "--unidiff-zero", "-"], cwd=folder, input=patch, text=True, check=True,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)},
    )  # fmt: skip
    return {**os.environ, "PYTHONPATH": str(folder / "src")}


def printed(folder: Path, known: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=known, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def patch_of(path: str) -> str:
    (found,) = [patch for patch in PATCHES if f"+++ b/{path}" in patch]
    return str(found)


def test_a_row_is_a_constraint(tmp_path: Path) -> None:
    known = patched(tmp_path, patch_of("src/tosaic/targets/ethosu/constraints.py"))
    told = printed(tmp_path, known, "-c", REFUSED).splitlines()
    assert told == ["ABS taken", "CLZ: this NPU counts no leading zeros"]


def test_a_parameter_is_a_flag(tmp_path: Path) -> None:
    known = patched(tmp_path, patch_of("src/tosaic/cli/about.py"))
    names = printed(tmp_path, known, "-m", "tosaic", "targets", "--names").split()
    assert {"ethos-u55-128", "vgf", "cortex-m4"} <= set(names)
    assert "--names" in printed(tmp_path, known, "-m", "tosaic", "targets", "--help")


def test_a_section_and_a_line_are_a_panel(tmp_path: Path) -> None:
    known = patched(tmp_path, patch_of("src/tosaic/report/assets/page.html"))
    printed(tmp_path, known, "-c", PANEL)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="toolsbody"' in page
    assert 'byId("toolsbody")' in page


def test_the_pass_that_is_shown_is_the_file() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (shown,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.S) if "_SILU" in code]
    file = (ROOT / "src/tosaic/passes/fuse_activation.py").read_text(encoding="utf-8")
    without = re.sub(r'    """.*?"""\n', "", file, flags=re.S)
    assert without.endswith("\n\n" + shown)
