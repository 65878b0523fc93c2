"""What a program computes from no input: masks, positions, tables. It becomes buffers."""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.walk import is_known
from tosaic.quant.annotations import hold


def fold_known(module: fx.GraphModule) -> None:
    """Calls that read no input and nothing random are replaced by their results.

    What is inside is then never observed, such as the −∞ of a mask, which has no scale. Calls that
    write to what they read make new values instead, or a run would change a buffer; a program
    with a write that has no such form is left.
    """
    graph, made = module.graph, dict[fx.Node, Any]()
    values = {n: torchapi.attribute(module, str(n.target)) for n in graph.nodes if _is_held(n)}
    for node in graph.nodes:
        if node.op == "call_function" and is_known(node, values):
            values[node] = made[node] = torchapi.computed(node, values)
    if not made or not all(_is_new(node) for node in graph.nodes if node not in made):
        return
    for node, value in made.items():
        if not isinstance(value, Tensor) or all(user in made for user in node.users):
            continue
        held = hold(node, f"_known_{node.name}", value.detach(), dict(node.meta))
        node.replace_all_uses_with(held, delete_user_cb=lambda user: user not in made)
    for node in reversed(made):  # dead code to PyTorch is no call that writes
        if not node.users:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    module.recompile()


def _is_held(node: fx.Node) -> bool:
    return node.op == "get_attr"


def _is_new(node: fx.Node) -> bool:
    """Whether a call makes a new value; one that writes to an old one does so from here on."""
    torchapi.make_new(node)
    return not torchapi.written_positions(node)
