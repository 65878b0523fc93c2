"""A graph compiled to C: its files, its memory plan, what runs it, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from tosaic.errors import InvalidInput, ToolMissing, TosaicError
from tosaic.files import flatbuffer
from tosaic.ir.graph import Array, Graph, Op
from tosaic.lowering.target import Compiled, Engine, Estimate, OperatorCost, PlacedTensor
from tosaic.sim.cortexm import network as emulated
from tosaic.sim.cortexm import qemu
from tosaic.targets.cortexm import calls, control, convolutions  # noqa: F401  (they register)
from tosaic.targets.cortexm.blob import spread
from tosaic.targets.cortexm.cores import Core
from tosaic.targets.cortexm.host import Host
from tosaic.targets.cortexm.lowering import Lowerer
from tosaic.targets.cortexm.memory import Memories, Plan, plan
from tosaic.targets.cortexm.packing import Storage
from tosaic.targets.cortexm.program import Program, State, Step, macs
from tosaic.targets.cortexm.source import Source, Writer
from tosaic.targets.cortexm.streaming import stream

_NAMED = 4  # tensors in a sentence about memory
_COUNTED = 20_000_000  # multiplications up to which a report counts instructions by emulation


@dataclass(frozen=True, eq=False)
class Network(Compiled):
    """One graph as C: files by name, steps, and where its tensors lie.

    ``parts`` are memories of the weights beside flash, and where each ends in their file.
    """

    core: Core = field(kw_only=True)
    name: str = field(kw_only=True)
    program: Program = field(kw_only=True)
    plan: Plan = field(kw_only=True)
    source: Source = field(kw_only=True)
    parts: tuple[tuple[str, int], ...] = field(kw_only=True, default=())

    @property
    def files(self) -> dict[str, bytes]:
        return self.source.files

    @property
    def flash(self) -> int:
        """Bytes of constants."""
        return len(self.files[f"{self.name}_weights.bin"])

    @cached_property
    def host(self) -> Host:
        """The C itself, built for this machine."""
        graph = self.graph
        sizes = [size for _, size in self.plan.memories]
        return Host(self.files, self.name, sizes, graph.inputs, graph.outputs)

    @property
    def emulated(self) -> Engine:
        """The C on the emulated core."""
        return Emulated(self)

    @cached_property
    def counts(self) -> dict[Step, int] | None:
        """Executed instructions of each step; None where nothing can count them."""
        if not self.core.cpu or qemu.counting() or sum(map(macs, self.graph.ops)) > _COUNTED:
            return None
        inputs = [np.zeros(v.shape, v.dtype.array) for v in self.graph.inputs]
        try:
            ran = Emulated(self).ran(inputs, count=True)
        except TosaicError:
            return None
        names = self.source.functions
        called = [(name.partition(".")[0], count) for name, count in ran.by_call]
        taken = [(name, count) for name, count in called if name in set(names.values())]
        steps = [step for step in self.program.items if isinstance(step, Step)]
        if len(taken) == len(steps) == len(names):
            return dict(zip(steps, (count for _, count in taken)))
        # Branches and loops: a step may run never or often, so each has what its function took.
        shares = Counter(names.values())
        totals = Counter[str]()
        for name, count in taken:
            totals[name] += count
        return {step: totals[name] // shares[name] for step, name in names.items()}

    @cached_property
    def estimate(self) -> Estimate:
        """Bytes of the plan, multiplications, and instructions where they can be counted."""
        counts = self.counts
        places = {op: i for i, op in enumerate(self.graph.ops)}
        operators = []
        for step, time in self.plan.times.items():
            op = step.main_op
            operators.append(
                OperatorCost(
                    self.source.functions[step], op.name if op else "", op.loc if op else None,
                    (counts or {}).get(step, 0), step.macs, {}, {},
                    places.get(op) if op else None, time,
                )
            )  # fmt: skip
        tensors = [
            PlacedTensor(
                _storage_name(s), self.plan.memories[s.memory][0], s.offset, s.size, s.start, s.end,
                s.buffers[0].value.loc if s.buffers and s.buffers[0].value else None,
                _maker(s, places),
            )
            for s in self.plan.storages
        ]  # fmt: skip
        return Estimate(
            "QEMU" if counts else "the memory plan", sum((counts or {}).values()), self.plan.size,
            self.flash, dict(self.plan.memories), tuple(operators), tuple(tensors),
            self._flash_parts, unit="instructions",
        )  # fmt: skip

    @property
    def _flash_parts(self) -> dict[str, int]:
        """Bytes of the weights by memory, if there are several."""
        ends = [0, *(end for _, end in self.parts)]
        names = [f"weights in {memory}" for memory, _ in self.parts]
        sizes = {name: end - begin for name, (begin, end) in zip(names, pairwise(ends))}
        return {**sizes, "weights": self.flash - ends[-1]} if sizes else {}

    def check_limits(self, arena: int, flash: int) -> None:
        """Refuse what needs more than is allowed; 0 is no limit."""
        if arena and self.plan.size > arena:
            peak = max(self.plan.storages, key=lambda s: s.size)
            time = _peak_time(self.plan)
            live = [s for s in self.plan.storages if s.start <= time <= s.end]
            live.sort(key=lambda s: -s.size)
            step = next((s for s, t in self.plan.times.items() if t == time), None)
            where = _place(step) if step else _storage_name(peak)
            named = ", ".join(f"{_storage_name(s)} {s.size:,}" for s in live[:_NAMED])
            raise InvalidInput(
                f"the arena needs {self.plan.size:,} bytes, and {arena:,} are allowed; the most is "
                f"at {where}: {named}; memory='small' keeps a few rows of a layer at a time, and a "
                "smaller input or fewer channels there help as well"
            )
        if flash and self.flash > flash:
            largest = sorted(self.program.steps(), key=lambda s: -_blob(s))[:_NAMED]
            named = ", ".join(f"{_place(s)} {_blob(s):,}" for s in largest if _blob(s))
            raise InvalidInput(
                f"the weights need {self.flash:,} bytes of flash, and {flash:,} are allowed; the "
                f"largest: {named}; fewer channels there help"
            )


@dataclass(frozen=True, slots=True)
class Emulated:
    """Runs a network on its emulated core."""

    network: Network

    def run(self, *inputs: Array) -> Sequence[Array]:
        outputs: Sequence[Array] = self.ran(inputs).outputs
        return outputs

    def ran(self, inputs: Sequence[Array], count: bool = False) -> emulated.NetworkRun:
        network = self.network
        if not network.core.cpu:
            raise InvalidInput("the target 'c' is no core that could be emulated; take cortex-m4")
        if absent := qemu.missing():
            raise ToolMissing(absent)
        return emulated.run_network(network.core.name, job_of(network, inputs), count=count)


def job_of(network: Network, inputs: Sequence[Array]) -> emulated.Job:
    """A network and its inputs for the emulator."""
    given = [
        np.ascontiguousarray(array).astype(value.dtype.array, copy=False)
        for array, value in zip(inputs, network.graph.inputs, strict=True)
    ]
    outputs = [np.zeros(v.shape, v.dtype.array) for v in network.graph.outputs]
    memories = [size for _, size in network.plan.memories[1:]]
    return emulated.Job(network.files, network.name, given, outputs, memories=memories)


def compile_graph(
    graph: Graph, core: Core, name: str = "net", is_small: bool = False,
    memories: Memories = (), states: Sequence[State] = (), limit: int = 0,
    weights: Mapping[str, int] = MappingProxyType({}),
) -> Network:  # fmt: skip
    """A graph as C; Unsupported says which operator has none.

    A small one streams rows, no more than a limit of the arena asks for. ``weights`` are memories
    for constants, by size; the others are in flash.
    """
    program = Lowerer(graph, core).run(states)
    if is_small:
        stream(program, core, limit)
    made = plan(program, memories)
    blob = spread(program, weights)
    source = Writer(program, made, core, name, states, (name, blob)).write()
    return Network(
        graph, flatbuffer.write(graph), core=core, name=name, program=program, plan=made,
        source=source, parts=tuple(blob.parts),
    )  # fmt: skip


def _blob(step: Step) -> int:
    return len(step.call.blob) if step.call else 0


def _place(step: Step) -> str:
    op = step.main_op
    module = op.loc.module if op is not None and op.loc is not None else ""
    return f"{step.kind} ({module})" if module else step.kind


def _storage_name(storage: Storage) -> str:
    if not storage.buffers:
        return "scratch"
    value = storage.buffers[0].value
    loc = value.loc if value is not None else None
    made = value.producer.name.lower() if value is not None and value.producer else "tensor"
    return (value.name if value is not None and value.name else "") or (
        f"{made} of {loc.module}" if loc is not None and loc.module else made
    )


def _maker(storage: Storage, places: Mapping[Op, int]) -> int | None:
    value = storage.buffers[0].value if storage.buffers else None
    return places.get(value.producer) if value is not None and value.producer else None


def _peak_time(made: Plan) -> int:
    times = sorted(set(made.times.values()))

    def live(time: int) -> int:
        return sum(s.size for s in made.storages if s.start <= time <= s.end)

    return max(times, key=live)
