"""Builds an image and runs it: QEMU is the core, the simulator the NPU, on the same memory.

What is made for Linux runs by itself, or under QEMU where it is for another processor.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tosaic.errors import InvalidInput, ToolFailed
from tosaic.firmware.project import MANIFEST
from tosaic.firmware.toolchain import build, toolchain
from tosaic.ir.graph import Array
from tosaic.sim.ethosu.guest import Guest, Job

_FIGURES = re.compile(r"^(?:(\w+): )?(\w+=\d+(?: \w+=\d+)*)$", re.MULTILINE)
_PRINTED = re.compile(r"^(\w+\.out\d+)=([0-9a-f]*)$", re.MULTILINE)
_SANITIZER = re.compile(r"ERROR: \w+Sanitizer: .*|runtime error: .*")
_STEP = 0.25  # seconds between looks whether the emulator has ended


@dataclass(frozen=True, slots=True)
class Ran:
    """What an image did: outputs of each network and inference, text, figures and findings."""

    outputs: Mapping[str, list[list[Array]]]
    console: str
    status: int
    figures: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    findings: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The sentence that the image failed with; empty if it did not."""
        lines = [line for line in self.console.splitlines() if line.startswith("error: ")]
        return lines[-1].removeprefix("error: ") if lines else ""


def run(
    folder: str | os.PathLike[str],
    inputs: Mapping[str, Sequence[Sequence[Array]]] | None = None,
    *,
    options: Mapping[str, str] | None = None,
    timeout: float = 600.0,
    interrupts: bool = True,
    config: int | None = None,
    icount: bool = True,
) -> Ran:
    """Build the project in a folder and run it over inputs: of each network, a list of runs.

    Without inputs those are taken that the project keeps; with INPUTS=image they are in the image.
    ``interrupts`` False leaves the NPU's interrupt out, ``config`` makes it another NPU.
    """
    place = Path(folder).resolve()
    manifest = read_manifest(place)
    if "emulator" not in manifest:
        raise InvalidInput(f"the board {manifest['board']} has no emulator in its board file")
    with tempfile.TemporaryDirectory(prefix="tosaic-firmware-") as name:
        work = Path(name)
        elf = build(place, work / "build", options, manifest["system"])
        (work / "run").mkdir()
        if inputs is not None:
            _write_inputs(manifest, inputs, work / "run")
        elif (place / "inputs").is_dir():
            shutil.copytree(place / "inputs", work / "run", dirs_exist_ok=True)
        else:
            raise InvalidInput(f"'{folder}' keeps no inputs: give one of each network")
        with _Shared(manifest, work, interrupts, config) as shared:
            emulator = toolchain(manifest["system"], options).emulator
            if manifest["system"] == "none":
                emulator = _board(emulator, manifest, shared, icount)
            console, status = _emulate([*emulator, str(elf)], work, shared, timeout)
        made = _outputs(manifest, work / "run", console) if status == 0 else {}
    findings = tuple(shared.guest.findings) if shared.guest is not None else ()
    return Ran(made, console, status, _figures(console), findings)


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a project says of itself."""
    try:
        made = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        assert isinstance(made["networks"], list)
        assert made["system"] in ("none", "linux")
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        raise InvalidInput(f"'{folder}' is no firmware project: it has no {MANIFEST}") from None
    return dict(made)


def _write_inputs(
    manifest: Mapping[str, Any], inputs: Mapping[str, Sequence[Sequence[Array]]], folder: Path
) -> None:
    for network in manifest["networks"]:
        runs = inputs.get(network["name"], ())
        for number, port in enumerate(network["inputs"]):
            wanted = np.dtype(port["dtype"]), tuple(port["shape"])
            data = []
            for given in runs:
                array = np.ascontiguousarray(given[number])
                if (array.dtype, array.shape) != wanted:
                    raise InvalidInput(
                        f"input {number} ({port['name']}) of '{network['name']}' is {wanted[0]} "
                        f"{list(wanted[1])}, not {array.dtype} {list(array.shape)}, "
                        "and firmware takes tensors as they lie on the device"
                    )
                data.append(array.tobytes())
            (folder / f"{network['name']}.in{number}").write_bytes(b"".join(data))


def _outputs(
    manifest: Mapping[str, Any], folder: Path, console: str
) -> dict[str, list[list[Array]]]:
    """What an image wrote into files, or printed where its inputs are part of it."""
    printed: dict[str, bytes] = {}
    for found in _PRINTED.finditer(console):
        printed[found[1]] = printed.get(found[1], b"") + bytes.fromhex(found[2])
    made: dict[str, list[list[Array]]] = {}
    for network in manifest["networks"]:
        columns = []
        for number, port in enumerate(network["outputs"]):
            name = f"{network['name']}.out{number}"
            data = printed[name] if name in printed else (folder / name).read_bytes()
            array = np.frombuffer(data, np.dtype(port["dtype"]))
            columns.append(list(array.reshape(-1, *port["shape"])))
        made[network["name"]] = [list(row) for row in zip(*columns, strict=True)]
    return made


def _figures(console: str) -> dict[str, dict[str, int]]:
    return {
        found[1] or "": {k: int(v) for k, v in (x.split("=") for x in found[2].split())}
        for found in _FIGURES.finditer(console)
    }


class _Shared:
    """The memory and the doorbell that the emulated core and the simulated NPU share."""

    def __init__(
        self, manifest: Mapping[str, Any], work: Path, interrupts: bool, config: int | None
    ) -> None:
        self.guest: Guest | None = None
        self.options: list[str] = []
        self._files: list[int] = []
        npu, machine = manifest.get("npu"), manifest["emulator"]
        if npu is None:
            return
        from tosaic.targets.ethosu import weight_codec

        path, size = work / "run" / "npu.memory", int(machine["size"])
        with path.open("wb") as file:
            file.truncate(size)
        with path.open("r+b") as file:
            window = np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
        jobs = {
            name: Job(int(job["weights"]), {int(k): int(v) for k, v in job["sizes"].items()})
            for name, job in npu["streams"].items()
        }
        config = npu["config"] if config is None else config
        at = machine["shared"]
        self.guest = Guest(window, at, at, config, jobs, weight_codec.decode, interrupts)
        self.options = [
            "-object",
            f"memory-backend-file,id=ram,size={size},mem-path={path},share=on",
        ]
        for name in ("npu.ring", "npu.done"):
            os.mkfifo(work / "run" / name)
            self._files.append(os.open(work / "run" / name, os.O_RDWR))

    def __enter__(self) -> _Shared:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            os.close(file)

    def serve(self, seconds: float) -> None:
        """Answer a ring if one comes within some seconds."""
        if self.guest is None:
            time.sleep(min(seconds, 0.02))
            return
        ready, _, _ = select.select(self._files[:1], [], [], seconds)
        if ready and os.read(self._files[0], 1):
            os.write(self._files[1], bytes([self.guest.ring()]))


def _board(
    emulator: Sequence[str], manifest: Mapping[str, Any], shared: _Shared, icount: bool
) -> tuple[str, ...]:
    """The command that emulates a board, up to the image."""
    machine = manifest["emulator"]["machine"] + (",memory-backend=ram" if shared.options else "")
    return (
        *emulator, *shared.options, "-machine", machine, "-nographic", "-monitor", "none",
        "-serial", "none", *(["-icount", "shift=6"] if icount else []),
        "-semihosting-config", "enable=on,target=native", "-kernel",
    )  # fmt: skip


def _emulate(
    command: Sequence[str], work: Path, shared: _Shared, timeout: float
) -> tuple[str, int]:
    """Run the image to its end: what it printed, and its exit status."""
    name = Path(command[0]).name
    with (work / "console").open("wb") as console:
        try:
            process = subprocess.Popen(
                command, cwd=work / "run", stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )
        except OSError as problem:
            raise ToolFailed(f"{name} cannot be run: {problem.strerror}") from None
        end = time.monotonic() + timeout
        try:
            while process.poll() is None:
                if time.monotonic() > end:
                    raise ToolFailed(f"the image did not end within {timeout:g} s under {name}")
                shared.serve(_STEP)
        finally:
            process.kill()
            process.wait()
    said = (work / "console").read_text(encoding="utf-8", errors="replace")
    if found := _SANITIZER.search(said):
        raise ToolFailed(f"the program fails a check of its compiler's: {found[0]}")
    if process.returncode < 0 or (process.returncode and "error: " not in said):
        last = " ".join(said.strip().splitlines()[-3:])
        raise ToolFailed(f"{name} ended with status {process.returncode}: {last}")
    return said, process.returncode
