"""Sinks permutations below elementwise calls, and merges those that meet.

Networks written for channels behind the others have them around each layer. A layer and its
activation are one only where nothing stands between them, and two that undo each other are none.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.functionalize import is_functional
from tosaic.passes.engine import Call, graph_pass, replace
from tosaic.passes.fold_batch_norm import is_layer
from tosaic.passes.match import COPIES, before, hold, name_of, values_of

aten = torch.ops.aten
_TRANSPOSITIONS = frozenset({"aten.permute.default", "aten.transpose.int"})
_JOINS = frozenset({"aten.cat.default", "aten.batch_norm.default"})


@graph_pass
def sink_permutes(module: fx.GraphModule) -> bool:
    """Move each behind the calls that it can stand behind, and merge those that meet."""
    nodes = list(module.graph.nodes)
    if not any(_order(node) for node in nodes) or not is_functional(module):
        return False
    for node in nodes:
        if (order := _order(node)) is not None:
            _join(node, order)
        elif node.op == "call_function" and (torchapi.is_pointwise(node) or _is_cat(node)):
            _sink(node)
    return True


def _order(node: fx.Node) -> list[int] | None:
    """Which axes a transposition takes, in their order; None for another call."""
    if name_of(node) not in _TRANSPOSITIONS:
        return None
    bound, rank = torchapi.bound_arguments(node), node.meta["val"].dim()
    if not rank:
        return None
    if "dims" in bound:
        return [axis % rank for axis in bound["dims"]]
    order = list(range(rank))
    one, other = bound["dim0"] % rank, bound["dim1"] % rank
    order[one], order[other] = other, one
    return order


def _before(node: fx.Node) -> fx.Node:
    """What a copy is made of: layouts in memory are no matter here."""
    source: fx.Node = before(node, only_reader=False, names=COPIES)
    return source


def _join(node: fx.Node, order: Sequence[int]) -> None:
    """A transposition of a transposition is one, or none."""
    inner = _before(node.all_input_nodes[0])
    if (first := _order(inner)) is None:
        return
    source, whole = inner.all_input_nodes[0], [first[axis] for axis in order]
    if whole == sorted(whole):
        node.replace_all_uses_with(source)
    else:
        replace(node, Call(aten.permute.default, (source, whole)))


def _sink(node: fx.Node) -> None:
    """Compute with what was transposed, and transpose the result."""
    result = node.meta.get("val")
    if not isinstance(result, Tensor):
        return
    held = {n: values for n in node.all_input_nodes if (values := values_of(n)) is not None}
    moved = {n: _before(n) for n in node.all_input_nodes if n not in held}
    orders = [_order(n) for n in moved.values()]
    order = orders[0] if orders else None
    if order is None or any(other != order for other in orders):
        return
    sources = {n: inner.all_input_nodes[0] for n, inner in moved.items()}
    if not all(_is_of_layer(s) and s.meta["val"].dim() == result.dim() for s in sources.values()):
        return
    back = [order.index(axis) for axis in range(len(order))]
    for constant, values in held.items():
        if values.dim() > 1 or values.numel() > 1:
            rank = len(back)
            whole = values.detach().reshape((1,) * (rank - values.dim()) + tuple(values.shape))
            permuted = whole.permute(back).contiguous()
            sources[constant] = hold(node, f"_{node.name}_{constant.name}", permuted)
    if _is_cat(node):
        axis = torchapi.bound_arguments(node)["dim"] % result.dim()
        node.args, node.kwargs = (node.args[0], order[axis]), {}
    node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), lambda n: sources.get(n, n))
    node.meta = {**node.meta, "val": result.permute(back).contiguous()}
    with node.graph.inserting_after(node):
        after = node.graph.call_function(aten.permute.default, (node, order))
    after.meta = {**node.meta, "val": result}
    node.replace_all_uses_with(after, delete_user_cb=lambda user: user is not after)


def _is_cat(node: fx.Node) -> bool:
    return name_of(node) == "aten.cat.default"


def _is_of_layer(node: fx.Node) -> bool:
    """Whether a value is a layer's result, or was computed of such number by number."""
    if node.op != "call_function":
        return False
    return is_layer(node) or torchapi.is_pointwise(node) or torchapi.target_name(node) in _JOINS
