"""What a program computes from no input: masks, positions, tables. It becomes buffers."""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.walk import is_known


def fold_known(module: fx.GraphModule) -> None:
    """Calls that read no input and nothing random are replaced by their results.

    What is inside is then never observed, such as the −∞ of a mask, which has no scale. A program
    that writes to tensors is left: what it writes to must stay what it computes.
    """
    graph, made = module.graph, dict[fx.Node, Any]()
    if any(_writes(node) for node in graph.nodes):
        return
    values = {n: torchapi.attribute(module, str(n.target)) for n in graph.nodes if _is_held(n)}
    for node in graph.nodes:
        if node.op == "call_function" and is_known(node, values):
            values[node] = made[node] = torchapi.evaluate(node, values)
    for number, (node, value) in enumerate(made.items()):
        if not isinstance(value, Tensor) or all(user in made for user in node.users):
            continue
        name = f"_known_{number}"
        module.register_buffer(name, value.detach(), persistent=False)
        with graph.inserting_before(node):
            held = graph.create_node("get_attr", name)
        held.meta = dict(node.meta)
        node.replace_all_uses_with(held, delete_user_cb=lambda user: user not in made)
    if made:
        graph.eliminate_dead_code()
        module.recompile()


def _is_held(node: fx.Node) -> bool:
    return node.op == "get_attr"


def _writes(node: fx.Node) -> bool:
    overload = torchapi.overload_of(node)
    return overload is not None and bool(torchapi.effects(overload).written)
