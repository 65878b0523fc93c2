"""Folds constants: masks, positions and tables that depend on no input are computed here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.engine import graph_pass
from tosaic.passes.match import hold

_LARGEST = 1 << 24  # elements that are computed here; more are left to the target


@graph_pass
def fold_constants(module: fx.GraphModule) -> bool:
    """Calls that read no input and nothing random are replaced by buffers with their results.

    What is inside is then never observed, such as the −∞ of a mask, which has no scale. A program
    that writes to what it reads is left, as a run would change a buffer.
    """
    return fold(module)


def fold(
    module: fx.GraphModule, chosen: Callable[[set[fx.Node]], set[fx.Node]] = lambda known: known
) -> bool:
    """The same for those that are ``chosen`` of all calls whose results are known."""
    graph, made = module.graph, dict[fx.Node, Any]()
    values = {n: torchapi.attribute(module, str(n.target)) for n in graph.nodes
              if n.op == "get_attr"}  # fmt: skip
    for node in graph.nodes:
        if (value := folded(node, values)) is not None:
            values[node] = made[node] = value
    taken = chosen(set(made))
    made = {node: value for node, value in made.items() if node in taken}
    if not made or any(torchapi.written_positions(n) for n in graph.nodes if n not in made):
        return False
    for node, value in made.items():
        if not isinstance(value, Tensor) or all(user in made for user in node.users):
            continue
        held = hold(node, f"_known_{node.name}", value.detach(), dict(node.meta))
        node.replace_all_uses_with(held, delete_user_cb=lambda user: user not in made)
    for node in reversed(made):  # dead code to PyTorch is no call that writes
        if not node.users:
            graph.erase_node(node)
    return True


def folded(node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    """What a call gives where it reads nothing but what is known; None for any other."""
    if node.op != "call_function" or not _is_known(node, values):
        return None
    with torch.no_grad():
        return torchapi.computed(node, values)


def _is_known(node: fx.Node, values: Mapping[fx.Node, Any]) -> bool:
    """Whether a call reads tensors alone that are known, so that its result is, too, or all are."""
    if torchapi.target_name(node) == "getitem":
        return are_tensors(values.get(node.all_input_nodes[0]))
    overload = torchapi.overload_of(node)
    example: Any = node.meta.get("val")
    if overload is None or not are_tensors(example):
        return False
    shapes = [torchapi.known_shape(t) for t in ([example] if _is_tensor(example) else example)]
    if any(shape is None or math.prod(shape) > _LARGEST for shape in shapes):
        return False
    if not all(_is_tensor(values.get(n)) for n in node.all_input_nodes):
        return False
    return torchapi.is_repeatable(overload)


def are_tensors(value: Any) -> bool:
    """Whether a value is a tensor of PyTorch, or several and nothing else."""
    several = isinstance(value, (list, tuple))
    return (len(value) > 0 and all(map(_is_tensor, value))) if several else _is_tensor(value)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)
