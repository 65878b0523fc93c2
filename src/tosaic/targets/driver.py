"""From a PyTorch model to an artifact: import, quantize, lower, rewrite, verify."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

import tosaic.rules  # noqa: F401  (fills the registry)
from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.examples import check_examples
from tosaic.front.expand import expand
from tosaic.front.imported import Imported, import_model
from tosaic.front.partition import Partition, partition
from tosaic.front.program import Program, program_of
from tosaic.front.trial import Trial, constants
from tosaic.ir.verify import verify
from tosaic.rewrite import improve
from tosaic.spec.env import Env
from tosaic.targets.artifact import Artifact
from tosaic.targets.boundary import lay_out


def compile_model(
    model: Any,
    example_inputs: tuple[Any, ...],
    target: str,
    scheme: str | None,
    calibration: Iterable[Any] | None,
    dynamic_shapes: Any = None,
) -> Artifact:
    """The program as TOSA graphs, and PyTorch round them for what no rule takes."""
    env = Env.parse(target)
    source = source_for(model, example_inputs, env, scheme, calibration, dynamic_shapes)
    program, found = planned(source, env)
    for piece in found.pieces:
        if piece.graph is not None:
            lay_out(piece)
            piece.graph = improve(piece.graph, env)
            verify(piece.graph, env)
    return Artifact(program, found, str(env))


def source_for(
    model: Any,
    example_inputs: tuple[Any, ...],
    env: Env,
    scheme: str | None,
    calibration: Iterable[Any] | None,
    dynamic_shapes: Any = None,
) -> Imported:
    """The imported model, quantized where the target has integers alone."""
    check_examples(example_inputs)
    source = import_model(model, example_inputs, dynamic_shapes)
    if source.is_quantized:
        if scheme is not None:
            raise InvalidInput("the model is quantized already; give it without a scheme")
    elif env.profiles == {"INT"}:
        program_of(source)  # what no target takes is refused before anything is calibrated
        from tosaic.quant.flow import quantized  # torchao is for those who quantize

        source = quantized(source, example_inputs, scheme=scheme or "int8", calibration=calibration)
    elif scheme is not None:
        raise InvalidInput(f"{env} takes floats; a scheme needs a target of integers alone")
    return source


def planned(source: Imported, env: Env) -> tuple[Program, Partition]:
    """The program and what of it becomes TOSA; of floats, refused calls become their parts."""
    program = program_of(source)
    found = partition(program, env)
    if not found.refused or not isinstance(source.model, torch.export.ExportedProgram):
        return program, found
    module, refused = torchapi.module_of(source.model), {r.node for r in found.refused}
    known, own = constants(module.graph), set(module.graph.nodes)
    trial = Trial(env, known)

    def refuses(node: fx.Node) -> bool:
        return node.name in refused if node in own else trial.refusal(node) is not None

    if not expand(module, refuses, constants=known):
        return program, found
    program = program_of(source.with_model(module))
    return program, partition(program, env)
