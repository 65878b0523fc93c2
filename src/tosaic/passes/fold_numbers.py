"""Folds numbers that Python reads from constants: a solver's times, the steps of a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.engine import graph_pass
from tosaic.passes.fold_constants import folded
from tosaic.passes.gather_positions import CLAIMS, ITEMS
from tosaic.passes.match import name_of

_PYTHON = ("_operator", "math")  # modules of what Python computes with numbers


@graph_pass
def fold_numbers(module: fx.GraphModule) -> bool:
    """``item`` of a tensor that no input reaches, and arithmetic on it, become the number itself.

    A program that writes to what it reads is left, as a run would change a buffer.
    """
    graph = module.graph
    if not any(name_of(n) in ITEMS for n in graph.nodes) or any(
        torchapi.written_positions(n) for n in graph.nodes
    ):
        return False
    values = {n: torchapi.attribute(module, str(n.target)) for n in graph.nodes
              if n.op == "get_attr"}  # fmt: skip
    numbers: dict[fx.Node, Any] = {}
    for node in graph.nodes:
        if (value := folded(node, values)) is not None:
            values[node] = value
        elif (number := _number(node, values, numbers)) is not None:
            numbers[node] = number
    for user in {user: None for node in numbers for user in node.users}:
        user.args, user.kwargs = fx.map_arg(
            (user.args, user.kwargs), lambda node: numbers.get(node, node)
        )
        if name_of(user) in CLAIMS and not user.all_input_nodes:
            graph.erase_node(user)
    return bool(numbers)


def _number(node: fx.Node, values: Mapping[fx.Node, Any], numbers: Mapping[fx.Node, Any]) -> Any:
    """What a call gives where that is a number that is known; None for any other."""
    if node.op != "call_function":
        return None
    if name_of(node) in ITEMS:
        source = values.get(node.all_input_nodes[0])
        return source.item() if isinstance(source, Tensor) else None
    is_plain = getattr(node.target, "__module__", "") in _PYTHON and node.all_input_nodes
    if not is_plain or not all(n in numbers for n in node.all_input_nodes):
        return None
    assert callable(node.target)
    args, kwargs = fx.map_arg((node.args, node.kwargs), numbers.__getitem__)
    return node.target(*args, **kwargs)
