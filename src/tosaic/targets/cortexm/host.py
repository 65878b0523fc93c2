"""Runs a network's C on this machine: a program of its own, which reads inputs and writes outputs.

A fault in it ends that program and no other: each run is a process.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tosaic.errors import ToolFailed, ToolMissing
from tosaic.ir.graph import Array, Value

FLAGS = ("-std=c99", "-O2", "-fno-strict-aliasing")
SECONDS = 600.0  # what a compiler, or a run of a network, may take
_NO_DATA = 3  # exit status of a program that can read, write or allocate no more


def compiler() -> list[str]:
    """The command of this machine's C compiler, $CC first; ToolMissing if there is none."""
    given = shlex.split(os.environ.get("CC", ""))
    found = given or [path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))][:1]
    if not found or shutil.which(found[0]) is None:
        where = f" ($CC names {given[0]!r})" if given else ""
        raise ToolMissing(
            f"there is no C compiler to build the network with{where}: install gcc or clang, or "
            "run with engine='tosa'"
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
    command = [*compiler(), *FLAGS, *flags, "-I.", *sources, "-o", output]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ToolFailed(f"the C compiler took longer than {SECONDS:g} s") from None
    except OSError as problem:
        raise ToolFailed(f"the C compiler does not start: {problem}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace")
        raise ToolFailed("the C compiler fails on the network", said[-2000:])
    return folder / output


class Host:
    """A network as a program of this machine."""

    def __init__(
        self, files: Mapping[str, bytes], name: str, memories: Sequence[int],
        inputs: Sequence[Value], outputs: Sequence[Value], seconds: float = SECONDS,
    ) -> None:  # fmt: skip
        folder = Path(tempfile.mkdtemp(prefix="tosaic-c-"))
        weakref.finalize(self, shutil.rmtree, folder, True)
        self._inputs, self._outputs, self._seconds = list(inputs), list(outputs), seconds
        main = _main(name, memories, map(_size, inputs), map(_size, outputs))
        files = {**files, f"{name}_host_main.c": main.encode()}
        write_files(files, folder)
        self._program = build(files, folder, f"{name}_host", ())

    def run(self, *inputs: Array) -> list[Array]:
        """The outputs for arrays in graph order; ToolFailed if the program ends before them."""
        given = b"".join(
            np.ascontiguousarray(array).astype(value.dtype.array, copy=False).tobytes()
            for array, value in zip(inputs, self._inputs, strict=True)
        )
        try:
            done = subprocess.run(
                [self._program], input=given, capture_output=True, check=False,
                timeout=self._seconds,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ToolFailed(
                f"the network's C did not end within {self._seconds:g} s on this machine; a loop "
                "of the model may have no end"
            ) from None
        except OSError as problem:
            raise ToolFailed(f"the network's program does not start: {problem}") from None
        sizes = [_size(value) for value in self._outputs]
        if done.returncode or len(done.stdout) != sum(sizes):
            raise ToolFailed(
                f"the network's C, run on this machine, ended with {_ending(done.returncode)} "
                "before it gave its outputs; run with engine='tosa', and report the network"
            )
        made, place = [], 0
        for value, size in zip(self._outputs, sizes, strict=True):
            part = np.frombuffer(bytearray(done.stdout[place : place + size]), value.dtype.array)
            made.append(part.reshape(value.shape))
            place += size
        return made


def _size(value: Value) -> int:
    return value.type.size * np.dtype(value.dtype.array).itemsize


def _ending(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"status {status}"
    known = {number.value: number.name for number in signal.Signals}
    return f"signal {known.get(-status, -status)}"


def _main(name: str, memories: Sequence[int], inputs: Iterable[int], outputs: Iterable[int]) -> str:
    """A program that runs a network once, on tensors of standard input, in memory full of zeros."""
    before, after = list[str](), list[str]()
    for i, size in enumerate(inputs):
        before.append(f"    io.inputs[{i}] = read_in({size}u);")
    for i, size in enumerate(outputs):
        before.append(f"    io.outputs[{i}] = memory({size}u);")
        after.append(
            f"    if (fwrite(io.outputs[{i}], 1, {size}u, stdout) != {size}u) exit({_NO_DATA});"
        )
    for i, size in enumerate(memories[1:]):
        before.append(f"    io.memories[{i}] = memory({size}u);")
    return "\n".join([
        "#include <stdio.h>", "#include <stdlib.h>", f'#include "{name}.h"',
        "#ifdef _WIN32", "#include <fcntl.h>", "#include <io.h>", "#endif", "",
        "static void *memory(size_t size)", "{",
        "    char *made = calloc(size + 16, 1);", f"    if (made == NULL) exit({_NO_DATA});",
        "    return made + (16 - (uintptr_t)made % 16) % 16;", "}", "",
        "static void *read_in(size_t size)", "{", "    void *made = memory(size);",
        f"    if (fread(made, 1, size, stdin) != size) exit({_NO_DATA});",
        "    return made;", "}", "",
        "int main(void)", "{", f"    struct {name}_io io;",
        f"    void *arena = memory({memories[0]}u);",
        "#ifdef _WIN32", "    _setmode(0, _O_BINARY);", "    _setmode(1, _O_BINARY);", "#endif",
        *before, f"    {name}_run(&io, arena);", *after, "    return 0;", "}", "",
    ])  # fmt: skip
