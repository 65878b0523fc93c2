"""Calibration: run a prepared program on data, and say what is doubtful about the data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, fx

from tosaic.errors import InvalidInput, first_line
from tosaic.front import torchapi
from tosaic.progress import shown
from tosaic.quant.correct import LayerRun
from tosaic.quant.inputs import Arguments, InputWatch
from tosaic.quant.observer import RangeObserver
from tosaic.quant.weights import BiasObserver, WeightObserver

_CLIPPED = 0.05  # of the values of a tensor


def calibrate(
    prepared: fx.GraphModule, example_inputs: tuple[Any, ...], calibration: Iterable[Any] | None
) -> list[str]:
    """Run the observers over the data; what is doubtful about the data, a sentence each."""
    arguments = Arguments(prepared, example_inputs)
    data: Iterable[Any] = [example_inputs] if calibration is None else _iterable(calibration)
    watch, run = InputWatch(arguments), LayerRun(prepared)
    for leaves in arguments.each(shown(data, "calibrating: input")):
        watch.see(leaves)
        try:
            run.run(*leaves, enable_io_processing=False)
        except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as problem:
            raise InvalidInput(
                f"calibration input {watch.count} does not run: {first_line(problem)}"
            ) from problem
    if watch.count == 0:
        raise InvalidInput("the calibration data is empty: give at least one input")
    _see_parameters(prepared)
    run.correct_biases()
    return [*watch.doubts(calibration is not None), *_doubts(prepared)]


def _see_parameters(prepared: fx.GraphModule) -> None:
    """Weights of a function that no data has run through, such as a loop of no steps."""
    for part in (m for m in prepared.modules() if isinstance(m, fx.GraphModule)):
        for node in part.graph.nodes:
            observer = part.get_submodule(str(node.target)) if node.op == "call_module" else None
            if isinstance(observer, (WeightObserver, BiasObserver)) and not observer.has_seen:
                observer(_known(part, node.all_input_nodes[0]))


def _known(module: fx.GraphModule, node: fx.Node) -> Any:
    """A parameter, or what is computed of parameters."""
    if node.op == "get_attr":
        return torchapi.attribute(module, str(node.target))
    given = {n: _known(module, n) for n in node.all_input_nodes}
    is_call = node.op == "call_function"  # and not another observer
    return torchapi.evaluate(node, given) if is_call else given[node.all_input_nodes[0]]


def check_parameters(module: fx.GraphModule) -> None:
    """NaN in what was trained is no number to quantize."""
    for name, parameter in module.named_parameters():
        if parameter.is_floating_point() and bool(parameter.detach().isnan().any()):
            raise InvalidInput(f"{name} has NaN in it: train the model again, or load another")


def _iterable(calibration: Any) -> Iterable[Any]:
    if isinstance(calibration, (Tensor, str, dict)) or not isinstance(calibration, Iterable):
        kind = type(calibration).__name__
        raise InvalidInput(f"calibration is an iterable of inputs, such as a list, not {kind}")
    return calibration


def _doubts(prepared: fx.GraphModule) -> list[str]:
    """The first result with NaN, and results that lose much of their values beyond their range."""
    found: dict[RangeObserver, str] = {}
    for node in prepared.graph.nodes:
        if node.op == "call_module":
            observer = prepared.get_submodule(str(node.target))
            if isinstance(observer, RangeObserver):
                found.setdefault(observer, _place(node.all_input_nodes[0]))
    spoiled = [place for observer, place in found.items() if observer.bad]
    shares = [(observer.clipped(), place) for observer, place in found.items()]
    return [
        *(f"{place} gives NaN for some of the calibration data" for place in spoiled[:1]),
        *(f"{share:.0%} of {place} lies beyond its range" for share, place in shares
          if share > _CLIPPED),
    ]  # fmt: skip


def _place(node: fx.Node) -> str:
    where = torchapi.location(node)
    return f"{node.name} in {where.module}" if where.module else node.name
