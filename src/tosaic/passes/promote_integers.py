"""Integers that PyTorch takes for real numbers unseen: a call of its own makes them real.

``x + torch.arange(4)``, ``counts / 2``, ``x < lengths``: what is computed of them is quantized, so
they need a scale as well. Masks are 0 and 1 wherever they are read.
"""

from __future__ import annotations

import torch
from torch import Tensor, fx

from tosaic.front import torchapi

aten = torch.ops.aten
_CASTS = frozenset({"aten.to.dtype", "aten._to_copy.default", "aten.type_as.default"})


def promote(module: fx.GraphModule) -> None:
    """Cast the integers that calls read beside real numbers, or make real ones of."""
    found = False
    for node in list(module.graph.nodes):
        kind = _real_kind(node)
        for operand in node.all_input_nodes if kind is not None else ():
            if _is_integer(operand):
                with module.graph.inserting_before(node):
                    node.replace_input_with(
                        operand, torchapi.new_call(node, aten.to.dtype, (operand, kind))
                    )
                found = True
    if found:
        module.recompile()


def _real_kind(node: fx.Node) -> torch.dtype | None:
    """The type of real numbers that a call of single elements computes with; None if of none."""
    overload = torchapi.overload_of(node) if node.op == "call_function" else None
    if overload is None or torch.Tag.pointwise not in overload.tags:
        return None
    if torchapi.target_name(node) in _CASTS or torchapi.written_positions(node):
        return None
    tensors = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    kinds = [t.dtype for t in tensors if isinstance(t, Tensor) and t.dtype.is_floating_point]
    return kinds[0] if kinds else None


def _is_integer(node: fx.Node) -> bool:
    example = node.meta.get("val")
    if not isinstance(example, Tensor) or example.dtype is torch.bool:
        return False
    return not example.dtype.is_floating_point and not example.dtype.is_complex
