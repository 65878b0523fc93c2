"""Nothing below ``targets`` names a device: what a device is like is data of its target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from test_layering import LAYERS, SOURCE

BELOW = [name for names in LAYERS[: LAYERS.index(("targets",))] for name in names]
DEVICE = re.compile(r"ethos|\bu(?:55|65|85)\b|vela|\bnpus?\b|cortex|acme", re.IGNORECASE)
# The simulator is of one device, as is the blob that its runtime is given, which it reads.
ABOUT_A_DEVICE = {Path("sim/ethosu"), Path("sim/cortexm")}
FILES = sorted(
    path.relative_to(SOURCE)
    for name in BELOW
    for path in ([SOURCE / f"{name}.py"] if name == "errors" else (SOURCE / name).rglob("*.py"))
    if ABOUT_A_DEVICE.isdisjoint(path.relative_to(SOURCE).parents)
)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_neutral_file_names_no_device(path: Path) -> None:
    text = (SOURCE / path).read_text(encoding="utf-8")
    assert [line.strip() for line in text.splitlines() if DEVICE.search(line)] == []


# What is above, and asks a target's own data.
ASKING = (
    "pipeline/driver.py", "pipeline/report.py", "pipeline/artifact.py", "pipeline/op_support.py",
    "pipeline/explain.py", "pipeline/calibration.py", "pipeline/phases.py", "report/page.py",
    "report/network.py", "report/arena.py", "report/advice.py", "cli/about.py", "cli/trials.py",
    "targets/catalog.py", "targets/family.py", "targets/tosa/__init__.py",
)  # fmt: skip


@pytest.mark.parametrize("name", ASKING)
def test_what_a_target_says_of_itself_is_asked_for(name: str) -> None:
    text = (SOURCE / name).read_text(encoding="utf-8")
    found = [line.strip() for line in text.splitlines() if DEVICE.search(line)]
    assert [line for line in found if '"npu"' not in line and '"ethosu"' not in line] == []


@pytest.mark.parametrize("line", ["# fast on an NPU", "AXES = 3  # of U55", "import vela"])
def test_the_names_of_devices_are_found(line: str) -> None:
    assert DEVICE.search(line)


def test_input_is_no_device() -> None:
    assert not DEVICE.search("InvalidInput of an input: unpushed values, relevant")
