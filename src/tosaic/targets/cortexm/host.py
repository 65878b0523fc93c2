"""Runs a network's C on this machine: built by the C compiler, loaded as a library."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tosaic.errors import InvalidInput, ToolFailed
from tosaic.ir.graph import Array, Value

FLAGS = ("-std=c99", "-O2", "-fno-strict-aliasing")


def compiler() -> str:
    """The C compiler of this machine; InvalidInput if there is none."""
    found = (
        os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    )
    if not found:
        raise InvalidInput(
            "there is no C compiler to build the network with: install gcc or clang, or run with "
            "engine='tosa'"
        )
    return found


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def build(files: Mapping[str, bytes], folder: Path, output: str, flags: Sequence[str]) -> Path:
    """Compile C and assembly of a folder; ToolFailed with the compiler's last lines."""
    sources = [name for name in files if name.endswith((".c", ".S"))]
    command = [compiler(), *FLAGS, *flags, "-I.", *sources, "-o", output]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolFailed("the C compiler fails on the network", done.stderr[-2000:])
    return folder / output


class Host:
    """A network as a library of this machine."""

    def __init__(
        self, files: Mapping[str, bytes], name: str, memories: Sequence[int],
        inputs: Sequence[Value], outputs: Sequence[Value],
    ) -> None:  # fmt: skip
        self._folder = tempfile.TemporaryDirectory(prefix="tosaic-c-")
        folder = Path(self._folder.name)
        write_files(files, folder)
        library = build(files, folder, f"{name}.so", ("-shared", "-fPIC"))
        self._run = getattr(ctypes.CDLL(str(library)), f"{name}_run")
        self._run.restype = None
        self._memories = list(memories)
        self._inputs, self._outputs = list(inputs), list(outputs)

    def run(self, *inputs: Array) -> list[Array]:
        """The outputs for arrays in graph order."""
        given = [
            np.ascontiguousarray(array).astype(value.dtype.array, copy=False)
            for array, value in zip(inputs, self._inputs, strict=True)
        ]
        made = [np.zeros(value.shape, value.dtype.array) for value in self._outputs]
        memories = [np.zeros(size // 8 + 3, np.int64) for size in self._memories]
        places: list[int | None] = [array.ctypes.data for array in given] or [None]
        places += [array.ctypes.data for array in made] or [None]
        aligned = [array.ctypes.data + -array.ctypes.data % 16 for array in memories]
        places += aligned[1:]
        io = (ctypes.c_void_p * len(places))(*places)
        self._run(ctypes.byref(io), ctypes.c_void_p(aligned[0]))
        return made
