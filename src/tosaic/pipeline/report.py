"""The report of a compilation: data, and a table to read."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tosaic.ir.graph import Graph, Op, Quant, Unsigned, Value
from tosaic.lowering.partition import Partition, Refusal
from tosaic.lowering.target import Compiled, Estimate
from tosaic.pipeline.interface import Boundary as Interface
from tosaic.runtime.printed import Printed, grid

if TYPE_CHECKING:
    from tosaic.pipeline.quantization import Quantization

_LINE = 72  # characters of a line of source
_SHOWN = 12  # modules in a table of costs
_POSSESSIVE = "'s estimate"


@dataclass(frozen=True, slots=True)
class Boundary:
    """A tensor that enters or leaves a compiled graph."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    quant: Quant | None

    @property
    def meaning(self) -> str:
        """Scale and zero point in words."""
        if self.quant is None:
            return ""
        return f"scale {self.quant.scale:.6g}, zero point {self.quant.zero_point}"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a module of the model costs on a device, by its compiler's estimate."""

    module: str
    cycles: int
    macs: int


@dataclass(frozen=True, slots=True)
class Costs:
    """What a graph costs, and who says so: cycles, bytes of memory, and cycles by module."""

    by: str
    cycles: int
    scratch: int
    flash: int
    memories: dict[str, int]
    transposes: int
    modules: tuple[Cost, ...]
    unit: str = "cycles"


@dataclass(frozen=True, slots=True)
class Delegate:
    """One compiled graph."""

    ops: dict[str, int]
    macs: int
    inputs: tuple[Boundary, ...]
    outputs: tuple[Boundary, ...]
    estimate: Costs | None = None
    checks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report(Printed):
    """Which operators a program became, in how many graphs, and what stays in PyTorch and why."""

    target: str
    delegates: tuple[Delegate, ...]
    refused: list[Refusal] = field(default_factory=list)
    boundary: Interface = field(default_factory=Interface)
    quantization: Quantization | None = None

    @property
    def ops(self) -> dict[str, int]:
        """How often each TOSA operator is used."""
        counts: Counter[str] = Counter()
        for delegate in self.delegates:
            counts.update(delegate.ops)
        return dict(counts.most_common())

    @property
    def macs(self) -> int:
        """Multiplications of convolutions and matrix products."""
        return sum(delegate.macs for delegate in self.delegates)

    def parts(self) -> Iterable[Any]:
        yield (
            f"{self.target}: {_count(sum(self.ops.values()), 'operator')} in "
            f"{_count(len(self.delegates), 'graph')}, {self.macs:,} multiply-accumulates"
        )
        if self.ops:
            table = grid("TOSA operator", "count", numbers=["count"])
            for name, count in self.ops.items():
                table.add_row(name, str(count))
            yield table
        if self.boundary.inputs or self.boundary.outputs:
            yield _interface_table(self.boundary)
        for number, delegate in enumerate(self.delegates):
            yield _boundary_table(number, delegate)
            if delegate.estimate is not None:
                yield from _cost_tables(number, delegate.estimate)
            for sentence in delegate.checks:
                yield f"Graph {number}, {sentence}."
        if self.quantization is not None:
            yield f"{self.quantization.summary}\n"
        yield from refusals(self.refused)


def report_of(
    target: str, partition: Partition, compiled: Sequence[Compiled], boundary: Interface,
    quantization: Quantization | None,
) -> Report:  # fmt: skip
    """A report on the graphs of a partition, with estimates where a compiler has made them."""
    known = ((each.graph, each.estimate) for each in compiled)
    estimates = {id(graph): _costs(told) for graph, told in known if told is not None}
    made = [
        _delegate(piece.graph, estimates.get(id(piece.graph)), tuple(piece.checks))
        for piece in partition.pieces
        if piece.graph is not None
    ]
    return Report(target, tuple(made), list(partition.refused), boundary, quantization)


def _costs(made: Estimate) -> Costs:
    modules: dict[str, list[int]] = {}
    for cost in made.operators:
        total = modules.setdefault((cost.loc and cost.loc.module) or "", [0, 0])
        total[0], total[1] = total[0] + cost.cycles, total[1] + cost.macs
    costs = [Cost(name, *total) for name, total in modules.items()]
    return Costs(
        made.by, made.cycles, made.scratch, made.flash, dict(made.memories),
        sum(c.cycles for c in made.operators if c.op == "TRANSPOSE"),
        tuple(sorted(costs, key=lambda cost: (-cost.cycles, -cost.macs))), made.unit,
    )  # fmt: skip


