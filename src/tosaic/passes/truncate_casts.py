"""Puts a truncation before each cast of real numbers to integers.

``((x + 4) * 50).long()``: what is cast would be rounded to a scale of its own first, and a number
just below a whole one is cut down by one. A ``trunc`` in front of the cast is a function of x, as
long as nothing else reads what is between them, and its result is quantized without error.
"""

from __future__ import annotations

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.passes.engine import graph_pass
from tosaic.passes.match import is_integer, name_of, real_type
from tosaic.passes.step_lattice import Steps

_CASTS = frozenset({"aten.to.dtype", "aten._to_copy.default"})


@graph_pass
def truncate_casts(module: fx.GraphModule) -> bool:
    """Truncate what is cast, unless it is whole by construction."""
    found, steps = False, Steps(module.graph.nodes)
    for node in list(module.graph.nodes):
        if name_of(node) not in _CASTS or not is_integer(node):
            continue
        (source,) = node.all_input_nodes
        if real_type(source) is not None and (steps.of(source) or 0.5) % 1 != 0:
            with module.graph.inserting_before(node):
                made = torchapi.new_call(node, torch.ops.aten.trunc.default, (source,))
            node.replace_input_with(source, made)
            found = True
    return found
