"""Automatic precision: as few 16-bit calls as a goal needs, or the most accurate form in a budget.

int8 and int16 activations are measured first. Between them lie the choices of a mixed-integer
program over measured sensitivities and the target's own costs; each that is tried is lowered, run
by the exact interpreter on calibration data that was held out, and compared with the float program.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.hints import CALL
from tosaic.front.imported import Imported
from tosaic.ir.graph import Loc
from tosaic.lowering.target import Estimate, Target
from tosaic.pipeline import driver
from tosaic.pipeline.allocation import cheapest
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.goals import ChosenCall, Goal, Point, Precision
from tosaic.pipeline.macs import macs
from tosaic.pipeline.sensitivity import Sensitivities, sensitivities
from tosaic.quant.calibrate import iterable
from tosaic.quant.calibration import Calibration
from tosaic.quant.flow import given, quantized
from tosaic.quant.inputs import Arguments
from tosaic.quant.selection import Schemes
from tosaic.quant.value_names import mark_calls
from tosaic.runtime.progress import say

_HELD_OUT = 4  # one of so many calibration inputs is for verification
_PROBED, _JUDGED = 4, 16  # inputs that sensitivities, and points, are measured with at most
_STEPS = 5  # points between int8 and a16w8
_NEAR = 0.5  # decibels above a goal that are near enough


@dataclass(frozen=True, slots=True)
class _Tried:
    """A form: the calls with 16 bits, what it became, and what was measured of it."""

    wide: frozenset[str]
    artifact: Artifact
    point: Point


@dataclass(slots=True)
class _Search:
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
    tried: dict[frozenset[str], _Tried] = field(default_factory=dict)
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

    def schemes(self, wide: frozenset[str]) -> Any:
        """The scheme in which those calls have 16 bits."""
        if wide == frozenset(self.names.values()):
            return "a16w8"
        return Schemes("int8", nodes=dict.fromkeys(sorted(wide), "a16w8")) if wide else "int8"

    def try_form(self, wide: frozenset[str], name: str = "mixed") -> _Tried:
        """Quantize, lower and measure a form; each once."""
        if wide in self.tried:
            return self.tried[wide]
        say(f"automatic precision: {name}, {len(wide)} calls with 16 bits")
        program = driver.program_from(
            self.source, self.examples, self.target, self.schemes(wide), self.seen, self.io
        )
        quick = replace(self.target, emit=None, judge=None, cost=None, engines={})
        wants_costs = self.goal.is_budget or not wide or name == "a16w8"
        made = driver.artifact_of(
            program,
            self.target if wants_costs else quick,
            [*self.seen[:1], self.examples],
            self.used,
        )
        score = self.goal.metric(_runner(made)) if self.goal.metric is not None else None
        told = _estimates(made)
        self.is_estimated |= bool(told)
        cost = sum(t.cycles for t in told) if self.is_estimated else _work(made)
        sram = max((t.scratch for t in told), default=0)
        point = Point(name, len(wide), self._sqnr(made), cost, sram, score)
        self.tried[wide] = _Tried(wide, made, point)
        return self.tried[wide]

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

    def fits(self, tried: _Tried) -> bool:
        """Whether a form reaches the goal, or keeps within the budget."""
        goal, point = self.goal, tried.point
        if goal.sqnr is not None:
            return point.sqnr >= goal.sqnr
        if goal.metric is not None:
            return point.score is not None and point.score >= self.least_score
        return (
            point.cost <= goal.cycles if goal.cycles is not None else point.sram <= (goal.sram or 0)
        )


def compile_auto(
    source: Imported,
    examples: tuple[Any, ...],
    target: Target,
    calibration: Any,
    goal: Goal,
    budget_s: float | None,
    options: Mapping[str, Any],
    io: Any,
) -> Artifact:
    """The cheapest form that reaches a goal, or the most accurate one within a budget."""
    if source.is_quantized:
        raise InvalidInput("the model is quantized already; give it without a scheme")
    if not target.env.has("int16"):
        raise InvalidInput(f'scheme="auto" chooses between 8 and 16 bits, and {target.env} has no '
                           "int16: compile for TOSA-1.0+INT+int16, or take int8")  # fmt: skip
    if calibration is None or isinstance(calibration, (str, Calibration)):
        raise InvalidInput('scheme="auto" measures on calibration data: give calibration inputs')
    start = time.monotonic()

    def is_over() -> bool:
        return budget_s is not None and time.monotonic() - start > budget_s

    seen, held = _parted(list(iterable(calibration)))
    used = {"scheme": "auto", "io": io, **options}
    search = _Search(source, examples, target, goal, used, io, seen, held)
    every = frozenset(search.names.values())
    low = search.try_form(frozenset(), "int8")
    if goal.is_budget and not search.is_estimated:
        raise InvalidInput(f"{target.name} has no estimate of cycles or SRAM: name a device")
    extra = dict[str, float]()
    found = Sensitivities((), ())
    if search.fits(low) and not goal.is_budget:
        return _finished(search, low, extra, found, "int8 reaches it")
    if goal.is_budget and not search.fits(low):
        return _finished(search, low, extra, found, "out of reach: int8 is beyond it")
    high = search.try_form(every, "a16w8")
    if goal.is_budget and search.fits(high):
        return _finished(search, high, extra, found, "a16w8 is within it")
    extra = _extra_costs(search, low, high)
    found = _measured(search, is_over)
    best = low if goal.is_budget else high
    if not goal.is_budget and not search.fits(high):
        best = max((low, high), key=lambda t: (t.point.score or 0, t.point.sqnr))
        bound = f"{best.point.sqnr:.1f} dB" if high.point.score is None else f"{best.point.score:g}"
        return _finished(search, best, extra, found, f"out of reach: {bound} is the most")
    best = _between(search, low, high, best, extra, found, is_over)
    sentence = f"{len(best.wide)} of {len(every)} calls have 16 bits"
    if is_over():
        sentence += "; the time was over before the search was"
    made = _finished(search, best, extra, found, sentence)
    if not goal.is_budget and _is_dearer(made, high.artifact):
        sentence = f"all {len(every)} calls have 16 bits, which cost less than some of them"
        return _finished(search, high, extra, found, sentence)
    return made


def _is_dearer(made: Artifact, other: Artifact) -> bool:
    """Whether a form costs more than another, which runs at least as much of the program."""
    if len(other.partition.refused) > len(made.partition.refused):
        return False
    one, two = (sum(told.cycles for told in _estimates(each)) for each in (made, other))
    return one > two


def _between(
    search: _Search, low: _Tried, high: _Tried, best: _Tried, extra: Mapping[str, float],
    found: Sensitivities, is_over: Any,
) -> _Tried:  # fmt: skip
    """Bisect the errors that are allowed: each step is one exact choice, and is measured."""
    total = sum(r.error for r in found.roundings) or 1.0
    noise8, noise16 = (10 ** (-t.point.sqnr / 10) for t in (low, high))
    part = max(noise8 - noise16, 1e-12) / total  # how far measured errors are from their sum
    bottom, top = low.point.sqnr, high.point.sqnr
    aim = search.goal.sqnr if search.goal.sqnr is not None else (bottom + top) / 2
    for _ in range(_STEPS):
        if is_over() or top - bottom < _NEAR / 2:
            break
        aim = min(max(aim, bottom), top)
        most = max(10 ** (-aim / 10) - noise16, 0.0) / part
        tried = search.try_form(cheapest(found, extra, most), "mixed")
        fits = search.fits(tried)
        if search.goal.is_budget:
            if fits and tried.point.sqnr >= best.point.sqnr:
                best = tried
            bottom, top = (aim, top) if fits else (bottom, aim)
        else:
            if fits and len(tried.wide) <= len(best.wide):
                best = tried
            bottom, top = (bottom, aim) if fits else (aim, top)
            if (
                fits
                and search.goal.sqnr is not None
                and tried.point.sqnr < search.goal.sqnr + _NEAR
            ):
                break
        off = (search.goal.sqnr or 0) - tried.point.sqnr if search.goal.sqnr is not None else 0.0
        stepped = aim + off
        aim = stepped if off and bottom < stepped < top else (bottom + top) / 2
    return best


def _finished(
    search: _Search, chosen: _Tried, extra: Mapping[str, float], found: Sensitivities, sentence: str
) -> Artifact:
    """The chosen form as it is compiled for the target, with what was measured on the way."""
    made, point = chosen.artifact, chosen.point
    if search.target.emit is not None and not made.delegates:
        made = driver.artifact_of(
            made.program, search.target, [*search.seen[:1], search.examples], search.used
        )
        told = _estimates(made)
        if told:
            cycles, sram = sum(t.cycles for t in told), max(t.scratch for t in told)
            point = replace(point, cost=cycles, sram=sram)
    point = replace(point, name="chosen")
    points = [t.point for t in search.tried.values() if t is not chosen]
    modules = _modules(made)
    alone = defaultdict[str, float](float)
    for rounding in found.roundings:
        for call in {rounding.maker or "", *rounding.readers}:
            alone[call] += rounding.error
    calls = tuple(
        ChosenCall(
            call, modules.get(call, ""), "a16w8" if call in chosen.wide else "int8",
            -10 * math.log10(max(alone[call], 1e-30)), extra.get(call, 0.0),
        )
        for call in search.names.values()
    )  # fmt: skip
    unit = "cycles" if search.is_estimated else "work"
    told_ = Precision(
        str(search.goal), search.fits(chosen), f"{sentence} ({point.sqnr:.1f} dB on "
        f"{len(search.held)} held-out inputs)", (*points, point), calls, unit,
    )  # fmt: skip
    return replace(made, precision=told_)


def _modules(made: Artifact) -> dict[str, str]:
    places = ((n.name, torchapi.location(n).module) for n in made.program.calls)
    return {name: module.removeprefix("L['self'].") for name, module in places}


def _parted(data: list[Any]) -> tuple[list[Any], list[Any]]:
    """Calibration inputs, and those that are held out; few are both."""
    if not data:
        raise InvalidInput("the calibration data is empty: give at least one input")
    if len(data) < _HELD_OUT:
        return data, data
    held = data[_HELD_OUT - 1 :: _HELD_OUT]
    seen = [item for index, item in enumerate(data, 1) if index % _HELD_OUT]
    return seen, held[:_JUDGED]


def _measured(search: _Search, is_over: Any) -> Sensitivities:
    """Sensitivities of the int8 form."""
    module = quantized(
        search.source, search.examples, scheme="int8", calibration=search.seen, target=search.target
    ).model
    assert isinstance(module, fx.GraphModule)
    data, examples = given(search.source, search.examples, search.held[:_PROBED])
    leaves = list(Arguments(module, examples).each(data or []))
    return sensitivities(module, leaves, search.names, is_over)


def _extra_costs(search: _Search, low: _Tried, high: _Tried) -> dict[str, float]:
    """What 16 bits of each call cost more than 8, by the target's estimate for its place."""
    eight, sixteen = (_by_place(t.artifact) for t in (low, high))
    places = dict[str, Loc]()
    for node in high.artifact.program.calls:
        name = search.names.get(str(node.meta.get(CALL, "")))
        if name is not None:
            places.setdefault(name, torchapi.location(node))
    shared = Counter(places.values())
    found = {
        name: (sixteen.get(place, 0.0) - eight.get(place, 0.0)) / shared[place]
        for name, place in places.items()
    }
    return found


def _estimates(made: Artifact) -> list[Estimate]:
    """What the target's compiler says of each graph, where it says anything."""
    return [d.estimate for d in made.delegates if d.estimate is not None]


def _by_place(made: Artifact) -> dict[Loc | None, float]:
    found: dict[Loc | None, float] = {}
    for cost in (cost for told in _estimates(made) for cost in told.operators):
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
