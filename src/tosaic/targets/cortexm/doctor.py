"""What the Cortex-M targets need on this machine: a C compiler, and an emulator to try cores."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from tosaic.errors import ToolMissing
from tosaic.lowering.target import Finding
from tosaic.sim.cortexm import qemu
from tosaic.targets.cortexm.host import compiler

_TOOLS = (
    (qemu.COMPILER, "builds for the cores"),
    (qemu.EMULATOR, "runs what is built: engine='qemu', instructions in the report"),
)


def doctor() -> Sequence[Finding]:
    """Each tool, where it is, and how to get it; C is generated without any of them."""
    try:
        found = [Finding("C compiler", "PASS", " ".join(compiler()))]
    except ToolMissing as missing:
        found = [Finding("C compiler", "WARN", missing.reason, "apt-get install gcc")]
    for tool, use in _TOOLS:
        place = shutil.which(tool)
        if place:
            found.append(Finding(tool, "PASS", place))
        else:
            way = f"apt-get install {qemu.PACKAGES}"
            found.append(Finding(tool, "WARN", f"not found; it {use}", way))
    return found
