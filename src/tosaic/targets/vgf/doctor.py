"""Looks for what VGF needs on this machine: the converter, the runner, layers, a driver."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from importlib import metadata

import numpy as np

from tosaic.errors import ToolFailed, TosaicError
from tosaic.files.flatbuffer import write
from tosaic.ir.build import Builder
from tosaic.lowering.target import Finding
from tosaic.sim.vulkan import environment
from tosaic.targets.vgf import converter

_PIP = 'pip install "tosaic[vgf]"'
PARTS = ("aot", "runtime", "host-emulator")
"""To compile a file; to run one on Vulkan; to run one without hardware."""
_KNOWN = "0.11"


def checks(parts: Sequence[str] = PARTS) -> list[Finding]:
    """What was found, in the order in which it is needed; each thing once."""
    wanted = [each for part in parts for each in _CHECKS[part]]
    return [check() for check in dict.fromkeys(wanted)]


def _found(name: str, look: Callable[[], str], way: str) -> Finding:
    try:
        return Finding(name, "PASS", look())
    except TosaicError as problem:
        return Finding(name, "FAIL", problem.reason, way)


def _converter() -> Finding:
    return _found("model converter", converter.find_converter, _PIP)


def _versions() -> Finding:
    """Which SDK there is, and whether it is the one whose answers are known."""
    try:
        held = metadata.version(converter.PACKAGE)
    except metadata.PackageNotFoundError:
        return Finding(
            "SDK version", "WARN", "the converter is no wheel's: its version is not known", _PIP
        )
    if held.startswith(f"{_KNOWN}."):
        return Finding("SDK version", "PASS", held)
    told = f"{held}; what is refused and wrong is known of {_KNOWN}"
    return Finding("SDK version", "WARN", told, "make vgf asks the new one")


def _converts() -> Finding:
    return _found("a graph converts", lambda: f"{len(_file()):,} bytes", _PIP)


def _file() -> bytes:
    b = Builder("TOSA-1.0+INT")
    b.output(b.ABS(b.input("i32", (4,), "x")))
    return converter.convert(write(b.graph), keeps=False)


def _runner() -> Finding:
    if importlib.util.find_spec("scenario_runner_py") is None:
        return Finding("scenario runner", "FAIL", "its wheel is not installed", _PIP)
    return Finding("scenario runner", "PASS", metadata.version("ai_ml_sdk_scenario_runner"))


def _loader() -> Finding:
    found = environment.find_loader()
    if found is None:
        return Finding("Vulkan loader", "FAIL", "there is no libvulkan", environment.APT)
    return Finding("Vulkan loader", "PASS", found)


def _layers() -> Finding:
    def look() -> str:
        return ", ".join(path.stem for path in environment.find_layers())

    return _found("emulation layers", look, _PIP)


def _driver() -> Finding:
    found = environment.find_lavapipe()
    if found is None:
        return Finding("lavapipe", "FAIL", "Mesa's driver is not installed", environment.APT)
    return Finding("lavapipe", "PASS", str(found))


def _runs() -> Finding:
    def look() -> str:
        from tosaic.sim.vulkan import Session

        given = np.array([-3, 0, 5, -7], np.int32)
        (made,) = Session(_file()).run(given)
        if not np.array_equal(made, np.abs(given)):
            raise ToolFailed("Vulkan gives a wrong result for |x|")
        return "|x| of four integers is right"

    return _found("a file runs on Vulkan", look, "see the lines above")


_CHECKS: dict[str, tuple[Callable[[], Finding], ...]] = {
    "aot": (_converter, _versions, _converts),
    "runtime": (_runner, _loader),
    "host-emulator": (_runner, _loader, _layers, _driver, _runs),
}