def _cost_tables(number: int, told: Costs) -> Iterable[Any]:
    share = told.transposes / max(told.cycles, 1)
    turned = f", {share:.0%} of them transpositions" if share >= 0.01 else ""
    memories = ", ".join(f"{n} {size:,}" for n, size in told.memories.items() if size)
    taken = f"{told.cycles:,} {told.unit}{turned}; " if told.cycles else ""
    yield (
        f"Graph {number} on the device, by {told.by}{_POSSESSIVE if taken else ''}: {taken}"
        f"bytes: scratch {told.scratch:,}, flash {told.flash:,} ({memories})"
    )
    numbers = [told.unit, "share", "multiplications"]
    table = grid("module", *numbers, numbers=numbers)
    for cost in told.modules[:_SHOWN]:
        part = f"{cost.cycles / max(told.cycles, 1):.0%}"
        table.add_row(cost.module or "(none)", f"{cost.cycles:,}", part, f"{cost.macs:,}")
    if len(told.modules) > _SHOWN:
        rest = sum(cost.cycles for cost in told.modules[_SHOWN:])
        table.add_row(f"{len(told.modules) - _SHOWN} more", f"{rest:,}")
    yield table


def refusals(refused: list[Refusal]) -> Iterable[Any]:
    """The calls that stay in PyTorch, with the user's own line of source."""
    if not refused:
        yield "Everything is compiled; nothing stays in PyTorch."
        return
    table = grid(
        "stays in PyTorch", "why", "where", title=_count(len(refused), "call") + " refused"
    )
    for refusal in refused:
        source = source_line(refusal.where)
        source = source if len(source) <= _LINE else source[: _LINE - 1] + "…"
        table.add_row(refusal.op, refusal.reason, refusal.where + (f"\n{source}" if source else ""))
    yield table


def source_line(where: str) -> str:
    """The text of the line that a place ends with, if it can be read."""
    file, _, line = where.rpartition(", ")[2].rpartition(":")
    return linecache.getline(file, int(line)).strip() if line.isdigit() else ""


def _delegate(graph: Graph, estimate: Costs | None, checks: tuple[str, ...]) -> Delegate:
    ops = list(graph.walk())
    return Delegate(
        dict(Counter(op.name for op in ops)),
        sum(map(macs, ops)),
        tuple(map(_boundary, graph.inputs)),
        tuple(map(_boundary, graph.outputs)),
        estimate,
        checks,
    )


def _boundary(value: Value) -> Boundary:
    kind = "u8" if isinstance(value.quant, Unsigned) else str(value.dtype)
    return Boundary(value.name, kind, tuple(value.shape), value.quant)


def _boundary_table(number: int, delegate: Delegate) -> Any:
    table = grid("", "name", "type", "shape", "meaning", title=f"Graph {number}")
    for way, tensors in (("in", delegate.inputs), ("out", delegate.outputs)):
        for t in tensors:
            table.add_row(way, t.name, t.dtype, "×".join(map(str, t.shape)) or "scalar", t.meaning)
    return table


def _interface_table(boundary: Interface) -> Any:
    table = grid("", "name", "type", "shape", "in memory", "meaning", title="The whole program")
    for way, tensors in (("in", boundary.inputs), ("out", boundary.outputs)):
        for t in tensors:
            shape = "×".join(map(str, t.shape)) or "scalar"
            order = "" if t.is_contiguous else "×".join(str(t.shape[axis]) for axis in t.dim_order)
            table.add_row(way, t.name, t.dtype, shape, order, t.meaning)
    return table


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def macs(op: Op) -> int:
    """Multiplications of a convolution or a matrix product."""
    known = _MACS.get(op.name)
    return known(op) if known is not None and op.outs else 0


def _of_convolution(op: Op) -> int:
    weight = op.operand("weight").type
    return op.outs[0].type.size * weight.size // weight.shape[0]


def _of_depthwise(op: Op) -> int:
    weight = op.operand("weight").shape
    return op.outs[0].type.size * weight[0] * weight[1]


def _of_transposed(op: Op) -> int:
    return op.ins[0].type.size * op.operand("weight").type.size // op.ins[0].shape[-1]


_MACS: dict[str, Callable[[Op], int]] = {
    **dict.fromkeys(("CONV2D", "CONV3D"), _of_convolution),
    **dict.fromkeys(("MATMUL", "MATMUL_T"), lambda op: op.outs[0].type.size * op.ins[0].shape[2]),
    "TRANSPOSE_CONV2D": _of_transposed,
    "DEPTHWISE_CONV2D": _of_depthwise,
}
