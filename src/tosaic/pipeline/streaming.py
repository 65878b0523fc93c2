"""Streaming: one call of a recurrence at a time, with the state that the last one left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.boundary.qparams import without_nan
from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE
from tosaic.front.program import Program
from tosaic.lowering.partition import Piece
from tosaic.pipeline import execution

State = tuple[Tensor, ...]
_OPERATORS = torch.ops.quantized_decomposed


def step(
    program: Program, pieces: Sequence[Piece], elements: Sequence[Any], state: State | None,
    run: execution.Runner,
) -> tuple[list[Any], State]:  # fmt: skip
    """What the one loop of a program gives for its next elements, and its state behind them."""
    loops = [piece for piece in pieces if piece.parts]
    if len(loops) != 1 or loops[0].node is None or loops[0].step is None:
        raise InvalidInput(
            f"a step is for a program with one recurrence by the step, and this one has "
            f"{len(loops)}: compile it with unroll=1"
        )
    (piece,) = loops
    assert piece.node is not None
    assert piece.step is not None
    call = torchapi.scan_of(piece.node)
    if len(elements) != len(call.xs) or call.read:
        raise InvalidInput(f"the recurrence takes {len(call.xs)} sequences, not {len(elements)}")
    begun = state or [_first(program, node) for node in call.carried]
    given = [_integers(node, x) for node, x in zip(call.xs, elements)]
    for node, tensor in zip(piece.step.inputs, (*begun, *given), strict=True):
        example = node.meta["val"]
        if tensor.shape != example.shape or tensor.dtype is not example.dtype:
            raise InvalidInput(
                f"a step takes {node.name} as {list(example.shape)}, not {list(tensor.shape)}"
            )
    values = {**piece.step.tensors, **dict(zip(piece.step.inputs, (*begun, *given)))}
    for part in piece.parts:
        execution.one(part, run, values)
    made = [values[n] for n in piece.step.outputs]
    count = len(call.carried)
    items = [i for i in piece.outputs if int(str(i.args[1])) >= count]
    results = [_real(program, item, made[int(str(item.args[1]))]) for item in items]
    return results, tuple(made[:count])


def _first(program: Program, node: fx.Node) -> Tensor:
    if node not in program.tensors:
        raise InvalidInput("the state begins with an input of the program: compile it with zeros")
    return program.tensors[node]


def _integers(node: fx.Node, value: Any) -> Tensor:
    """An element as the loop has it."""
    tensor = torch.as_tensor(value).detach()
    if torchapi.target_name(node) == QUANTIZE and tensor.is_floating_point():
        made: Tensor = _OPERATORS.quantize_per_tensor(without_nan(tensor), *node.args[1:])
        return made
    if node.op != "placeholder" and torchapi.target_name(node) != QUANTIZE:
        raise InvalidInput("the sequence is computed before the recurrence: step needs inputs")
    return tensor


def _real(program: Program, item: fx.Node, value: Tensor) -> Tensor:
    """A result as the numbers that its integers stand for."""
    for user in program.users.get(item, ()):
        if torchapi.target_name(user) in DEQUANTIZE:
            made: Tensor = _OPERATORS.dequantize_per_tensor(value, *user.args[1:])
            return made
    return value
