"""The Cortex-M targets, their options, and the folder that an artifact is saved as."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tosaic.errors import InvalidInput
from tosaic.files.whole import write_folder
from tosaic.ir.graph import Array, Graph
from tosaic.ir.traits import Traits
from tosaic.lowering.target import Format, Target, options_of
from tosaic.spec.env import Env
from tosaic.targets.cortexm.blob import Blob
from tosaic.targets.cortexm.constraints import constraint
from tosaic.targets.cortexm.cores import CORES, Core
from tosaic.targets.cortexm.dataflow import TOLD, check_dataflow
from tosaic.targets.cortexm.delegate import Network, compile_graph
from tosaic.targets.cortexm.doctor import doctor
from tosaic.targets.cortexm.program import State
from tosaic.targets.cortexm.source import Writer, weights_of
from tosaic.targets.family import bytes_of

_INTEGERS, _FLOATS = "TOSA-1.0+INT+int16+int4+cf", "TOSA-1.0+INT+FP+int16+int4+cf"
_TRAITS = Traits(
    fuses_sums=False, steps_at_once=8, fuses_widening=True, fuses_epilogue=True,
    deconvolution="slow",
)  # fmt: skip

_ADVICE = (
    (r"float|profile FP|FP profile", "floats='fpu' computes it in float32, floats='soft' where the "
     "core has no FPU"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """How the C is made: ``name`` is the prefix of its functions and files.

    ``memory`` is "small" for a small arena, or one within ``max_arena_bytes``: layers run row by
    row. ``memories`` are bytes by name, the fastest first; the first is the arena. ``weights`` are
    such memories for constants, those that are read most often in the first; the others are flash.
    ``max_arena_bytes`` and ``max_flash_bytes`` are limits, 0 is none. ``floats`` are "fpu" where
    float32 is computed beside integers, or "soft" where the core has no FPU for it.
    """

    name: str = "net"
    memory: str = "fast"
    memories: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    max_arena_bytes: int = 0
    max_flash_bytes: int = 0
    floats: str = ""
    check: bool = True


def with_options(name: str, given: Mapping[str, Any]) -> Target:
    """A target with options by their names; InvalidInput if it has no such."""
    if given.get("max_scratch_bytes") is not None:
        raise InvalidInput(
            f"the scratch memory of {name} is its arena: max_arena_bytes limits it "
            "(-O max_arena_bytes=64K on the command line)"
        )
    options = options_of(name, Options, {key: _parsed(key, v) for key, v in given.items()})
    core = CORES[name]
    _check(options, core)
    env = Env.parse(_FLOATS if options.floats else _INTEGERS)
    return Target(
        name, env, (constraint,), _TRAITS, emit=partial(_emit, name, options),
        engines={"c": lambda made: made.host, "qemu": lambda made: made.emulated},
        formats={"": Format(partial(_save, name, options))}, about=core.about,
        options=dict(given), check=options.check, doctor=doctor, advice=_ADVICE,
    )  # fmt: skip


def _check(options: Any, core: Core) -> None:
    """Refuse options of types and values that mean nothing."""
    if options.floats not in ("", "fpu", "soft"):
        raise InvalidInput(f"floats are 'fpu' or 'soft', not {options.floats!r}")
    if options.floats == "fpu" and not core.has_fpu:
        raise InvalidInput(
            f"{core.name} has no FPU; floats='soft' has the compiler's library compute float32"
        )
    if options.memory not in ("fast", "small"):
        raise InvalidInput(f"memory is 'fast' or 'small', not {options.memory!r}")
    if not isinstance(options.name, str) or not re.fullmatch(r"[A-Za-z]\w*", options.name):
        raise InvalidInput(
            f"name is a prefix of functions in C such as 'net', not {options.name!r}"
        )
    for sizes in (options.memories, options.weights):
        if not isinstance(sizes, Mapping) or not all(
            isinstance(size, int) and size > 0 and re.fullmatch(r"\w+", str(name))
            for name, size in sizes.items()
        ):
            raise InvalidInput(
                f"memories are sizes in bytes by name, such as {{'dtcm': 131072}}, not {sizes!r}"
            )
    for limit in (options.max_arena_bytes, options.max_flash_bytes):
        if not isinstance(limit, int) or limit < 0:
            raise InvalidInput(f"a limit is a number of bytes, not {limit!r}")


def _parsed(option: str, value: Any) -> Any:
    """An option that may be text, as the command line has it: 64K, or dtcm:128K,sram:512K."""
    if not isinstance(value, str):
        return value
    if option.startswith("max_"):
        return bytes_of(value)
    if option not in ("memories", "weights"):
        return value
    pairs = [re.split("[:=]", part, maxsplit=1) for part in value.split(",")]
    return {pair[0].strip(): bytes_of(pair[-1]) for pair in pairs}


def _emit(
    name: str, options: Options, graph: Graph, given: Sequence[Array] | None = None,
    mends: bool = True, states: Sequence[State] = (),
) -> Network:  # fmt: skip
    made = compile_graph(
        graph, CORES[name], options.name, options.memory == "small",
        tuple(options.memories.items()), states, options.max_arena_bytes, options.weights,
    )  # fmt: skip
    made.check_limits(options.max_arena_bytes, options.max_flash_bytes)
    if options.check:
        check_dataflow(made.program, made.plan)
        made.checks.append(TOLD)
    return made


def _save(name: str, options: Options, artifact: Any, path: str | os.PathLike[str]) -> None:
    """Write the files of an artifact into a folder; all of it has to be one graph.

    An artifact of several sizes has a function for each, over the same kernels and weights.
    """
    variants: dict[str, Any] = getattr(artifact, "variants", {})
    networks = {
        size: _network(name, options, each) for size, each in (variants or {"": artifact}).items()
    }
    first, states = networks[next(iter(networks))]
    files = first.files
    if variants:
        blob, files = Blob(), {}
        names = [re.sub(r"\W+", "_", f"{options.name}_{size}").strip("_") for size in networks]
        for each, (network, states) in zip(names, networks.values()):
            shared = (options.name, blob)
            files |= Writer(
                network.program, network.plan, network.core, each, states, shared
            ).sources()
        files |= weights_of(options.name, blob, first.core, names)
    write_folder(path, files)


def _network(name: str, options: Options, artifact: Any) -> tuple[Network, list[State]]:
    """The network of an artifact, and the buffers that it keeps."""
    refused = artifact.partition.refused
    if refused or len(artifact.partition.graphs) != 1:
        why = f"; the first reason: {refused[0]}" if refused else ""
        raise InvalidInput(f"a folder of C has no PyTorch in it, and some calls stay there{why}")
    network: Network = artifact.delegates[0]
    states = _states(artifact)
    return _emit(name, options, network.graph, states=states) if states else network, states


def _states(artifact: Any) -> list[State]:
    """Buffers of the program that its graph takes and gives."""
    program = artifact.program
    piece = next(each for each in artifact.partition.pieces if each.graph is not None)
    count = len(program.states)
    if not count:
        return []
    own = len(program.outputs) - program.changes
    results = program.outputs[own : own + count]
    found = []
    for (name, first), node, result in zip(program.states, program.inputs[-count:], results):
        if node in piece.inputs and result in piece.outputs:
            at = piece.inputs.index(node)
            value = piece.graph.inputs[at]
            if tuple(first.shape) == tuple(value.shape):
                data = first.detach().cpu().numpy().astype(value.dtype.array).tobytes()
                found.append(State(name, at, piece.outputs.index(result), data))
    return found
