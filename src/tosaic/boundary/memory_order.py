"""Axes of tensors at the boundary of a graph, in the order in which they lie in memory.

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

Order = tuple[int, ...] | None  # axes; None for PyTorch's own order
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_SEQUENCE = 3  # axes


def order_of(node: fx.Node) -> Order:
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


def ordered(tensor: Tensor, order: Order) -> Tensor:
    """A tensor as a graph takes it."""
    return tensor if order is None else tensor.permute(order)


def restored(tensor: Tensor, order: Order) -> Tensor:
    """A tensor that a graph gives, as PyTorch has it."""
    return tensor if order is None else tensor.permute([order.index(i) for i in range(len(order))])
