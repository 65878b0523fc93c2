"""Makes type promotion explicit: a cast for integers that PyTorch promotes to real numbers.

``x + torch.arange(4)``, ``counts / 2``, ``x < lengths``: what is computed of them is quantized, so
they need a scale as well. Masks are 0 and 1 wherever they are read.
"""

from __future__ import annotations

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.passes.engine import Replacement, node_pass
from tosaic.passes.match import is_integer, real_type

_CASTS = frozenset({"aten.to.dtype", "aten._to_copy.default", "aten.type_as.default"})


@node_pass()
def promote_integers(node: fx.Node) -> Replacement:
    """Cast the integers that an elementwise call reads beside real numbers, or makes real."""
    integers = [n for n in node.all_input_nodes if is_integer(n)]
    overload = torchapi.overload_of(node)
    if not integers or overload is None or torch.Tag.pointwise not in overload.tags:
        return None
    if torchapi.target_name(node) in _CASTS or torchapi.written_positions(node):
        return None
    kind = next((k for n in (node, *node.all_input_nodes) if (k := real_type(n))), None)
    for operand in integers if kind is not None else ():
        cast = torchapi.new_call(node, torch.ops.aten.to.dtype, (operand, kind))
        node.replace_input_with(operand, cast)
    return kind is not None
