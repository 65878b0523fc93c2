"""Automatic precision: as few 16-bit calls as a goal needs, or the most accurate form in a budget.

int8 and int16 activations are measured first. Between them lie minimum cuts over measured
sensitivities and the target's own costs. Each that is tried is measured as it is lowered, which
corrects the errors and costs that the next one is chosen by.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.imported import Imported
from tosaic.lowering.target import Target
from tosaic.pipeline.allocation import Allocation, Widths
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.auto_forms import Forms, Tried
from tosaic.pipeline.goals import ChosenCall, Goal, Precision
from tosaic.pipeline.sensitivity import Sensitivities
from tosaic.quant.calibrate import iterable
from tosaic.quant.calibration import Calibration
from tosaic.quant.inputs import read_each

_HELD_OUT = 4  # one of so many calibration inputs is for verification
_JUDGED = 16  # inputs that points are measured with at most
_STEPS = 8  # forms between int8 and a16w8
_STEP = 1.1  # of the error at least, from a form that fits to the next
_NEAR = 0.97  # of the noise that a goal allows
_DEAREST = 8.0  # cycles of an element that is cast


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

    seen, held = _parted(list(read_each(iterable(calibration))))
    used = {"scheme": "auto", "io": io, **options}
    forms = Forms(source, examples, target, goal, used, io, seen, held)
    count = len(forms.names)
    low = forms.costed(forms.measured(Widths(), "int8"))
    found, extra = Sensitivities((), ()), dict[str, float]()
    if goal.is_budget and not (low.point.sram if goal.sram else forms.is_estimated):
        raise InvalidInput(f"{target.name} has no estimate of cycles or SRAM: name a device")
    high = forms.costed(forms.measured(forms.every, "a16w8"))
    is_cheaper = high.left <= low.left and high.point.cost < low.point.cost
    if not goal.is_budget and forms.fits(low) and not (is_cheaper and forms.fits(high)):
        return _finished(forms, low, extra, found, "int8 reaches it")
    if goal.is_budget and forms.fits(high) and high.point.sqnr >= low.point.sqnr:
        return _finished(forms, high, extra, found, "a16w8 is within it")
    extra = forms.extra_costs(low, high)
    if goal.is_budget and _is_beyond(forms, low, high, extra):
        best = min((low, high), key=lambda t: t.point.sram if goal.sram else t.point.cost)
        sentence = f"out of reach: {best.point.name} is beyond it"
        return _finished(forms, best, extra, found, sentence)
    found = forms.sensitivities(is_over)
    if not goal.is_budget and not forms.fits(high) and not forms.fits(low):
        best = max((low, high), key=lambda t: (t.point.score or 0, t.point.sqnr))
        bound = f"{best.point.sqnr:.1f} dB" if high.point.score is None else f"{best.point.score:g}"
        return _finished(forms, best, extra, found, f"out of reach: {bound} is the most")
    _between(forms, low, high, Allocation(found, extra), is_over)
    best = _best(forms, low, high)
    sentence = f"{len(best.widths.calls)} of {count} calls have 16 bits"
    if best is high:
        sentence = f"all {count} calls have 16 bits"
        sentence += "" if is_over() else ", which cost less than some of them"
    if not forms.fits(best):
        sentence = f"out of reach: {best.point.cost:,.0f} cycles are the fewest"
    if is_over():
        sentence += "; the time was over before the search was"
    return _finished(forms, best, extra, found, sentence)


def _is_beyond(forms: Forms, low: Tried, high: Tried, extra: Mapping[str, float]) -> bool:
    """Whether no form keeps within a budget, as far as costs of calls tell."""
    if forms.fits(low) or forms.fits(high):
        return False
    least = low.point.cost + sum(min(cost, 0.0) for cost in extra.values())
    return forms.goal.cycles is None or forms.goal.cycles < least


def _best(forms: Forms, low: Tried, high: Tried) -> Tried:
    """The cheapest form that reaches the goal, or the most accurate one within the budget."""
    left = max(low.left, high.left)
    fitting = [t for t in forms.tried.values() if forms.fits(t) and forms.costed(t).left <= left]
    if not fitting:
        return min(forms.tried.values(), key=lambda t: forms.costed(t).point.cost)
    if forms.goal.is_budget:
        return max(fitting, key=lambda t: (t.point.sqnr, -t.point.cost))
    return min(fitting, key=lambda t: (t.point.cost, -t.point.sqnr))


def _between(
    forms: Forms, low: Tried, high: Tried, allocation: Allocation, is_over: Callable[[], bool]
) -> None:
    """Bisect the error that is allowed: each step is one cut, and is measured.

    The sum of errors is held against what was measured, so that a goal in decibels is aimed at.
    """
    total, goal = allocation.error(Widths()) or 1.0, forms.goal
    part = max(low.noise - high.noise, 1e-12) / total  # how far measured errors are from their sum
    aim = None if goal.sqnr is None else max(10 ** (-goal.sqnr / 10) - high.noise, 0.0)
    bottom, top = 1e-4 * total, total
    most = (bottom * top) ** 0.5 if aim is None else aim / part
    for _ in range(3 * _STEPS):
        if is_over() or top < _STEP * bottom or len(forms.tried) > _STEPS:
            return
        widths = allocation.cheapest(most)
        is_known = widths in forms.tried
        tried = forms.measured(widths)
        fits = forms.fits(tried)
        is_finer = fits is not goal.is_budget  # more error is allowed for what fits a goal
        bottom, top = (max(bottom, most), top) if is_finer else (bottom, min(top, most))
        if (fits or goal.is_budget) and not is_known:
            _learn(allocation, low, forms.costed(tried))
        noise = max(tried.noise - high.noise, 0.0)
        if fits and aim is not None and noise >= _NEAR * aim:
            if allocation.cheapest(most) in forms.tried:
                return
            continue
        following = (bottom * top) ** 0.5
        if aim is not None and not is_known and noise:
            stepped = aim * allocation.error(widths) / noise
            stepped = max(stepped, _STEP * bottom) if fits else stepped
            following = stepped if bottom < stepped < top else following
        most = following


def _learn(allocation: Allocation, low: Tried, tried: Tried) -> None:
    """What a cast costs, by what a form costs more than its calls."""
    count = allocation.casts(tried.widths)
    if count:
        over = tried.point.cost - low.point.cost - allocation.price(tried.widths)
        allocation.cast = min(max(over / count, 0.0), _DEAREST)


def _finished(
    forms: Forms, chosen: Tried, extra: Mapping[str, float], found: Sensitivities, sentence: str
) -> Artifact:
    """The chosen form as it is compiled for the target, with what was measured on the way."""
    made, point = forms.costed(chosen, is_last=True).artifact, chosen.point
    point = replace(point, name="chosen")
    points = [t.point for t in forms.tried.values() if t is not chosen]
    modules = _modules(made)
    alone = defaultdict[str, float](float)
    for rounding in found.roundings:
        for call in {rounding.maker or "", *rounding.readers}:
            alone[call] += rounding.error
    calls = tuple(
        ChosenCall(
            call, modules.get(call, ""), chosen.widths.scheme(call),
            -10 * math.log10(max(alone[call], 1e-30)), extra.get(call, 0.0),
        )
        for call in forms.names.values()
    )  # fmt: skip
    unit = "cycles" if forms.is_estimated else "work"
    told_ = Precision(
        str(forms.goal), forms.fits(chosen), f"{sentence} ({point.sqnr:.1f} dB on "
        f"{len(forms.held)} held-out inputs)", (*points, point), calls, unit,
    )  # fmt: skip
    return replace(made, precision=told_)


def _modules(made: Artifact) -> dict[str, str]:
    places = ((n.name, torchapi.location(n).module) for n in made.program.calls)
    return {name: module.removeprefix("L['self'].") for name, module in places}


def _parted(data: list[Any]) -> tuple[list[Any], list[Any]]:
    """Calibration inputs, and those that are held out; few are both."""
    if len(data) < _HELD_OUT:
        return data, data
    held = data[_HELD_OUT - 1 :: _HELD_OUT]
    seen = [item for index, item in enumerate(data, 1) if index % _HELD_OUT]
    return seen, held[:_JUDGED]
