"""Forms of a program with 8 and 16 bits, each quantized, lowered and measured once.

Accuracy is that of the lowered program in the exact interpreter on calibration data that was held
out. Costs are those of the target's compiler, or of an estimate of work where it tells none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from tosaic.front import torchapi
from tosaic.front.hints import CALL
from tosaic.front.imported import Imported
from tosaic.ir.graph import Loc
from tosaic.lowering.target import Estimate, Target
from tosaic.pipeline import driver
from tosaic.pipeline.allocation import Widths
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.goals import Goal, Point
from tosaic.pipeline.macs import macs
from tosaic.pipeline.sensitivity import Sensitivities, sensitivities
from tosaic.quant.flow import given, quantized
from tosaic.quant.inputs import Arguments
from tosaic.quant.selection import Schemes
from tosaic.quant.value_names import mark_calls
from tosaic.runtime.progress import say
from tosaic.targets.catalog import target_of

_PROBED = 4  # inputs that sensitivities are measured with at most


@dataclass(slots=True)
class Tried:
    """A form: what its calls read and give, what it became, and what was measured of it."""

    widths: Widths
    artifact: Artifact
    point: Point
    is_costed: bool = False

    @property
    def noise(self) -> float:
        """Of the outputs, over their power."""
        return float(10 ** (-self.point.sqnr / 10))

    @property
    def left(self) -> int:
        """Calls that stay in PyTorch."""
        return len(self.artifact.partition.refused)


@dataclass(slots=True)
class Forms:
    """The forms of one program that were tried."""

    source: Imported
    examples: tuple[Any, ...]
    target: Target
    goal: Goal
    used: Mapping[str, Any]
    io: Any
    seen: list[Any]
    held: list[Any]
    names: dict[str, str] = field(default_factory=dict)
    real: list[list[Tensor]] = field(default_factory=list)
    least_score: float = -math.inf
    tried: dict[Widths, Tried] = field(default_factory=dict)
    is_estimated: bool = False  # the target's compiler tells cycles; known once int8 is compiled

    def __post_init__(self) -> None:
        assert isinstance(self.source.model, ExportedProgram)
        module = torchapi.module_of(self.source.model)
        mark_calls(module)
        calls = [n for n in module.graph.nodes if n.op == "call_function"]
        self.names = {n.meta[CALL]: n.name for n in calls}
        self.real = self._float(module)
        if self.goal.metric is not None:
            self.least_score = float(self.goal.metric(self._original(module))) - self.goal.drop

    @property
    def every(self) -> Widths:
        """All calls with 16 bits."""
        calls = frozenset(self.names.values())
        return Widths(calls, calls)

    def _float(self, module: fx.GraphModule) -> list[list[Tensor]]:
        data, examples = given(self.source, self.examples, self.held)
        count = self.source.changes.count
        found = []
        with torch.no_grad():
            for leaves in Arguments(module, examples).each(data or []):
                flat = torchapi.flatten(
                    fx.Interpreter(module).run(*leaves, enable_io_processing=False)
                )[0]
                found.append(_reals(flat[: len(flat) - count]))
        return found

    def _original(self, module: fx.GraphModule) -> Any:
        def run(*inputs: Any) -> Any:
            arguments = Arguments(module, self.examples)
            (leaves,) = arguments.each([inputs])
            with torch.no_grad():
                made = fx.Interpreter(module).run(*leaves, enable_io_processing=False)
            flat = torchapi.flatten(made)[0]
            return torchapi.unflatten(flat, self.source.out_spec)

        return run

    def _schemes(self, widths: Widths) -> Any:
        if widths == self.every:
            return "a16w8"
        parts = {call: widths.scheme(call) for call in sorted(widths.calls)}
        return Schemes("int8", nodes=parts) if parts else "int8"

    def measured(self, widths: Widths, name: str = "mixed") -> Tried:
        """Quantize, lower and run a form."""
        if widths in self.tried:
            return self.tried[widths]
        say(f"automatic precision: {name}, {len(widths.calls)} calls with 16 bits")
        program = driver.program_from(
            self.source, self.examples, self.target, self._schemes(widths), self.seen, self.io
        )
        quick = replace(self.target, emit=None, judge=None, cost=None, engines={})
        made = driver.artifact_of(program, quick, [*self.seen[:1], self.examples], self.used)
        score = self.goal.metric(_runner(made)) if self.goal.metric is not None else None
        point = Point(name, len(widths.calls), self._sqnr(made), 0.0, 0, score)
        self.tried[widths] = Tried(widths, made, point)
        return self.tried[widths]

    def costed(self, tried: Tried, is_last: bool = False) -> Tried:
        """The same with what it costs; the stream is checked of the ``last`` alone."""
        if tried.is_costed and not is_last:
            return tried
        target = self.target
        if target.emit is not None:
            if not is_last:
                options = {**target.options, "check": False}
                target = replace(target, emit=target_of(target.name, options).emit, check=False)
            tried.artifact = driver.artifact_of(
                tried.artifact.program, target, [*self.seen[:1], self.examples], self.used
            )
        told = estimates(tried.artifact)
        self.is_estimated |= any(t.cycles for t in told)
        cost = sum(t.cycles for t in told) if self.is_estimated else _work(tried.artifact)
        sram = max((t.scratch for t in told), default=0)
        tried.point = replace(tried.point, cost=cost, sram=sram)
        tried.is_costed = True
        return tried

    def _sqnr(self, made: Artifact) -> float:
        """Signal over noise on held-out data, the mean over the outputs."""
        made.reset()
        outputs = []
        for item in self.held:
            arguments = item if isinstance(item, tuple) else (item,)
            found = (
                made.run(**item) if isinstance(item, Mapping) else made.run(*arguments, raw=False)
            )
            outputs.append(_reals(torchapi.flatten(found)[0]))
        made.reset()
        figures = []
        for got, real in zip(zip(*outputs), zip(*self.real)):
            power = sum(float(r.double().square().sum()) for r in real)
            noise = sum(float((g.double() - r.double()).square().sum()) for g, r in zip(got, real))
            figures.append(10 * math.log10(max(power, 1e-30) / max(noise, 1e-12 * power, 1e-30)))
        return sum(figures) / max(len(figures), 1)

    def fits(self, tried: Tried) -> bool:
        """Whether a form reaches the goal, or keeps within the budget."""
        goal, point = self.goal, tried.point
        if goal.sqnr is not None:
            return point.sqnr >= goal.sqnr
        if goal.metric is not None:
            return point.score is not None and point.score >= self.least_score
        point = self.costed(tried).point
        return (
            point.cost <= goal.cycles if goal.cycles is not None else point.sram <= (goal.sram or 0)
        )

    def sensitivities(self, is_over: Any) -> Sensitivities:
        """What each rounding of the int8 form leaves at the outputs."""
        say("automatic precision: what each rounding to 8 bits leaves")
        module = quantized(
            self.source, self.examples, scheme="int8", calibration=self.seen, target=self.target
        ).model
        assert isinstance(module, fx.GraphModule)
        data, examples = given(self.source, self.examples, self.held[:_PROBED])
        leaves = list(Arguments(module, examples).each(data or []))
        return sensitivities(module, leaves, self.names, is_over)

    def extra_costs(self, low: Tried, high: Tried) -> dict[str, float]:
        """What 16 bits of each call cost more than 8, by the target's estimate for its place."""
        eight, sixteen = (_by_place(t.artifact) for t in (low, high))
        places = dict[str, Loc]()
        for node in high.artifact.program.calls:
            name = self.names.get(str(node.meta.get(CALL, "")))
            if name is not None:
                places.setdefault(name, torchapi.location(node))
        shared = Counter(places.values())
        return {
            name: (sixteen.get(place, 0.0) - eight.get(place, 0.0)) / shared[place]
            for name, place in places.items()
        }


