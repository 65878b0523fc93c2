"""What a program computes from nothing: masks, positions, tables. It becomes buffers."""

from __future__ import annotations

import torch
from torch import Tensor, fx

from tosaic.front import torchapi

_LARGEST = 1 << 24  # elements: more are left to be computed


def fold_known(module: fx.GraphModule) -> None:
    """Calls that read no input, no parameter and nothing random are replaced by their results.

    What is inside is then never observed, such as the −∞ of a mask, which has no scale. A program
    that writes to tensors is left: what it writes to must stay what it computes.
    """
    graph, values = module.graph, dict[fx.Node, Tensor]()
    if any(_writes(node) for node in graph.nodes):
        return
    for node in graph.nodes:
        if _is_known(node, values):
            values[node] = torchapi.evaluate(node, values)
    for number, (node, value) in enumerate(values.items()):
        if all(user in values for user in node.users):
            continue
        name = f"_known_{number}"
        module.register_buffer(name, value, persistent=False)
        with graph.inserting_before(node):
            made = graph.create_node("get_attr", name)
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made, delete_user_cb=lambda user: user not in values)
    if values:
        graph.eliminate_dead_code()
        module.recompile()


def _is_known(node: fx.Node, values: dict[fx.Node, Tensor]) -> bool:
    overload, example = torchapi.overload_of(node), node.meta.get("val")
    if overload is None or not isinstance(example, Tensor) or not values.keys() >= set(
        node.all_input_nodes
    ):  # fmt: skip
        return False
    return torch.Tag.nondeterministic_seeded not in overload.tags and example.numel() <= _LARGEST


def _writes(node: fx.Node) -> bool:
    overload = torchapi.overload_of(node)
    return overload is not None and bool(torchapi.effects(overload).written)
