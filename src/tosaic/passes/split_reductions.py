"""Joined values of which only sums or extremes are asked, part by part.

No memory holds them side by side, and each part can be forgotten before the next is made.
"""

from __future__ import annotations

import torch
from torch import fx

from tosaic.front import torchapi

aten = torch.ops.aten
_REDUCTIONS = frozenset(
    {"aten.mean.dim", "aten.sum.dim_IntList", "aten.amax.default", "aten.amin.default"}
)


def reduce_parts(module: fx.GraphModule) -> None:
    """Reduce each of the values that are joined along an axis that stays; join the results."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and torchapi.target_name(node) in _REDUCTIONS:
            _reduce_parts(module.graph, node)
    module.graph.eliminate_dead_code()
    module.recompile()


def _reduce_parts(graph: fx.Graph, node: fx.Node) -> None:
    joined, rank = node.all_input_nodes[0], node.all_input_nodes[0].meta["val"].dim()
    if torchapi.target_name(joined) != "aten.cat.default" or len(joined.users) > 1:
        return
    given, bound = torchapi.bound_arguments(joined), torchapi.bound_arguments(node)
    axis, axes = given["dim"] % rank, sorted({a % rank for a in bound["dim"] or range(rank)})
    if axis in axes or bound.get("dtype") is not None:
        return
    with graph.inserting_before(node):
        reduced = [_reduced(graph, node, part, axes, bound["keepdim"]) for part in given["tensors"]]
        place = axis if bound["keepdim"] else axis - sum(a < axis for a in axes)
        whole = graph.call_function(aten.cat.default, (reduced, place))
    whole.meta = dict(node.meta)
    node.replace_all_uses_with(whole)


def _reduced(
    graph: fx.Graph, node: fx.Node, part: fx.Node, axes: list[int], keepdim: bool
) -> fx.Node:
    assert callable(node.target)
    made = graph.call_function(node.target, (part, axes, keepdim))
    args = part.meta["val"], axes, keepdim
    made.meta = {**node.meta, "val": torchapi.computed_beside(node, node.target, args)}
    return made
