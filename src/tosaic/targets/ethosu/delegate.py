"""A graph that Vela compiled, with the cost of each operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tosaic.errors import InvalidInput
from tosaic.files import flatbuffer
from tosaic.interp.model import Model
from tosaic.ir.graph import Graph, Op
from tosaic.lowering.target import Compiled, Estimate, OperatorCost, PlacedTensor
from tosaic.targets.ethosu import vela_processes
from tosaic.targets.ethosu.vela import Table, VelaConfig, VelaResult, clock, run_vela

if TYPE_CHECKING:
    from tosaic.sim.ethosu.simulation import Simulation

_DATABASE = "--enable-debug-db"
_NAMED = 4  # tensors in a sentence about memory
_PAUSE = 0.02  # seconds
_MEMORIES = {"Sram": "SRAM", "Dram": "DRAM", "OnChipFlash": "flash", "OffChipFlash": "flash"}
_KINDS = ("Lut", "FeatureMap", "Weights", "Scales")  # of traffic, in Vela's names of columns


@dataclass(frozen=True, slots=True)
class Origin:
    """The operator that a command computes, None for one of Vela's own, and Vela's name of it."""

    op: Op | None
    kind: str


@dataclass(frozen=True, eq=False)
class Delegate(Compiled):
    """One graph for the NPU: what a device gets, what it costs there, and what was checked."""

    result: VelaResult = field(kw_only=True)
    operators: tuple[OperatorCost, ...] = ()
    tensors: tuple[PlacedTensor, ...] = ()
    clock: float = 0.0

    @property
    def estimate(self) -> Estimate:
        """Vela's own; what is stored in flash is what the runtime gets: weights and commands."""
        told, stored = self.result.performance, self.stored
        return Estimate(
            "Vela", told.total_cycles, self.result.scratch_size, sum(stored.values()),
            told.memories, self.operators, self.tensors, stored, self.clock,
        )  # fmt: skip

    @property
    def stored(self) -> dict[str, int]:
        """Bytes in flash, by what they are."""
        weights, commands = self.result.weights, self.result.command_stream
        return {"weights": len(weights), "command stream": len(commands)}

    @cached_property
    def simulation(self) -> Simulation:
        """The NPU that runs the stream."""
        from tosaic.sim.ethosu import load
        from tosaic.targets.ethosu import weight_codec as codec

        return load(self.result, codec.decode)

    def largest(self) -> list[PlacedTensor]:
        """The tensors in memory together when they need most, largest first."""
        moments = sorted({t.start for t in self.tensors})
        live = [_apart(t for t in self.tensors if t.start <= now <= t.end) for now in moments]
        return max(live, key=lambda tensors: sum(t.size for t in tensors), default=[])

    def check(self, what: str, need: int, limit: int) -> None:
        """InvalidInput if the graph needs more than a limit, with what needs it; 0 is none."""
        if not limit or need <= limit:
            return
        if what == "flash":
            parts = [(f"{c.size:,} bytes of {c.name}", c.size) for c in _weights(self.graph)]
            parts.append((f"{self.stored['command stream']:,} bytes of the command stream",
                          self.stored["command stream"]))  # fmt: skip
            parts.sort(key=lambda part: -part[1])
        else:
            parts = [(f"{t.size:,} bytes of {_place(t)}", t.size) for t in self.largest()]
        named = ", ".join(text for text, _ in parts[:_NAMED])
        raise InvalidInput(
            f"the graph needs {need:,} bytes of {what}, and {limit:,} are allowed; "
            f"the largest: {named}"
        )


def _apart(tensors: Iterable[PlacedTensor]) -> list[PlacedTensor]:
    """Largest first, without those that lie in the place of a larger one."""
    kept: list[PlacedTensor] = []
    for t in sorted(tensors, key=lambda t: -t.size):
        if not any(
            k.memory == t.memory
            and k.address < t.address + t.size
            and t.address < k.address + k.size
            for k in kept
        ):
            kept.append(t)
    return kept


@dataclass(frozen=True, slots=True)
class _Weight:
    name: str
    size: int


