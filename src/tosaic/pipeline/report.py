"""The report of a compilation: data, and a table to read."""

from __future__ import annotations

import linecache
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tosaic.boundary.interface import Boundary as Interface
from tosaic.ir.graph import Graph, Loc, Quant, Unsigned, Value
from tosaic.lowering.partition import Partition, Piece, Refusal, called
from tosaic.lowering.target import Compiled, Estimate
from tosaic.pipeline.accuracy import OutputAccuracy, listed
from tosaic.pipeline.checked import checked
from tosaic.pipeline.goals import Precision
from tosaic.pipeline.macs import macs
from tosaic.runtime.printed import Printed, grid, plain
from tosaic.runtime.timing import Timing

if TYPE_CHECKING:
    from tosaic.pipeline.quantization import Quantization

_LINE = 72  # characters of a line of source
_PLACES = 3  # of refusals that are told together
_SHOWN = 12  # modules in a table of costs
_GRAPHS = 8  # graphs that are printed one by one


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
        if isinstance(self.quant.scale, tuple):
            return f"{len(self.quant.scale)} scales along axis {self.quant.axis}"
        return f"scale {self.quant.scale:.6g}, zero point {self.quant.zero_point}"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a module of the model costs on a device, by its compiler's estimate."""

    module: str
    cycles: int
    macs: int
    bound: str = ""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a graph costs, and who says so: cycles, bytes of memory, and cycles by module.

    ``flash`` is what has to be stored, in its ``flash_parts``; ``clock`` is in hertz.
    """

    by: str
    cycles: int
    scratch: int
    flash: int
    memories: dict[str, int]
    transposes: int
    modules: tuple[Cost, ...]
    flash_parts: dict[str, int] = field(default_factory=dict)
    clock: float = 0.0
    unit: str = "cycles"

    @property
    def source(self) -> str:
        """Who tells cycles or instructions, in words; without these, who tells the memory."""
        kind = "count" if self.unit == "instructions" else "estimate"
        return f"{self.by}'s {kind}" if self.cycles else self.by

    @property
    def milliseconds(self) -> float | None:
        """How long a run takes at the clock, if that is known."""
        return 1e3 * self.cycles / self.clock if self.clock else None


@dataclass(frozen=True, slots=True)
class Delegate:
    """One compiled graph, and how often a run calls it."""

    ops: dict[str, int]
    macs: int
    inputs: tuple[Boundary, ...]
    outputs: tuple[Boundary, ...]
    estimate: Costs | None = None
    checks: tuple[str, ...] = ()
    place: str = "the device"
    calls: int = 1


@dataclass(frozen=True)
class Report(Printed):
    """Which operators a program became, in how many graphs, and what stays in PyTorch and why."""

    target: str
    delegates: tuple[Delegate, ...]
    refused: list[Refusal] = field(default_factory=list)
    boundary: Interface = field(default_factory=Interface)
    quantization: Quantization | None = None
    settings: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    file_sizes: dict[str, int] = field(default_factory=dict)
    precision: Precision | None = None
    timing: Timing = field(default_factory=Timing)
    sizes: dict[str, Report] = field(default_factory=dict)  # of each size, if there are several
    hosted: list[Refusal] = field(default_factory=list)  # calls that the host is faster at
    accuracy: tuple[OutputAccuracy, ...] = ()  # beside float, on one example

    @property
    def cycles(self) -> int | None:
        """Cycles of all graphs on the device; None where nobody estimates them."""
        return self._counted(self.unit)

    @property
    def host_instructions(self) -> int:
        """Instructions of the graphs on the processor beside the device, where they are counted."""
        return (self._counted("instructions") or 0) if self.unit != "instructions" else 0

    def _counted(self, unit: str) -> int | None:
        known = [(d.calls, d.estimate) for d in self.delegates if d.estimate is not None]
        total = sum(n * e.cycles for n, e in known if e.unit == unit)
        is_counted = bool(known) and (total > 0 or unit == "cycles")  # instructions may not be
        return total if is_counted else None

    @property
    def unit(self) -> str:
        """What ``cycles`` counts: cycles, or instructions of a CPU."""
        return next((d.estimate.unit for d in self.delegates if d.estimate is not None), "cycles")

    @property
    def sram(self) -> int | None:
        """Bytes of SRAM that all graphs share: the arena, or its cache where that lies in DRAM."""
        told = [d.estimate for d in self.delegates if d.estimate is not None]
        sizes = [e.memories.get("Sram", 0) if e.memories.get("Dram") else e.scratch for e in told]
        return max(sizes, default=None)

    @property
    def flash(self) -> int | None:
        """Bytes of weights and commands of all graphs."""
        told = [d.estimate.flash for d in self.delegates if d.estimate is not None]
        return sum(told) if told else None

    @property
    def milliseconds(self) -> float | None:
        """How long a run of all graphs takes at the clock of the configuration."""
        told = [(d, d.estimate.milliseconds) for d in self.delegates if d.estimate is not None]
        known = [d.calls * time for d, time in told if time is not None]
        return sum(known) if known and len(known) == len(self.delegates) else None

    @property
    def headline(self) -> str:
        """All of it in a line."""
        words = [
            f"{self.target}: {_count(sum(self.ops.values()), 'operator')} in "
            f"{_count(len(self.delegates), 'graph')}, {self.macs:,} multiply-accumulates"
        ]
        if self.cycles is not None:
            words.append(f"{self.cycles:,} {self.unit}{_time(self.milliseconds)}")
        if self.host_instructions:
            words.append(f"{self.host_instructions:,} instructions on the processor beside it")
        if self.sram is not None and self.flash:
            words.append(f"SRAM {self.sram:,} and flash {self.flash:,} bytes")
        if self.refused:
            words.append(f"{_count(len(self.refused), 'call')} on the CPU")
        return ", ".join(words)

    def as_html(self) -> str:
        """A short table for notebooks."""
        from html import escape

        rows = [
            ("target", self.target), ("TOSA operators", f"{sum(self.ops.values()):,}"),
            ("graphs", f"{len(self.delegates):,}"), ("multiply-accumulates", f"{self.macs:,}"),
        ]  # fmt: skip
        if self.cycles is not None:
            rows.append((self.unit, f"{self.cycles:,}{_time(self.milliseconds)}"))
        if self.sram is not None:
            rows += [("SRAM, bytes", f"{self.sram:,}"), ("flash, bytes", f"{self.flash:,}")]
        rows.append(("calls on the CPU", f"{len(self.refused):,}"))
        cells = (f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
        return f"<table>{''.join(cells)}</table>"

    def data(self) -> Any:
        """The same as plain data, for JSON, with the totals of all graphs."""
        totals = {
            "macs": self.macs, "cycles": self.cycles, "sram": self.sram, "flash": self.flash,
            "milliseconds": self.milliseconds,
        }  # fmt: skip
        return {**plain(self), **totals}

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
        return sum(delegate.calls * delegate.macs for delegate in self.delegates)

    def parts(self) -> Iterable[Any]:
        yield self.headline
        if self.sizes:
            yield _size_table(self.sizes)
        if self.ops:
            table = grid("TOSA operator", "count", numbers=["count"])
            for name, count in self.ops.items():
                table.add_row(name, str(count))
            yield table
        if self.boundary.inputs or self.boundary.outputs:
            yield _interface_table(self.boundary)
        for number, delegate in enumerate(self.delegates[:_GRAPHS]):
            yield _boundary_table(number, delegate)
            if delegate.estimate is not None:
                yield from _cost_tables(number, delegate.estimate, delegate.place)
        if (rest := len(self.delegates) - _GRAPHS) > 0:
            yield f"{rest} more graphs, which the page (.html) and the data (--json) have."
        for graphs, told in checked([delegate.checks for delegate in self.delegates]):
            yield f"{graphs.capitalize()}, {told}."
        if self.accuracy:
            yield f"SQNR against float on one example: {listed(self.accuracy)}."
        if self.quantization is not None:
            yield f"{self.quantization.summary}\n"
        if self.precision is not None:
            yield from self.precision.parts()
        yield from placements(self.hosted)
        yield from refusals(self.refused, bool(self.hosted))


def _size_table(sizes: dict[str, Report]) -> Any:
    unit = next(iter(sizes.values())).unit
    numbers = ["multiply-accumulates", unit, "SRAM", "flash"]
    table = grid("size", *numbers, numbers=numbers, title="Sizes; what follows is of the first")
    for name, told in sizes.items():
        costs = ("" if n is None else f"{n:,}" for n in (told.cycles, told.sram, told.flash))
        table.add_row(name, f"{told.macs:,}", *costs)
    return table


def report_of(
    target: str, partition: Partition, compiled: Sequence[Compiled], boundary: Interface,
    quantization: Quantization | None, settings: dict[str, str], versions: dict[str, str],
    sizes: dict[str, int], precision: Precision | None, timing: Timing,
    accuracy: tuple[OutputAccuracy, ...] = (),
) -> Report:  # fmt: skip
    """A report on the graphs of a partition, with estimates where a compiler has made them."""
    known = ((each.graph, each.estimate) for each in compiled)
    estimates = {id(graph): _costs(graph, told) for graph, told in known if told is not None}
    made = [
        _delegate(piece, piece.graph, estimates.get(id(piece.graph)), calls)
        for piece, calls in called(partition.pieces)
        if piece.graph is not None
    ]
    return Report(
        target, tuple(made), list(partition.refused), boundary, quantization, settings, versions,
        sizes, precision, timing, hosted=list(partition.hosted), accuracy=accuracy,
    )  # fmt: skip


def _costs(graph: Graph, made: Estimate) -> Costs:
    """Cycles by module as the compiler has them; multiplications are those of the graph."""
    cycles, products = Counter[str](), Counter[str]()
    bounds: dict[str, Counter[str]] = {}
    for op in graph.walk():
        products[_module(op.loc)] += macs(op)
    for cost in made.operators:
        name = _module(cost.loc)
        cycles[name] += cost.cycles
        # A pool takes the time of multipliers, too, and multiplies nothing.
        bound = cost.bound if cost.bound != "MACs" or products[name] else "elements"
        bounds.setdefault(name, Counter())[bound] += cost.cycles
    named = dict.fromkeys([*cycles, *(name for name, count in products.items() if count)])
    costs = [
        Cost(name, cycles[name], products[name], bounds[name].most_common(1)[0][0]
             if name in bounds else "")
        for name in named
    ]  # fmt: skip
    return Costs(
        made.by, made.cycles, made.scratch, made.flash, dict(made.memories),
        sum(c.cycles for c in made.operators if c.op == "TRANSPOSE"),
        tuple(sorted(costs, key=lambda cost: (-cost.cycles, -cost.macs))),
        dict(made.flash_parts), made.clock, made.unit,
    )  # fmt: skip


def _module(loc: Loc | None) -> str:
    return loc.module if loc is not None else ""


def _time(milliseconds: float | None) -> str:
    """Milliseconds and runs a second behind a number of cycles; nothing where no clock is known."""
    if not milliseconds:
        return ""
    return f" ({milliseconds:.3g} ms, {_rate(1e3 / milliseconds)} inferences a second)"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _cost_tables(number: int, told: Costs, place: str) -> Iterable[Any]:
    share = told.transposes / max(told.cycles, 1)
    transposed = f", {share:.0%} of them transpositions" if share >= 0.01 else ""
    memories = ", ".join(f"{n} {size:,}" for n, size in told.memories.items() if size)
    parts = ", ".join(f"{name} {size:,}" for name, size in told.flash_parts.items())
    clock = f" at {told.clock / 1e6:,.0f} MHz" if told.clock else ""
    taken = f"{told.cycles:,} {told.unit}{_time(told.milliseconds)}{clock}{transposed}; "
    yield (
        f"Graph {number} on {place}, by {told.source}: "
        f"{taken if told.cycles else ''}bytes: scratch {told.scratch:,}, flash "
        f"{told.flash:,}{f' ({parts})' if parts else ''}; at the peak: {memories or 'not told'}"
    )
    numbers = [told.unit, "share", "multiplications"]
    has_bounds = any(cost.bound for cost in told.modules)
    table = grid("module", *numbers, *["bound by"] * has_bounds, numbers=numbers)
    for cost in told.modules[:_SHOWN]:
        part = f"{cost.cycles / max(told.cycles, 1):.0%}"
        table.add_row(cost.module or "(model)", f"{cost.cycles:,}", part, f"{cost.macs:,}",
                      *[cost.bound] * has_bounds)  # fmt: skip
    if len(told.modules) > _SHOWN:
        rest = sum(cost.cycles for cost in told.modules[_SHOWN:])
        table.add_row(f"{len(told.modules) - _SHOWN} more", f"{rest:,}")
    yield table


def placements(hosted: list[Refusal]) -> Iterable[str]:
    """The calls that the host is faster at, with what each side takes."""
    for call in hosted:
        yield f"On the host by choice: {call.op} ({call.where}): {call.reason}."


def refusals(refused: list[Refusal], has_hosted: bool = False) -> Iterable[Any]:
    """The calls that stay in PyTorch, with the user's own line of source."""
    if not refused:
        yield (
            "Everything else is compiled; nothing is refused." if has_hosted
            else "Everything is compiled; nothing stays in PyTorch."
        )  # fmt: skip
        return
    table = grid(
        "stays in PyTorch", "why", "where", title=_count(len(refused), "call") + " refused"
    )
    for same in grouped(refused):
        places = Counter(_shown(refusal.where) for refusal in same)
        named = [text for text, _ in places.most_common(_PLACES)]
        if len(places) > _PLACES:
            named.append(f"and {len(places) - _PLACES} more places")
        times = f"{len(same)} × " if len(same) > 1 else ""
        table.add_row(times + same[0].op, same[0].reason, "\n".join(named))
    yield table


