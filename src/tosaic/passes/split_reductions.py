"""Reduces the parts of a concatenation one by one where the axis of the concatenation stays.

No memory holds them side by side, and each part can be forgotten before the next is made.
"""

from __future__ import annotations

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.passes.engine import Replacement, node_pass
from tosaic.passes.match import name_of


@node_pass("aten.mean.dim", "aten.sum.dim_IntList", "aten.amax.default", "aten.amin.default")
def split_reductions(node: fx.Node) -> Replacement:
    """A concatenation of the reduced parts."""
    joined = node.all_input_nodes[0]
    if name_of(joined) != "aten.cat.default" or len(joined.users) > 1:
        return None
    rank = joined.meta["val"].dim()
    given, bound = torchapi.bound_arguments(joined), torchapi.bound_arguments(node)
    axis, axes = given["dim"] % rank, sorted({a % rank for a in bound["dim"] or range(rank)})
    keepdim = bound["keepdim"]
    if axis in axes or bound.get("dtype") is not None:
        return None
    parts = [torchapi.new_call(node, node.target, (p, axes, keepdim)) for p in given["tensors"]]
    place = axis if keepdim else axis - sum(a < axis for a in axes)
    return torchapi.new_call(node, torch.ops.aten.cat.default, (parts, place))
