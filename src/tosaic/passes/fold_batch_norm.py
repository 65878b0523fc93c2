"""Folds batch norms into the layer before them, or makes a depthwise convolution of them.

None is left to torchao, which cleans the whole graph after each one and, where one remains, looks
for patterns of training that cost tens of seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.row_blocks import by_rows
from tosaic.passes.engine import Call, Replacement, node_pass, replace
from tosaic.passes.match import constant_of, free_name, name_of, rank_of, values_of

_NORMS = {
    "aten.batch_norm.default",
    "aten.cudnn_batch_norm.default",
    "aten.miopen_batch_norm.default",
    "aten._native_batch_norm_legit_no_training.default",
}
LAYERS = {
    "aten.conv1d.default", "aten.conv1d.padding", "aten.conv2d.default", "aten.conv2d.padding",
    "aten.conv3d.default", "aten.conv3d.padding", "aten.linear.default",
    "aten.convolution.default", "aten.conv_transpose1d.default", "aten.conv_transpose2d.input",
    "aten.conv_transpose3d.input",
}  # fmt: skip
MOMENTS = "tosaic.moments"  # of a layer's results: mean and deviation of each channel, float64
_STATISTICS = "running_mean", "running_var", "weight", "bias"


@dataclass(frozen=True, slots=True)
class Norm:
    """y = factor · x + offset for each channel of axis 1, in the place of a call.

    ``moments`` are the mean and the deviation of its results in training.
    """

    node: fx.Node
    source: Any
    factor: Tensor
    offset: Tensor
    moments: tuple[Tensor, Tensor] | None = None


@node_pass(*_NORMS)
def fold_batch_norm(node: fx.Node) -> Replacement:
    """Layers get new weights, the old ones may be the user's own; other norms become layers."""
    norm = _constant_norm(node)
    if norm is None:
        return None
    return _in_place(norm, _into_layer(norm) or as_layer(norm))


@node_pass(*_NORMS)
def fold_norm_into_layer(node: fx.Node) -> Replacement:
    """The same where there is a layer before the norm; other norms stay."""
    norm = _constant_norm(node)
    layer = norm and _into_layer(norm)
    return _in_place(norm, layer) if norm and layer else None


def _in_place(norm: Norm, result: fx.Node) -> fx.Node:
    """What readers of a norm read instead, also those that take it out of several results."""
    for user in list(norm.node.users):
        if torchapi.target_name(user) == "getitem":
            replace(user, result)
    return result


@node_pass(*LAYERS)
def add_bias(node: fx.Node) -> Replacement:
    """A layer without a bias gets one of zeros: it costs nothing, and can be corrected."""
    bound = torchapi.bound_arguments(node)
    values = values_of(bound["weight"])
    if bound["bias"] is not None or values is None:
        return None
    behind = is_transposed(node, bound)
    channels = values.shape[1] * int(bound["groups"]) if behind else values.shape[0]
    made = torch.zeros(channels, dtype=values.dtype, device=values.device)
    (bound["bias"],) = parameters(node, bias=made)
    return Call(node.target, tuple(bound.values()))


def is_transposed(layer: fx.Node, bound: dict[str, Any]) -> bool:
    return "transpose" in torchapi.target_name(layer) or bool(bound.get("transposed"))


def _constant_norm(node: fx.Node) -> Norm | None:
    """The factors of an inference batch norm whose statistics are constants."""
    bound = torchapi.bound_arguments(node)
    given = [bound.get(name) for name in _STATISTICS]
    mean, variance, weight, bias = (constant_of(t) for t in given)
    known = all(t is None or constant_of(t) is not None for t in given)
    if bound.get("training") or mean is None or variance is None or not known:
        return None
    if any(user.args[1] != 0 for user in node.users if torchapi.target_name(user) == "getitem"):
        return None
    eps = next(bound[name] for name in ("eps", "epsilon") if name in bound)
    factor = torch.rsqrt(variance + eps) * (1.0 if weight is None else weight)
    offset = (0.0 if bias is None else bias) - mean * factor
    moments = offset + mean * factor, variance.sqrt() * factor.abs()
    return Norm(node, node.args[0], factor, offset, moments)


