"""Calls that give what they are given: nothing is observed between them and their readers."""

from __future__ import annotations

from torch import fx

from tosaic.front import torchapi

_DROPOUTS = frozenset({"aten.dropout.default", "aten.feature_dropout.default"})
_SAME = frozenset({"aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default"})


def drop_idle(module: fx.GraphModule) -> None:
    """Readers of such a call read what it reads: a sum then takes the sums of its layer."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and _is_idle(node):
            (source,) = node.all_input_nodes
            node.replace_all_uses_with(source)
            module.graph.erase_node(node)


def _is_idle(node: fx.Node) -> bool:
    name = torchapi.target_name(node)
    if name in _SAME:
        return True
    return name in _DROPOUTS and not torchapi.bound_arguments(node)["train"]
