"""From a PyTorch model to an artifact: import, quantize, lower, rewrite, verify."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

import tosaic.rules  # noqa: F401  (fills the registry)
from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.examples import check_examples
from tosaic.front.imported import Imported, import_model
from tosaic.front.program import Program, program_of
from tosaic.targets.artifact import Artifact
from tosaic.targets.base import Target
from tosaic.targets.catalog import target_of
from tosaic.targets.lowering import compiled


def compile_model(
    model: Any,
    example_inputs: tuple[Any, ...],
    target: str,
    scheme: str | None,
    calibration: Iterable[Any] | None,
    dynamic_shapes: Any = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Artifact:
    """The program as TOSA graphs, and PyTorch round them for what no rule takes."""
    chosen = target_of(target, options)
    program = program_for(model, example_inputs, chosen, scheme, calibration, dynamic_shapes)
    found, delegates = compiled(program, chosen)
    if chosen.emit is not None and not found.graphs:
        why = f"; the first reason: {found.refused[0]}" if found.refused else ""
        raise InvalidInput(f"nothing of the model runs on {chosen.name}{why}")
    return Artifact(program, found, chosen.name, delegates)


def program_for(
    model: Any,
    example_inputs: tuple[Any, ...],
    target: Target,
    scheme: str | None,
    calibration: Iterable[Any] | None,
    dynamic_shapes: Any = None,
) -> Program:
    """The model as calls, quantized where the target has integers alone."""
    check_examples(example_inputs)
    source = import_model(model, example_inputs, dynamic_shapes)
    if source.is_quantized:
        if scheme is not None:
            raise InvalidInput("the model is quantized already; give it without a scheme")
    elif target.env.profiles == {"INT"}:
        program_of(source)  # what no target takes is refused before anything is calibrated
        source = _quantized(source, example_inputs, scheme or "int8", calibration, target)
    elif scheme is not None:
        raise InvalidInput(f"{target.name} takes floats; a scheme needs a target of integers alone")
    return program_of(source)


def _quantized(
    source: Imported, examples: tuple[Any, ...], scheme: str, calibration: Iterable[Any] | None,
    target: Target,
) -> Imported:  # fmt: skip
    from tosaic.quant import quantize  # torchao is for those who quantize

    if calibration is None and any(
        isinstance(v, Tensor) and v.device.type == "meta" for v in torchapi.flatten(examples)[0]
    ):
        raise InvalidInput("example inputs on the meta device have no values: give calibration")
    if source.changes.count:
        if calibration is not None:
            calibration = _with_state(source, calibration)
        examples = next(_with_state(source, [examples]))
    return source.with_model(
        quantize(source.model, examples, scheme=scheme, calibration=calibration, target=target)
    )


def _with_state(source: Imported, data: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Inputs in one flat list, with the state that the inputs before them have left."""
    states = [first.clone() for _, first in source.changes.states]
    assert isinstance(source.model, torch.export.ExportedProgram)
    module = torchapi.module_of(source.model)
    for item in data:
        arguments = tuple(item) if isinstance(item, (list, tuple)) else (item,)
        flat = [*torchapi.flatten(arguments)[0], *states]
        yield tuple(flat)
        outputs = module(*flat)
        end = len(outputs) - len(source.changes.written)
        states = list(outputs[end - len(states) : end])
