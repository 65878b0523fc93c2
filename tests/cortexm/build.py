"""Builds many networks into one program with sanitizers, and runs each on its inputs.

Memory of every tensor of the caller is allocated by itself, so that an access beside it is found.
The arena is one allocation, or one for each place of the plan: an access beside a tensor is found
then. One program does both, where every place is looked up in a table.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tosaic.targets.cortexm.delegate import Network
from tosaic.targets.cortexm.host import write_files

SANITIZE = ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SECONDS = 600.0  # that all networks of a program may take
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")


def has_compiler() -> bool:
    return bool(shutil.which("gcc"))


@dataclass(frozen=True)
class Job:
    """A network and the inputs that it runs on."""

    network: Network
    inputs: Sequence[np.ndarray]


@dataclass(frozen=True)
class Build:
    """How the host builds networks, and whether it runs them with separate tensors as well."""

    flags: tuple[str, ...]
    compiler: str = "gcc"
    separates: bool = False


def run(jobs: Sequence[Job], build: Build) -> list[list[list[np.ndarray] | str]]:
    """What networks give in one arena, and with separate tensors if the build is for both.

    That is the outputs of each network, or the first lines of what a sanitizer says of it.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, each in enumerate(jobs):
            write_files(each.network.files, folder)
            (folder / f"{number}.in").write_bytes(_bytes_in(each))
        (folder / "main.c").write_text(_main(jobs, build.separates))
        names = [each.network.name for each in jobs]
        (folder / "weights.S").write_text("".join(f'#include "{n}_weights.S"\n' for n in names))
        command = [
            build.compiler,
            "-std=c99",
            *build.flags,
            "-fno-strict-aliasing",
            "-I.",
            "main.c",
        ]
        done = subprocess.run(
            [*command, "weights.S", "-o", "main"], cwd=folder, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert not done.returncode, done.stderr[-6000:]
        return [_results(jobs, folder, each) for each in range(1 + build.separates)]


def _results(jobs: Sequence[Job], folder: Path, separate: int) -> list[list[np.ndarray] | str]:
    """One process runs all networks; where one ends it, another goes on with the next."""
    made: list[list[np.ndarray] | str] = []
    while len(made) < len(jobs):
        done = subprocess.run(
            ["./main", str(len(made)), str(separate)], cwd=folder, capture_output=True, check=False,
            timeout=SECONDS, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
        )  # fmt: skip
        while len(made) < len(jobs) and (file := folder / f"{len(made)}.out").exists():
            made.append(_outputs(jobs[len(made)], file.read_bytes()))
            file.unlink()
        if done.returncode:
            made.append(done.stderr.decode(errors="replace")[:1500] or f"status {done.returncode}")
    return made


def _bytes_in(each: Job) -> bytes:
    return b"".join(
        np.ascontiguousarray(array).astype(value.dtype.array).tobytes()
        for array, value in zip(each.inputs, each.network.graph.inputs, strict=True)
    )


def _outputs(each: Job, found: bytes) -> list[np.ndarray]:
    made, place = [], 0
    for value in each.network.graph.outputs:
        size = value.type.size * np.dtype(value.dtype.array).itemsize
        part = np.frombuffer(found[place : place + size], value.dtype.array)
        made.append(part.reshape(value.shape))
        place += size
    return made


def _main(jobs: Sequence[Job], separates: bool) -> str:
    parts = ["#include <stdint.h>", "#include <stdio.h>", "#include <stdlib.h>"]
    for each in jobs:
        name = each.network.name
        if separates:
            parts.append(f"#define {name.upper()}_AT(number, offset) (((uint8_t **)arena)[number])")
        parts.append(f'#include "{name}.c"')
    parts.append("static uint8_t *take(size_t size) { return malloc(size); }")
    for number, each in enumerate(jobs):
        parts += _case(each, number, separates)
    cases = "".join(
        f"    if (first <= {i} && run_{each.network.name}(separate)) return 4;\n"
        for i, each in enumerate(jobs)
    )
    parts.append(
        "int main(int argc, char **argv)\n{\n    const int first = argc < 2 ? 0 : atoi(argv[1]);\n"
        f"    const int separate = argc > 2 && atoi(argv[2]);\n{cases}    return 0;\n}}\n"
    )
    return "\n".join(parts)


def _case(each: Job, number: int, separates: bool) -> list[str]:
    network = each.network
    name = network.name
    lines = [f"static int run_{name}(int separate)", "{", f"    struct {name}_io io;"]
    sizes = [b.size for b in network.program.inputs], [b.size for b in network.program.outputs]
    lines.append(f'    FILE *f = fopen("{number}.in", "rb");')
    lines.append(f"    uint8_t *whole = separate ? NULL : take({max(1, network.plan.size)});")
    if separates:
        storages = network.plan.storages
        lines.append(f"    uint8_t *arena[{len(storages) + 1}];")
        lines += [
            f"    arena[{s.number}] = separate ? take({s.size}) : whole + {s.offset};"
            for s in storages
        ]
    else:
        lines.append("    void *arena = whole;")
    for i, size in enumerate(sizes[0]):
        lines.append(f"    io.inputs[{i}] = take({size});")
        lines.append(f"    if (fread((void *)io.inputs[{i}], 1, {size}, f) != {size}) return 4;")
    lines += [f"    io.outputs[{i}] = take({size});" for i, size in enumerate(sizes[1])]
    lines += [
        "    fclose(f);",
        f"    {name}_run(&io, arena);",
        f'    f = fopen("{number}.out", "wb");',
    ]
    lines += [f"    fwrite(io.outputs[{i}], 1, {size}, f);" for i, size in enumerate(sizes[1])]
    return [*lines, "    fclose(f);", "    return 0;", "}"]
