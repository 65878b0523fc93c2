"""Runs a network's C on this machine: built by the C compiler, in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tosaic.errors import ToolFailed, ToolMissing
from tosaic.ir.graph import Array, Value

FLAGS = ("-std=c99", "-O2", "-fno-strict-aliasing")


def compiler() -> str:
    """The C compiler of this machine; ToolMissing if there is none."""
    found = (
        os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    )
    if not found:
        raise ToolMissing(
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
    """A network as a program of this machine: inputs are its standard input, outputs its output.

    Each run is a process of its own, so that whatever C does, it does not to the caller.
    """

    def __init__(
        self, files: Mapping[str, bytes], name: str, memories: Sequence[int],
        inputs: Sequence[Value], outputs: Sequence[Value],
    ) -> None:  # fmt: skip
        folder = Path(tempfile.mkdtemp(prefix="tosaic-c-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._inputs, self._outputs = list(inputs), list(outputs)
        main = _main(name, memories, [_bytes(v) for v in inputs], [_bytes(v) for v in outputs])
        sources = {**files, "main.c": main.encode()}
        write_files(sources, folder)
        self._program = build(sources, folder, "network", ())

    def run(self, *inputs: Array) -> list[Array]:
        """The outputs for arrays in graph order; ToolFailed if the program ends otherwise."""
        given = b"".join(
            np.ascontiguousarray(array).astype(value.dtype.array, copy=False).tobytes()
            for array, value in zip(inputs, self._inputs, strict=True)
        )
        done = subprocess.run([str(self._program)], input=given, capture_output=True, check=False)
        if done.returncode or len(done.stdout) != sum(map(_bytes, self._outputs)):
            code = done.returncode
            how = f"by signal {-code}" if code < 0 else f"with the exit code {code}"
            raise ToolFailed(f"the network's C, built for this machine, ended {how}")
        made, place = [], 0
        for value in self._outputs:
            part = done.stdout[place : place + _bytes(value)]
            array = np.frombuffer(bytearray(part), value.dtype.array)
            made.append(array.reshape(value.shape))
            place += len(part)
        return made


def _bytes(value: Value) -> int:
    return value.type.size * np.dtype(value.dtype.array).itemsize


def _main(name: str, memories: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> str:
    """The program round a network: it reads all inputs, runs, and writes all outputs."""
    sizes = [("memory", i, size) for i, size in enumerate(memories)]
    sizes += [("in", i, size) for i, size in enumerate(inputs)]
    sizes += [("out", i, size) for i, size in enumerate(outputs)]
    lines = [f'#include "{name}.h"', "#include <stdio.h>"]
    # Aligned to 16 by their type, whatever the compiler makes of char arrays.
    lines.append("typedef union { long double a; int64_t b[2]; } block;")
    lines += [f"static block {kind}{i}[{size // 16 + 1}];" for kind, i, size in sizes]
    lines += ["int main(void)", "{", f"    struct {name}_io io;"]
    for i, size in enumerate(inputs):
        lines.append(f"    if (fread(in{i}, 1, {size}, stdin) != {size}) return 3;")
        lines.append(f"    io.inputs[{i}] = in{i};")
    lines += [f"    io.outputs[{i}] = out{i};" for i in range(len(outputs))]
    lines += [f"    io.memories[{i - 1}] = memory{i};" for i in range(1, len(memories))]
    lines.append(f"    {name}_run(&io, memory0);")
    for i, size in enumerate(outputs):
        lines.append(f"    if (fwrite(out{i}, 1, {size}, stdout) != {size}) return 4;")
    return "\n".join([*lines, "    return fflush(stdout) ? 5 : 0;", "}", ""])
