"""MLIR's tosa-opt: an independent judge of whether a graph is legal TOSA for a target."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from judges import wheel

_SPLIT = "\n// -----\n"
_BATCH = 200  # its time to split a file grows faster than the file
_ERROR = re.compile(r"^[^\n]*?:(\d+):\d+: error: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Target:
    """What the graph may use, in tosa-opt's words: ``pro_int``, ``int16``, ``8k``, ``none``."""

    version: str = "1.0"
    profiles: tuple[str, ...] = ("pro_int",)
    extensions: tuple[str, ...] = ()
    level: str = "8k"

    def passes(self) -> list[str]:
        version = "1.1.draft" if self.version == "1.1" else self.version
        parts = [f"specification_version={version}", f"level={self.level}"]
        parts += [f"profiles={','.join(self.profiles)}"] if self.profiles else []
        parts += [f"extensions={','.join(self.extensions)}"] if self.extensions else []
        attach = f"--tosa-attach-target={' '.join(parts)}"
        return [attach, "--tosa-validate=strict-op-spec-alignment"]


class Verdict(NamedTuple):
    ok: bool
    message: str


def validate(graph: bytes | str | os.PathLike[str], target: Target) -> Verdict:
    """Judge one graph: MLIR text, the bytes of a TOSA file, or the path of either."""
    if isinstance(graph, os.PathLike):
        path = Path(graph)
        graph = path.read_text() if path.suffix == ".mlir" else path.read_bytes()
    if isinstance(graph, str):
        return validate_all([graph], target)[0]
    try:
        text = to_mlir(graph)
    except ValueError as error:
        return Verdict(False, str(error))
    return validate_all([text], target)[0]


def validate_all(modules: Sequence[str], target: Target) -> list[Verdict]:
    """Judge many MLIR modules for one target by one process, each on its own."""
    starts, line = [], 1
    for text in modules:
        starts.append(line)
        line += (text + _SPLIT).count("\n")
    options = ["--split-input-file", *target.passes(), "-o", os.devnull]
    done = _tosa_opt(_SPLIT.join(modules), options)
    if done.returncode not in (0, 1):  # it crashed: find out on which
        if len(modules) == 1:
            return [Verdict(False, _reason(done))]
        return [validate_all([text], target)[0] for text in modules]
    messages: dict[int, str] = {}
    for number, message in _ERROR.findall(done.stderr):
        messages.setdefault(bisect_right(starts, int(number)) - 1, message)
    if done.returncode and not messages:
        raise RuntimeError(f"tosa-opt failed without naming a line: {done.stderr[-500:]}")
    return [Verdict(i not in messages, messages.get(i, "")) for i in range(len(modules))]


def to_mlir(graph: bytes) -> str:
    """A TOSA file as MLIR text; ValueError with tosa-opt's words if it cannot be read."""
    with tempfile.TemporaryDirectory() as folder:
        file, text = Path(folder, "graph.tosa"), Path(folder, "graph.mlir")
        file.write_bytes(graph)
        read = f"--tosa-deserialize=tosa-flatbuffer-filename={file}"
        done = _tosa_opt("module {}", [read, "-o", str(text)])  # stdout also carries warnings
        if done.returncode:
            raise ValueError(_reason(done))
        return text.read_text()


def round_trip(text: str) -> str:
    """MLIR text parsed, verified and printed again by tosa-opt; ValueError if it refuses."""
    done = _tosa_opt(text, [])
    if done.returncode:
        raise ValueError(_reason(done))
    return done.stdout


def round_trips(texts: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """Many texts at once; ValueError with tosa-opt's words for the first that it refuses."""
    marker = _SPLIT.strip()
    found: list[str] = []
    for start in range(0, len(texts), _BATCH):
        split = ["--split-input-file", f"--output-split-marker={marker}", *options]
        done = _tosa_opt(_SPLIT.join(texts[start : start + _BATCH]), split)
        if done.returncode:
            raise ValueError(_reason(done))
        found += done.stdout.split(marker)
    return found


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode != 1:
        return f"tosa-opt crashed ({done.returncode})"
    said = re.search(r"error: (.*)", done.stderr)
    return said[1] if said else done.stderr.strip()[:300]


def _tosa_opt(text: str, options: Iterable[str]) -> subprocess.CompletedProcess[str]:
    command = [wheel.program("tosa-opt"), "-", *options]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)
