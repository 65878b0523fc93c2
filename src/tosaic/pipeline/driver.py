"""Compiles a PyTorch model: import, quantize, lower, rewrite, verify, emit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from torch import Tensor, fx

import tosaic.rules  # noqa: F401  (fills the registry)
from tosaic.boundary.ports import ends_of, names_of, with_ends
from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.examples import check_examples
from tosaic.front.imported import Imported
from tosaic.front.program import Program, program_of
from tosaic.lowering.partition import refusals
from tosaic.lowering.support import Trial, constants
from tosaic.lowering.target import Target
from tosaic.passes.decompose import expand
from tosaic.passes.importer import import_model, with_attention
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.float_check import agree
from tosaic.pipeline.regions import compiled
from tosaic.runtime.progress import say
from tosaic.targets.catalog import target_of


def compile_model(
    model: Any,
    example_inputs: tuple[Any, ...],
    target: str,
    scheme: Any,
    calibration: Any,
    dynamic_shapes: Any = None,
    options: Mapping[str, Any] = MappingProxyType({}),
    io: Any = None,
    preserve_io_quantization: bool = False,
) -> Artifact:
    """The program as TOSA graphs, and PyTorch round them for what no rule takes."""
    chosen = replace(target_of(target, options), preserve_io_quantization=preserve_io_quantization)
    if chosen.start is not None:
        chosen.start()
    seen: list[Any] = []
    if isinstance(calibration, (list, tuple)):
        seen = list(calibration[:1])
    elif isinstance(calibration, Iterable) and not isinstance(calibration, (Tensor, str, dict)):
        calibration = _remembered(calibration, seen)
    program = program_for(model, example_inputs, chosen, scheme, calibration, dynamic_shapes, io)
    found, delegates = compiled(program, chosen, [*seen, example_inputs])
    if chosen.emit is not None and not found.graphs:
        why = f"; the first reason: {found.refused[0]}" if found.refused else ": it has no calls"
        raise InvalidInput(f"nothing of the model runs on {chosen.name}{why}")
    used = {"scheme": scheme, "io": io, **options}
    return Artifact(program, found, chosen.name, delegates, used)


def _remembered(data: Iterable[Any], first: list[Any]) -> Iterator[Any]:
    """Calibration data, of which the first item is kept once it is read."""
    for item in data:
        if not first:
            first.append(item)
        yield item


def program_for(
    model: Any,
    example_inputs: tuple[Any, ...],
    target: Target,
    scheme: Any,
    calibration: Any,
    dynamic_shapes: Any = None,
    io: Any = None,
) -> Program:
    """The model as calls, quantized by a scheme, or where the target has integers alone."""
    check_examples(example_inputs)
    say("exporting the model")
    source = import_model(model, example_inputs, dynamic_shapes)
    program = program_of(source)  # what no target takes is refused before anything is calibrated
    ends = ends_of(program, getattr(scheme, "io", None) if io is None else io)
    source = replace(source, outputs=names_of(program))
    if source.is_quantized:
        if scheme is not None:
            raise InvalidInput("the model is quantized already; give it without a scheme")
    elif "INT" in target.env.profiles and (scheme is not None or "FP" not in target.env.profiles):
        say("quantizing")
        from tosaic.quant.flow import quantized  # for those who quantize

        source = quantized(
            source, example_inputs, scheme="int8" if scheme is None else scheme,
            calibration=calibration, target=target, ends=ends,
        )  # fmt: skip
    elif scheme is not None:
        raise InvalidInput(f"{target.name} has floats alone; a scheme needs a target with integers")
    elif ends:
        raise InvalidInput(
            f"integers at the boundary are for quantized models, and {target.name} takes this one "
            "in float: choose a target of integers, or give a quantized model"
        )
    else:
        source = _in_parts(with_attention(source), target, example_inputs)
    return program_of(with_ends(source, ends) if source.is_quantized else source)


def _in_parts(source: Imported, target: Target, example_inputs: tuple[Any, ...]) -> Imported:
    """The program with refused calls as their parts, where none of these is refused.

    Parts that compute something else than the call, as the example shows, are not taken.
    """
    program = program_of(source)
    refused = {r.node for r in refusals(program, target.env, target.constraints)}
    if not refused:
        return source
    made = _expanded(source, target, refused)
    if made is source or not target.check or agree(program, program_of(made), [example_inputs]):
        return made
    right = {
        name
        for name in refused
        if agree(program, program_of(_expanded(source, target, {name})), [example_inputs])
    }
    return _expanded(source, target, right)


def _expanded(source: Imported, target: Target, names: set[str]) -> Imported:
    """The program with calls of those names as their parts."""
    module = torchapi.module_of(source.model)
    known, own = constants(module.graph), set(module.graph.nodes)
    trial = Trial(target.env, known, target.constraints)

    def refuses(node: fx.Node) -> bool:
        return node.name in names if node in own else trial.refusal(node) is not None

    count = expand(module, refuses, constants=known, steps_at_once=target.steps_at_once)
    return source.with_model(module) if count else source