def estimates(made: Artifact) -> list[Estimate]:
    """What the target's compiler says of each graph, where it says anything."""
    return [d.estimate for d in made.delegates if d.estimate is not None]


def _by_place(made: Artifact) -> dict[Loc | None, float]:
    found: dict[Loc | None, float] = {}
    for cost in (cost for told in estimates(made) for cost in told.operators):
        found[cost.loc] = found.get(cost.loc, 0.0) + cost.cycles
    if not found:
        for graph in made.partition.graphs:
            for op in graph.walk():
                found[op.loc] = found.get(op.loc, 0.0) + _op_work(op)
    return found


def _work(made: Artifact) -> float:
    return sum(_op_work(op) for graph in made.partition.graphs for op in graph.walk())


def _op_work(op: Any) -> float:
    """Bytes written and multiplications, of which 16 bits take twice as long."""
    if not op.outs:
        return 0.0
    bits = max((v.dtype.bits for v in op.ins if not v.is_const), default=8)
    return float(op.outs[0].type.size) * bits / 8 + macs(op) * (2 if bits > 8 else 1) / 16


def _reals(values: Iterable[Any]) -> list[Tensor]:
    return [v for v in values if isinstance(v, Tensor) and v.is_floating_point()]


def _runner(made: Artifact) -> Any:
    def run(*inputs: Any, **named: Any) -> Any:
        return made.run(*inputs, raw=False, **named)

    return run
