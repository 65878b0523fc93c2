"""From a PyTorch model to an artifact: export, quantize, lower, rewrite, verify."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx

import tosaic.rules  # noqa: F401  (fills the registry)
from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.partition import partition
from tosaic.front.program import Program, program_of
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
) -> Artifact:
    """The program as TOSA graphs, and PyTorch round them for what no rule takes."""
    env = Env.parse(target)
    program = program_for(model, example_inputs, env, scheme, calibration)
    found = partition(program, env)
    for piece in found.pieces:
        if piece.graph is not None:
            lay_out(piece)
            piece.graph = improve(piece.graph, env)
            verify(piece.graph, env)
    return Artifact(program, found, str(env))


def program_for(
    model: Any,
    example_inputs: tuple[Any, ...],
    env: Env,
    scheme: str | None,
    calibration: Iterable[Any] | None,
) -> Program:
    """The model as calls, quantized where the target has integers alone."""
    _check_examples(example_inputs)
    if isinstance(model, fx.GraphModule):
        if scheme is not None:
            raise InvalidInput("the model is quantized already; give it without a scheme")
    elif env.profiles == {"INT"}:
        from tosaic.quant import quantize  # torchao is for those who quantize

        model = quantize(model, example_inputs, scheme=scheme or "int8", calibration=calibration)
    elif scheme is not None:
        raise InvalidInput(f"{env} takes floats; a scheme needs a target of integers alone")
    return program_of(model, example_inputs)


def _check_examples(example_inputs: Any) -> None:
    if not isinstance(example_inputs, tuple):
        kind = type(example_inputs).__name__
        raise InvalidInput(f"example_inputs must be a tuple of the model's arguments, not a {kind}")
    seen: dict[int, int] = {}
    flat, _ = torchapi.flatten(example_inputs)
    for index, value in enumerate(flat):
        if not isinstance(value, Tensor) or value.device.type == "meta" or not value.numel():
            continue
        first = seen.setdefault(value.data_ptr(), index)
        if first != index and torch.equal(value, flat[first]):
            raise InvalidInput(
                f"example inputs {first} and {index} are the same tensor, which torch.export "
                "would merge into one; pass a clone"
            )
