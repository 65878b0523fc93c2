"""Inputs and outputs of a graph: which tensors, in which order of axes, and uint8.

A tensor in PyTorch's memory format channels_last lies in memory as TOSA wants it: the graph takes
and gives it with its channels last, and nothing is moved. Sound and the like have three axes, for
which PyTorch has no such format: an input whose example lies so is taken as it lies, a result is
given in PyTorch's own order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.ir.build import Builder
from tosaic.lowering.partition import Piece
from tosaic.lowering.target import Target
from tosaic.lowering.walk import is_unsigned
from tosaic.rewrite.ports import turn_input, turn_output, unsigned_input, unsigned_output

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_SEQUENCE = 3  # axes


def lay_out(piece: Piece) -> None:
    """Turn the inputs and outputs of a graph whose tensors lie channels-last in PyTorch."""
    if piece.graph is None:
        return
    piece.input_orders = [order_of(n) for n in piece.inputs]
    piece.output_orders = [order_of(n) for n in piece.outputs]
    for index, order in enumerate(piece.input_orders):
        if order is not None:
            turn_input(piece.graph, index, order)
    for index, order in enumerate(piece.output_orders):
        if order is not None:
            turn_output(piece.graph, index, order)


def take_unsigned(piece: Piece, target: Target) -> None:
    """Make uint8 of the inputs and outputs that are uint8 in PyTorch; within, all stays int8."""
    if piece.graph is None:
        return
    b = Builder(target.env, piece.graph, target.constraints)
    for index, node in enumerate(piece.inputs):
        if is_unsigned(node):
            unsigned_input(b, index)
    for index, node in enumerate(piece.outputs):
        if is_unsigned(node):
            unsigned_output(b, index)


def drop_unread(piece: Piece) -> None:
    """Forget inputs that nothing in a graph reads, such as operands of which only the shape counts.

    A device's compiler may leave them out of its program, so the graph must not have them either.
    """
    graph = piece.graph
    if graph is None:
        return
    read = {value for op in graph.walk() for value in op.ins}.union(graph.outputs)
    kept = [index for index, value in enumerate(graph.inputs) if value in read]
    graph.inputs = [graph.inputs[index] for index in kept]
    piece.inputs = [piece.inputs[index] for index in kept]
    piece.input_orders = [piece.input_orders[index] for index in kept]


def order_of(node: fx.Node) -> tuple[int, ...] | None:
    """The axes of a node's tensor as they lie in memory; None for PyTorch's own order."""
    tensor = example_of(node)
    if tensor is None or tensor.dim() not in (_SEQUENCE, *FORMATS):
        return None
    if torchapi.known_shape(tensor) is None or tensor.is_contiguous():
        return None
    if tensor.dim() == _SEQUENCE and not _is_argument(node):
        return None
    last = (0, *range(2, tensor.dim()), 1)
    return last if ordered(tensor, last).is_contiguous() else None


def example_of(node: Any) -> Tensor | None:
    """What export knows of a tensor; a call that quantizes keeps the layout of its operand."""
    while isinstance(node, fx.Node):
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            return value
        node = _quantized(node)
    return None


def _is_argument(node: Any) -> bool:
    """Whether a tensor comes from outside of the program, quantized or not."""
    while isinstance(node, fx.Node) and node.op != "placeholder":
        node = _quantized(node)
    return node is not None


def _quantized(node: fx.Node) -> Any:
    """What a call quantizes or gives back as real numbers; None if it does neither."""
    quantizes = node.op == "call_function" and "quantize_per" in str(node.target)
    return node.args[0] if quantizes and node.args else None


def ordered(tensor: Tensor, order: tuple[int, ...] | None) -> Tensor:
    """A tensor as a graph takes it."""
    return tensor if order is None else tensor.permute(order)


def restored(tensor: Tensor, order: tuple[int, ...] | None) -> Tensor:
    """A tensor that a graph gives, as PyTorch has it."""
    return tensor if order is None else tensor.permute([order.index(i) for i in range(len(order))])