_NUMBERED = re.compile(r"\b([a-z]+(?:_[a-z]+)*)_\d+(?= (?:has|is|may|needs)\b)")


def grouped(refused: Iterable[Refusal]) -> list[list[Refusal]]:
    """Refusals of one operator for one reason, together, in the order of the first of each.

    Reasons that differ in the number of a value alone (``add_3``, ``add_12``) are one.
    """
    found: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in refused:
        reason = _NUMBERED.sub(r"\1", refusal.reason)
        found.setdefault((refusal.op, reason), []).append(refusal)
    return list(found.values())


def _shown(where: str) -> str:
    """A place, and the line of source there."""
    source = source_line(where)
    source = source if len(source) <= _LINE else source[: _LINE - 1] + "…"
    return where + (f"\n{source}" if source else "")


def source_line(where: str) -> str:
    """The text of the line that a place ends with, if it can be read."""
    file, _, line = where.rpartition(", ")[2].rpartition(":")
    return linecache.getline(file, int(line)).strip() if line.isdigit() else ""


def _delegate(piece: Piece, graph: Graph, estimate: Costs | None, calls: int) -> Delegate:
    ops = list(graph.walk())
    return Delegate(
        dict(Counter(op.name for op in ops)),
        sum(map(macs, ops)),
        tuple(map(_boundary, graph.inputs)),
        tuple(map(_boundary, graph.outputs)),
        estimate,
        tuple(piece.checks),
        "the device" if piece.host is None else piece.host.name,
        calls,
    )


def _boundary(value: Value) -> Boundary:
    kind = "u8" if isinstance(value.quant, Unsigned) else str(value.dtype)
    return Boundary(value.name, kind, tuple(value.shape), value.quant)


def _boundary_table(number: int, delegate: Delegate) -> Any:
    table = grid("", "name", "type", "shape", "meaning", title=f"Graph {number}{_called(delegate)}")
    for way, tensors in (("in", delegate.inputs), ("out", delegate.outputs)):
        for t in tensors:
            table.add_row(way, t.name, t.dtype, "×".join(map(str, t.shape)) or "scalar", t.meaning)
    return table


def _called(delegate: Delegate) -> str:
    return f", called {delegate.calls:,} times" if delegate.calls > 1 else ""


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