def _weights(graph: Graph) -> list[_Weight]:
    """The constants of a graph, largest first."""
    found = {v: op for op in graph.walk() for v in op.ins if v.is_const}
    made = [
        _Weight((op.loc and op.loc.module) or op.name, v.type.size * v.dtype.bits // 8)
        for v, op in found.items()
    ]
    return sorted(made, key=lambda weight: -weight.size)


def _place(tensor: PlacedTensor) -> str:
    if tensor.name.startswith("WB_"):
        return "weights on their way into the NPU"
    module = tensor.loc.module if tensor.loc else ""
    return f"{tensor.name} ({module})" if module else tensor.name


def compile_graph(
    graph: Graph, config: VelaConfig, meanwhile: Callable[[Model], None] | None = None
) -> Delegate:
    """Run Vela on a graph; ToolFailed with its words where it does not take it.

    ``meanwhile`` is called with the interpreter of the graph while Vela compiles the graph's file,
    so that a stream that equals it says of the file that it is right as well.
    """
    tosa = flatbuffer.write(graph)
    if _DATABASE not in config.flags:
        config = replace(config, flags=(*config.flags, _DATABASE))
    model: Model | None = None
    if meanwhile is None:
        result = run_vela(tosa, config)
    else:
        with ThreadPoolExecutor(1) as waiting:
            compiled = waiting.submit(run_vela, tosa, config)
            try:
                model = Model(graph)
                meanwhile(model)
                result = compiled.result()
            except KeyboardInterrupt:
                compiled.cancel()
                while not compiled.done():  # or the thread would wait for Vela, begun or not
                    vela_processes.stop()
                    wait([compiled], _PAUSE)
                raise
    sources = _sources(graph, result.database)
    return Delegate(
        graph, tosa, result=result, operators=tuple(_costs(graph, result.database, sources)),
        tensors=tuple(_tensors(graph, result.database, sources)), known_model=model,
        clock=clock(config),
    )  # fmt: skip


def _rows(database: Mapping[str, Table], name: str) -> Iterator[dict[str, str]]:
    table = database.get(name)
    for row in table.rows if table is not None else ():
        yield dict(zip(table.header, row))  # type: ignore[union-attr]


def _sources(graph: Graph, database: Mapping[str, Table]) -> dict[str, Op]:
    """The operator behind each of Vela's sources: both lists have the order of the file."""
    rows = [r for r in _rows(database, "source") if not r["operator"].startswith("Const")]
    rows.sort(key=lambda row: int(row["ext_key"]))
    if len(rows) != len(graph.ops):
        return {}  # regions have sources of their own
    return {row["id"]: op for row, op in zip(rows, graph.ops)}


def origins(graph: Graph, database: Mapping[str, Table]) -> dict[int, Origin]:
    """The operator that a command comes from, by its offset: the last command of each.

    Nothing where Vela has no such list, or where it is of other operators than the graph's.
    """
    sources = _sources(graph, database)
    made = {
        row["id"]: Origin(sources.get(row["source_id"]), row["operator"])
        for row in _rows(database, "perf")
    }
    queue = [row for row in _rows(database, "queue") if row["scheduled_id"] in made]
    return {int(row["offset"]): made[row["scheduled_id"]] for row in queue} if sources else {}


def _costs(
    graph: Graph, database: Mapping[str, Table], sources: Mapping[str, Op]
) -> Iterator[OperatorCost]:
    places = {op: index for index, op in enumerate(graph.ops)}
    details = {row["id"]: row for row in _rows(database, "perf_debug")}
    stages = {row["id"]: row for row in _rows(database, "perf_debug_main")}
    for row in _rows(database, "perf"):
        op, detail = sources.get(row["source_id"]), details.get(row["id"], {})
        traffic = {k.removesuffix("_ac"): int(v or 0) for k, v in row.items() if k.endswith("_ac")}
        yield OperatorCost(
            row["operator"], op.name if op else "", op.loc if op else None,
            int(row["op_cycles"] or 0), int(row["mac_count"] or 0), traffic,
            {memory: _moved(detail, memory) for memory in traffic},
            places.get(op) if op else None, int(detail.get("time_index") or 0),
            _bound(stages.get(row["id"], {}), traffic),
        )  # fmt: skip


def _bound(stages: Mapping[str, str], traffic: Mapping[str, int]) -> str:
    """What takes longest in an operation: multiplying, work by element, or access to a memory."""
    cycles = {
        "MACs": int(stages.get("mac_cycles") or 0),
        "elements": int(stages.get("ao_cycles") or 0),
    }
    cycles |= {_MEMORIES[memory]: count for memory, count in traffic.items() if memory in _MEMORIES}
    longest = max(cycles, key=lambda name: cycles[name])
    return longest if cycles[longest] else ""


def _moved(detail: Mapping[str, str], memory: str) -> int:
    """Bytes that an operation reads from a memory and writes to it."""
    columns = (f"{memory}{kind}_{way}" for kind in _KINDS for way in ("read", "write"))
    return sum(int(detail.get(column) or 0) for column in columns)


def _tensors(
    graph: Graph, database: Mapping[str, Table], sources: Mapping[str, Op]
) -> Iterator[PlacedTensor]:
    places = {op: index for index, op in enumerate(graph.ops)}
    named = {row["name"]: sources.get(row["source_id"]) for row in _rows(database, "perf")}
    for row in _rows(database, "tensors"):
        op = named.get(row["name"])
        yield PlacedTensor(
            row["name"], row["memory"], int(row["start_address"], 0), int(row["size"], 0),
            int(row["start_time"]), int(row["end_time"]), op.loc if op else None,
            places.get(op) if op else None,
        )  # fmt: skip