def _into_layer(norm: Norm) -> fx.Node | None:
    """The layer before the norm, with the norm in its weights; None if others read its result."""
    layer = norm.source
    if not isinstance(layer, fx.Node) or not is_layer(layer) or len(layer.users) != 1:
        return None
    if torchapi.target_name(layer) == "aten.linear.default" and rank_of(layer) != 2:
        return None  # the norm is over axis 1, the layer over the last
    scale_layer(layer, norm.factor, norm.offset)
    _remember(layer, norm)
    return layer


def _remember(layer: fx.Node, norm: Norm) -> None:
    if norm.moments is not None:
        layer.meta[MOMENTS] = norm.moments


def is_layer(node: fx.Node) -> bool:
    """Whether a call is a layer whose weights and bias are constants."""
    if name_of(node) not in LAYERS:
        return False
    bound = torchapi.bound_arguments(node)
    return all(v is None or v.op == "get_attr" for v in (bound["weight"], bound["bias"]))


def scale_layer(layer: fx.Node, factor: Tensor, offset: Tensor) -> None:
    """A layer gives factor · result + offset, for each channel, by new weights."""
    bound = torchapi.bound_arguments(layer)
    weight, before = values_of(bound["weight"]), constant_of(bound["bias"])
    assert weight is not None
    factors = _along_weight(factor, layer, bound, weight)
    made = by_rows(_multiplied, weight.detach(), factors)
    bias = (offset if before is None else before * factor + offset).to(weight.dtype)
    nodes = parameters(layer, weight=made, bias=bias)
    bound |= dict(zip(("weight", "bias"), nodes))
    replace(layer, Call(layer.target, tuple(bound.values())))
    if (moments := layer.meta.get(MOMENTS)) is not None:
        layer.meta[MOMENTS] = moments[0] * factor + offset, moments[1] * factor.abs()


def _multiplied(weight: Tensor, factors: Tensor) -> Tensor:
    return weight.double().mul_(factors).to(weight.dtype)


def _along_weight(factor: Tensor, layer: fx.Node, bound: dict[str, Any], weight: Tensor) -> Tensor:
    """Factors of output channels where the weights have them: transposed ones behind the inputs."""
    if not is_transposed(layer, bound):
        return factor.reshape(-1, *[1] * (weight.dim() - 1))
    groups = int(bound["groups"])
    each = factor.reshape(groups, 1, -1).expand(-1, weight.shape[0] // groups, -1)
    return each.reshape(weight.shape[0], weight.shape[1], *[1] * (weight.dim() - 2))


def as_layer(norm: Norm) -> fx.Node:
    """A convolution of size 1 for each channel; other ranks than 3 and 4 take the shape of 3."""
    source, node, aten = norm.source, norm.node, torch.ops.aten
    example, channels = source.meta["val"], len(norm.factor)
    rank = example.dim() if example.dim() in (3, 4) else 3
    shape = channels, *[1] * (rank - 1)
    real = norm.factor.reshape(shape).to(example.dtype), norm.offset.to(example.dtype)
    nodes = parameters(node, weight=real[0], bias=real[1])
    ones, zeros = [1] * (rank - 2), [0] * (rank - 2)
    convolve = aten.conv1d.default if rank == 3 else aten.conv2d.default
    with node.graph.inserting_before(node):
        x = source
        if rank != example.dim():
            rows = source, [example.shape[0], channels, -1]
            x = torchapi.new_call(node, aten.reshape.default, rows)
        y = torchapi.new_call(node, convolve, (x, *nodes, ones, zeros, ones, channels))
        _remember(y, norm)
        if rank != example.dim():
            y = torchapi.new_call(node, aten.reshape.default, (y, list(example.shape)))
    return y


def parameters(owner: fx.Node, **values: Tensor) -> list[fx.Node]:
    """New parameters before a node, which they are named after."""
    nodes, module = list[fx.Node](), owner.graph.owning_module
    assert module is not None
    for name, value in values.items():
        path = free_name(module, f"_{owner.name}_{name}")
        module.register_parameter(path, torch.nn.Parameter(value, requires_grad=False))
        with owner.graph.inserting_before(owner):
            nodes.append(owner.graph.get_attr(path))
        nodes[-1].meta["val"] = torchapi.stand_in_beside(owner, value)
    return nodes
