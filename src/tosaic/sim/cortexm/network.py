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


def run_network(
    core: str,
    files: Mapping[str, bytes],
    name: str,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    *,
    states: Sequence[Array] = (),
    count: bool = False,
    flags: Sequence[str] = ("-O2", "-fno-strict-aliasing"),
    timeout: float = 600.0,
) -> NetworkRun:
    """Build the files of a network (``name.h``, ``name.c``, weights, kernels) and run it once.

    `outputs` have the shapes and types of the results; what is in them does not count.
    """
    given = {f"in{i}": np.ascontiguousarray(array).tobytes() for i, array in enumerate(inputs)}
    given |= {f"state{i}": np.ascontiguousarray(s).tobytes() for i, s in enumerate(states)}
    sources: dict[str, str | bytes] = {k: v for k, v in files.items() if k != "CMakeLists.txt"}
    sources["main.c"] = _main(name, inputs, outputs, states)
    ran = run(
        core, sources, given, count=count, marks=(f"{name}_",), flags=flags, timeout=timeout
    )  # fmt: skip
    made = [_array(ran.files, f"out{i}", array) for i, array in enumerate(outputs)]
    kept = [_array(ran.files, f"kept{i}", array) for i, array in enumerate(states)]
    calls = [(entry, at) for entry, at in ran.entered if entry != f"{name}_run"]
    by_call = [
        (entry, after - at)
        for (entry, at), (_, after) in pairwise(calls)
        if entry.startswith(f"{name}_")
    ]
    return NetworkRun(made, kept, ran.instructions, by_call, ran.by_function, ran.text_bytes)


def _array(files: Mapping[str, bytes], name: str, like: Array) -> Array:
    data = files.get(name, b"")
    if len(data) != like.nbytes:
        raise ToolFailed(f"the program wrote {len(data)} bytes of {name}, not {like.nbytes}")
    return np.frombuffer(bytearray(data), like.dtype).reshape(like.shape)


def _main(
    name: str, inputs: Sequence[Array], outputs: Sequence[Array], states: Sequence[Array]
) -> str:
    """A program that runs a network once: tensors and the arena in the board's large memory."""
    before, after = [], []
    for kind, field_, arrays in (
        ("in", "inputs", inputs), ("out", "outputs", outputs), ("state", "state", states)
    ):  # fmt: skip
        for i, array in enumerate(arrays):
            before.append(f"    void *{kind}{i} = host_memory({max(array.nbytes, 1)}u);")
            if kind != "out":
                before.append(f'    host_read("{kind}{i}", {kind}{i}, {array.nbytes}u);')
            before.append(f"    io.{field_}[{i}] = {kind}{i};")
            if kind != "in":
                kept = "out" if kind == "out" else "kept"
                after.append(f'    host_write("{kept}{i}", {kind}{i}, {array.nbytes}u);')
    return "\n".join([
        f'#include "{name}.h"', '#include "harness.h"', "", "int main(void)", "{",
        f"    struct {name}_io io;",
        f"    void *arena = host_memory({name.upper()}_ARENA_SIZE);",
        *before, "    mark_start();", f"    {name}_run(&io, arena);", "    mark_stop();", *after,
        "    return 0;", "}", "",
    ])  # fmt: skip
