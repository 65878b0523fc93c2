"""Runs a prepared program on calibration data, and warns about doubtful data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.errors import InvalidInput, first_line, kind_of
from tosaic.front import torchapi
from tosaic.lowering.support import constants
from tosaic.quant.bias_correction import LayerRun, correct_biases, known_value, layers_of
from tosaic.quant.calibration import Calibration, row_name
from tosaic.quant.empirical_correction import correct_by_data
from tosaic.quant.inputs import Arguments, DataRun, InputWatch
from tosaic.quant.observer import RangeObserver
from tosaic.quant.pt2e import ObserverBase
from tosaic.quant.result_bounds import tell_bounds
from tosaic.quant.statistics import Statistics
from tosaic.quant.value_names import constant_name, name_of, parts_of
from tosaic.quant.weights import BiasObserver, WeightObserver
from tosaic.runtime.progress import shown
from tosaic.runtime.timing import CALIBRATE, phase

_CLIPPED = 0.05  # of the values of a tensor


def calibrate(
    prepared: fx.GraphModule, example_inputs: tuple[Any, ...], calibration: Iterable[Any] | None
) -> list[str]:
    """Run the observers over the data; what is doubtful about the data, a sentence each."""
    run = LayerRun(prepared)
    with phase(CALIBRATE):
        _, doubts = run_over(prepared, example_inputs, calibration, run)
    _see_parameters(prepared)
    for _, part in parts_of(prepared):
        tell_bounds(part)
    run.correct_biases()
    with phase(CALIBRATE):
        correct_by_data(prepared, run.kept)
    return [*doubts, *_doubts(prepared)]


def run_over(
    module: fx.GraphModule,
    example_inputs: tuple[Any, ...],
    calibration: Iterable[Any] | None,
    run: DataRun,
) -> tuple[int, list[str]]:
    """Run a program over the data: how many inputs there are, and what is doubtful about them."""
    arguments = Arguments(module, example_inputs)
    data: Iterable[Any] = [example_inputs] if calibration is None else iterable(calibration)
    watch = InputWatch(arguments, is_example=calibration is None)
    for leaves in arguments.each(shown(data, "calibrating: input")):
        watch.see(leaves)
        try:
            run.run(*leaves, enable_io_processing=False)
        except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as problem:
            why = watch.unlike(leaves) or watch.other_floats(leaves, module) or first_line(problem)
            raise InvalidInput(f"{watch.name} does not run: {why}") from problem
        run.end_input(leaves)
    return watch.count, list(watch.doubts(calibration is not None))


def take(prepared: fx.GraphModule, stored: Calibration) -> None:
    """Give the observers of a program what was seen before; parameters are seen now."""
    for _, part in parts_of(prepared):
        known = constants(part.graph)
        for node in part.graph.nodes:
            observer: Any = part.get_submodule(str(node.target)) if node.op == "call_module" else 0
            if not isinstance(observer, ObserverBase):
                continue
            source = _observed(part, node)
            is_known = source in known or source.op == "get_attr"
            if isinstance(observer, RangeObserver):
                value = known_value(part, source) if is_known else source
                _show(observer, value, stored, constant_name(source))
            elif is_known:
                observer(known_value(part, source))
    for _, part in parts_of(prepared):
        tell_bounds(part)
    for _, part in parts_of(prepared):
        means = {n: m for n in part.graph.nodes if (m := stored.layers.get(name_of(n)))}
        spreads = {
            weight: stored.spreads.get(name_of(node))
            for node, (weight, _) in layers_of(part).items() if weight.by_data
        }  # fmt: skip
        correct_biases(part, means, spreads)


def _show(observer: RangeObserver, value: Any, stored: Calibration, name: str) -> None:
    """Let an observer see a constant, once with each input, or what was stored of a value."""
    if isinstance(value, Tensor):
        seen = stored.tensors.get(name) if observer.row is None else None
        if seen is None:
            seen = Statistics()
            seen.see(observer.shown(value))
        observer.take(seen, stored.count)
        return
    row, name = observer.row, name_of(value)
    observer.take(stored.seen(name if row is None else row_name(name, row, observer.below)))


def _observed(module: fx.GraphModule, node: fx.Node) -> fx.Node:
    """The value that an observer looks at, be it behind others."""
    while node.op == "call_module" and isinstance(
        module.get_submodule(str(node.target)), ObserverBase
    ):
        node = node.all_input_nodes[0]
    return node


def _see_parameters(prepared: fx.GraphModule) -> None:
    """Weights of a function that no data has run through, such as a loop of no steps."""
    for part in (m for m in prepared.modules() if isinstance(m, fx.GraphModule)):
        for node in part.graph.nodes:
            observer = part.get_submodule(str(node.target)) if node.op == "call_module" else None
            if isinstance(observer, (WeightObserver, BiasObserver)) and not observer.has_seen:
                observer(known_value(part, node.all_input_nodes[0]))


def check_parameters(module: fx.GraphModule) -> None:
    """NaN and infinity in what was trained are no numbers to quantize."""
    for name, parameter in module.named_parameters():
        if not parameter.is_floating_point() or not parameter.numel():
            continue
        ends = torch.stack(torch.aminmax(parameter.detach()))  # NaN, if there is one
        if bool(ends.isfinite().all()):
            continue
        what = "NaN" if bool(parameter.detach().isnan().any()) else "infinity"
        raise InvalidInput(f"{name} has {what} in it: train the model again, or load another")


def iterable(calibration: Any) -> Iterable[Any]:
    if isinstance(calibration, (Tensor, str, dict)) or not isinstance(calibration, Iterable):
        raise InvalidInput(
            f"calibration is an iterable of inputs, such as a list, not {kind_of(calibration)}"
        )
    return calibration


def _doubts(prepared: fx.GraphModule) -> list[str]:
    """The first result with NaN, and results that lose much of their values beyond their range."""
    found: dict[RangeObserver, str] = {}
    for node in prepared.graph.nodes:
        if node.op == "call_module":
            observer = prepared.get_submodule(str(node.target))
            if isinstance(observer, RangeObserver):
                found.setdefault(observer, _place(node.all_input_nodes[0]))
    spoiled = [place for observer, place in found.items() if observer.seen.bad]
    shares = [(observer.clipped(), place) for observer, place in found.items()]
    return [
        *(f"{place} gives NaN for some of the calibration data: leave that out, or mend the model "
          "there" for place in spoiled[:1]),
        *(f"{share:.0%} of {place} lies beyond its range" for share, place in shares
          if share > _CLIPPED),
        *(f"{place} is whole multiples of {observer.step:g} from {observer.seen.low:g} to "
          f"{observer.seen.high:g}, more than its integers hold: they are rounded"
          for observer, place in found.items() if observer.is_rounded),
    ]  # fmt: skip


def _place(node: fx.Node) -> str:
    where = torchapi.location(node)
    return f"{node.name} in {where.module}" if where.module else node.name
