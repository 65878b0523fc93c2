"""A generated network on an emulated Cortex-M: arrays in, arrays out, instructions by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tosaic.errors import ToolFailed
from tosaic.sim.cortexm.qemu import run

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class NetworkRun:
    """The outputs of a network, and what it took."""

    outputs: list[Array]
    states: list[Array]
    instructions: int = 0
    """Of the whole network; 0 if nothing was counted."""
    by_call: list[tuple[str, int]] = field(default_factory=list)
    """The functions that the network calls, in order, each with its instructions."""
    by_function: dict[str, int] = field(default_factory=dict)
    text_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A network's files (``name.h``, ``name.c``, weights, kernels), and what it is run on.

    `outputs` have the shapes and types of the results; what is in them does not count. `memories`
    are the sizes of those beside the arena.
    """

    files: Mapping[str, bytes]
    name: str
    inputs: Sequence[Array]
    outputs: Sequence[Array]
    states: Sequence[Array] = ()
    memories: Sequence[int] = ()


def run_network(core: str, job: Job, *, count: bool = False) -> NetworkRun:
    """Build a network and run it once."""
    return run_networks(core, [job], count=count)[0]


def run_networks(
    core: str, jobs: Sequence[Job], *, count: bool = False,
    flags: Sequence[str] = ("-O2", "-fno-strict-aliasing"),
) -> list[NetworkRun]:  # fmt: skip
    """Build networks of different names into one program, and run each once.

    What is counted is that of all; calls are those of the first.
    """
    given: dict[str, bytes] = {}
    sources: dict[str, str | bytes] = {}
    for job in jobs:
        for kind, arrays in (("in", job.inputs), ("state", job.states)):
            for i, array in enumerate(arrays):
                given[f"{job.name}_{kind}{i}"] = np.ascontiguousarray(array).tobytes()
        sources |= {k: v for k, v in job.files.items() if k != "CMakeLists.txt"}
    sources["main.c"] = _main(jobs)
    prefix = f"{jobs[0].name}_"
    ran = run(core, sources, given, count=count, marks=(prefix,), flags=flags)
    calls = [(entry, at) for entry, at in ran.entered if entry != f"{prefix}run"]
    by_call = [
        (entry, after - at)
        for (entry, at), (_, after) in pairwise(calls)
        if entry.startswith(prefix)
    ]
    made = []
    for job in jobs:
        outputs, states = (
            [_array(ran.files, f"{job.name}_{kind}{i}", array) for i, array in enumerate(arrays)]
            for kind, arrays in (("out", job.outputs), ("kept", job.states))
        )
        counted = ran.instructions, by_call, ran.by_function, ran.text_bytes
        made.append(NetworkRun(outputs, states, *counted))
    return made


def _array(files: Mapping[str, bytes], name: str, like: Array) -> Array:
    data = files.get(name, b"")
    if len(data) != like.nbytes:
        raise ToolFailed(f"the program wrote {len(data)} bytes of {name}, not {like.nbytes}")
    return np.frombuffer(bytearray(data), like.dtype).reshape(like.shape)


def _main(jobs: Sequence[Job]) -> str:
    """A program that runs networks, each once: tensors and arenas in the board's large memory."""
    names = [job.name for job in jobs]
    return "\n".join([
        *(f'#include "{name}.h"' for name in names), '#include "harness.h"', "",
        *(line for job in jobs for line in _function(job)),
        "int main(void)", "{", *(f"    run_{name}();" for name in names), "    return 0;", "}", "",
    ])  # fmt: skip


def _function(job: Job) -> list[str]:
    """A function of C that runs one network."""
    name = job.name
    before, after = [], []
    ports = ("in", "inputs", job.inputs), ("out", "outputs", job.outputs)
    for kind, field_, arrays in (*ports, ("state", "state", job.states)):
        for i, array in enumerate(arrays):
            before.append(f"    void *{kind}{i} = host_memory({max(array.nbytes, 1)}u);")
            if kind != "out":
                before.append(f'    host_read("{name}_{kind}{i}", {kind}{i}, {array.nbytes}u);')
            before.append(f"    io.{field_}[{i}] = {kind}{i};")
            if kind != "in":
                kept = "out" if kind == "out" else "kept"
                after.append(f'    host_write("{name}_{kept}{i}", {kind}{i}, {array.nbytes}u);')
    for i, size in enumerate(job.memories):
        before.append(f"    io.memories[{i}] = host_memory({max(size, 1)}u);")
    return [
        f"static void run_{name}(void)", "{", f"    struct {name}_io io;",
        f"    void *arena = host_memory({name.upper()}_ARENA_SIZE);", *before, "    mark_start();",
        f"    {name}_run(&io, arena);", "    mark_stop();", *after, "}", "",
    ]  # fmt: skip
