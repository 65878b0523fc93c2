"""Casts of real numbers to integers as truncations, whose results are whole.

``((x + 4) * 50).long()``: what is cast would be rounded to a scale of its own first, and a number
just below a whole one is cut down by one. A ``trunc`` in front of the cast is a function of x, as
long as nothing else reads what is between them, and its result is quantized without error.
"""

from __future__ import annotations

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.step_lattice import Steps

aten = torch.ops.aten
_CASTS = frozenset({"aten.to.dtype", "aten._to_copy.default"})


def truncate_casts(module: fx.GraphModule) -> None:
    """Put a truncation in front of each cast of real numbers to integers."""
    found, steps = False, Steps(module.graph.nodes)
    for node in list(module.graph.nodes):
        if torchapi.target_name(node) in _CASTS and _cuts(node):
            (source,) = node.all_input_nodes
            if (steps.of(source) or 0.5) % 1 == 0:
                continue  # it is whole
            with module.graph.inserting_before(node):
                made = torchapi.new_call(node, aten.trunc.default, (source,))
            node.replace_input_with(source, made)
            found = True
    if found:
        module.recompile()


def _cuts(node: fx.Node) -> bool:
    """Whether a call makes integers of real numbers; what is True is not about their size."""
    source, result = (n.meta.get("val") for n in (node.all_input_nodes[0], node))
    if not isinstance(source, Tensor) or not isinstance(result, Tensor):
        return False
    kind = result.dtype
    is_integer = not kind.is_floating_point and not kind.is_complex and kind is not torch.bool
    return source.dtype.is_floating_point and is_integer
