"""Batch norms become part of the convolutions before them, in time that grows with the network.

torchao does this too, but cleans the whole graph after each one. What is left here, it folds.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx
from torch.nn.utils.fusion import fuse_conv_bn_weights

from tosaic.front import torchapi


def fold_batch_norms(module: fx.GraphModule) -> None:
    """Give convolutions new weights; the old ones may be the user's own."""
    for number, (convolution, norm) in enumerate(list(_pairs(module.graph))):
        _fold(module, convolution, norm, f"_folded_{number}")
    module.graph.eliminate_dead_code()
    module.recompile()


def _pairs(graph: fx.Graph) -> Iterator[tuple[fx.Node, fx.Node]]:
    for node in graph.nodes:
        if torchapi.target_name(node) != "aten.batch_norm.default":
            continue
        before, bound = node.args[0], torchapi.bound_arguments(node)
        tensors = [bound[name] for name in ("running_mean", "running_var", "weight", "bias")]
        if (
            not bound["training"]
            and isinstance(before, fx.Node)
            and torchapi.target_name(before).startswith(("aten.conv1d", "aten.conv2d"))
            and len(before.users) == 1
            and all(t is None or t.op == "get_attr" for t in (*tensors, *before.args[1:3]))
            and tensors[0] is not None
        ):
            yield before, node


def _fold(module: fx.GraphModule, convolution: fx.Node, norm: fx.Node, name: str) -> None:
    given = torchapi.bound_arguments(convolution)
    bound = torchapi.bound_arguments(norm)
    weight, bias, mean, variance, gamma, beta = (
        None if node is None else torchapi.attribute(module, str(node.target))
        for node in (
            given["weight"], given["bias"],
            bound["running_mean"], bound["running_var"], bound["weight"], bound["bias"],
        )
    )  # fmt: skip
    assert weight is not None
    assert mean is not None
    assert variance is not None
    made = fuse_conv_bn_weights(weight, bias, mean, variance, bound["eps"], gamma, beta)
    nodes: list[fx.Node] = []
    for parameter, like in zip(made, (given["weight"], bound["running_mean"])):
        path = f"{name}_{len(nodes)}"
        module.register_parameter(path, torch.nn.Parameter(parameter.detach(), requires_grad=False))
        with module.graph.inserting_before(convolution):
            nodes.append(module.graph.get_attr(path))
        nodes[-1].meta["val"] = like.meta["val"]
    convolution.args = (convolution.args[0], *nodes, *convolution.args[3:])
    norm.replace_all_uses_with(convolution)
    module.graph.erase_node(norm)
