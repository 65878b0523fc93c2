"""Builds a firmware project with CMake: which tools it needs, for which processor."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tosaic.errors import InvalidInput, ToolFailed, ToolMissing
from tosaic.sim.cortexm.qemu import COMPILER, EMULATOR

_ERROR = re.compile(
    r"\berror:|CMake Error|overflowed|will not fit|undefined reference|multiple definition"
)
_BUILD = "cmake ninja-build"
_AARCH64 = "/usr/aarch64-linux-gnu"  # where Debian has its libraries for other processors


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler, the emulator that runs what it makes (empty: this machine), and packages."""

    compiler: str
    emulator: tuple[str, ...]
    packages: str

    @property
    def missing(self) -> str | None:
        """Which tools are missing here and where they come from, in a sentence."""
        tools = (self.compiler, *self.emulator[:1], "cmake")
        absent = [tool for tool in tools if shutil.which(tool) is None]
        if not absent:
            return None
        return f"{' and '.join(absent)} not found: install the packages {self.packages}"


def toolchain(system: str = "none", options: Mapping[str, str] | None = None) -> Toolchain:
    """The tools for a project of a system and options of CMake."""
    wanted = (options or {}).get("TOOLCHAIN", "gcc")
    if system != "linux":
        packages = f"gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm {_BUILD}"
        if wanted == "clang":
            return Toolchain("clang", (EMULATOR,), f"clang {packages}")
        return Toolchain(COMPILER, (EMULATOR,), packages)
    if wanted == "aarch64":
        is_own = platform.machine() in ("aarch64", "arm64")
        libraries = os.environ.get("QEMU_LD_PREFIX", _AARCH64)
        return Toolchain(
            "aarch64-linux-gnu-gcc", () if is_own else ("qemu-aarch64", "-L", libraries),
            f"gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user {_BUILD}",
        )  # fmt: skip
    if wanted not in ("gcc", "clang"):
        raise InvalidInput(f"TOOLCHAIN is gcc, clang or aarch64, not '{wanted}'")
    return Toolchain(wanted, (), f"{wanted} libc6-dev {_BUILD}")


def build(
    folder: Path, output: Path, options: Mapping[str, str] | None = None, system: str = "none"
) -> Path:
    """Build the project in a folder with CMake; the program. ToolFailed with the last lines."""
    if reason := toolchain(system, options).missing:
        raise ToolMissing(reason)
    given = {**({"EMULATED": "ON"} if system == "none" else {}), **(options or {})}
    ninja = ["-G", "Ninja"] if shutil.which("ninja") else []
    flags = [f"-D{name}={value}" for name, value in given.items()]
    said = _tool(["cmake", "-S", str(folder), "-B", str(output), *ninja, *flags])
    said += _tool(["cmake", "--build", str(output)])
    warned = [line for line in said.splitlines() if re.search(r"\bwarning:|CMake Warning", line)]
    if warned:
        raise ToolFailed(f"the project compiles with a warning: {warned[0]}")
    return output / "firmware.elf"


def _tool(command: Sequence[str], timeout: float = 600.0) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            timeout=timeout, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ToolFailed(f"{command[0]} took longer than {timeout:g} s") from None
    except OSError as problem:
        raise ToolFailed(f"{command[0]} cannot be run: {problem.strerror}") from None
    said = done.stdout + done.stderr
    if done.returncode:
        wanted = [line for line in said.splitlines() if _ERROR.search(line)]
        last = "\n".join(wanted[:6] or said.strip().splitlines()[-12:])
        raise ToolFailed(f"{command[0]} {command[1]} failed on the firmware project:\n{last}")
    return said
