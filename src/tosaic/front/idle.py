"""Calls that give what they are given, or nothing: they would count as readers of a value."""

from __future__ import annotations

from torch import Tensor, fx

from tosaic.front import torchapi

_DROPOUTS = frozenset({"aten.dropout.default", "aten.feature_dropout.default"})
_SAME = frozenset({"aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default"})
_CASTS = frozenset({"aten.to.dtype", "aten.type_as.default"})  # to the type that a value has
_CHECK = "aten._assert_tensor_metadata.default"  # of what is known when a program is exported


def drop_idle(graph: fx.Graph) -> None:
    """Readers of such a call read what it reads: a sum then takes the sums of its layer."""
    for node in list(graph.nodes):
        if node.op != "call_function" or any(user.op == "output" for user in node.users):
            continue  # results are known by their names
        if torchapi.target_name(node) == _CHECK:
            graph.erase_node(node)
        elif _is_idle(node):
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph.erase_node(node)


def _is_idle(node: fx.Node) -> bool:
    name = torchapi.target_name(node)
    if name in _SAME:
        return True
    if name in _CASTS:
        return _is_of_its_type(node)
    return name in _DROPOUTS and not torchapi.bound_arguments(node)["train"]


def _is_of_its_type(node: fx.Node) -> bool:
    """Whether a cast changes nothing; a copy may be written to."""
    given, made = (n.meta.get("val") for n in (node.all_input_nodes[0], node))
    if not isinstance(given, Tensor) or not isinstance(made, Tensor):
        return False
    bound = torchapi.bound_arguments(node)
    return given.dtype is made.dtype and not bound.get("copy") and not bound.get("memory_format")
