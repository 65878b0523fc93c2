"""Products and sums with a constant for each channel: part of a layer, as a batch norm is.

A norm with frozen statistics, a scale of a layer, a bias that is added apart, pictures that are
normed: each would be an operator and a rounding of its own. Those that no layer stands before are
one, as a layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.fold_batch_norm import (
    Norm,
    as_layer,
    call_for,
    is_layer,
    parameters,
    scale_layer,
)
from tosaic.passes.match import ADDS, PRODUCTS, QUOTIENTS, only_user, values_of
from tosaic.passes.sink_permutes import sink_permutes

aten = torch.ops.aten
_DIFFERENCES = frozenset({"aten.sub.Tensor", "aten.sub.Scalar"})
_BACKWARD = frozenset({"aten.rsub.Tensor", "aten.rsub.Scalar"})
_MATRIX_PRODUCTS = frozenset({"aten.matmul.default", "aten.mm.default", "aten.bmm.default"})
_SAME = frozenset({"aten.clone.default", "aten.contiguous.default"})


def fold_affine(module: fx.GraphModule) -> None:
    """Layers take the constants that their results are multiplied by and added to."""
    for layer in list(module.graph.nodes):
        layer = _as_linear(module, layer)
        if is_layer(layer):
            _fold_into(module, layer)
    is_turned = False
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.users:
            is_turned |= _become_layer(module, node)
    if is_turned:
        sink_permutes(module)
    module.graph.eliminate_dead_code()
    module.recompile()


def _as_linear(module: fx.GraphModule, node: fx.Node) -> fx.Node:
    """A product with a constant matrix is a linear layer."""
    if node.op != "call_function" or torchapi.target_name(node) not in _MATRIX_PRODUCTS:
        return node
    left, right = torchapi.bound_arguments(node).values()
    held, example = values_of(right) if isinstance(right, fx.Node) else None, left.meta["val"]
    if held is None or example.dim() < 2 or not example.is_floating_point():
        return node
    if held.dim() == 3 == example.dim() and len(held) == 1:
        held = held[0]
    if held.dim() != 2:
        return node
    (weight,) = parameters(module, node, node, weight=held.detach().t().contiguous())
    node.target, node.args = aten.linear.default, (left, weight)
    return node


Step = tuple[fx.Node, fx.Node, Tensor, Tensor]  # a call, what it reads, its factor, its offset


def _fold_into(module: fx.GraphModule, layer: fx.Node) -> None:
    axis = _channel_axis(layer)
    steps = list(_steps(layer, axis))
    if all(_is_free(call, by) for call, _, by, _ in steps):
        return
    found = _composed(steps, layer.meta["val"].shape[axis])
    if found is None:
        return
    scale_layer(module, layer, *found)
    for call, source, _, _ in reversed(steps):
        call.replace_all_uses_with(source)
        module.graph.erase_node(call)


def _become_layer(module: fx.GraphModule, first: fx.Node) -> bool:
    """Calls that multiply and add constants of channels, as a layer in the place of the last.

    Whether axes are transposed for it.
    """
    name, others = torchapi.target_name(first), [n for n in first.all_input_nodes if not _held(n)]
    example = others[0].meta.get("val") if len(others) == 1 else None
    if not isinstance(example, Tensor) or not example.is_floating_point():
        return False
    source, rank = others[0], example.dim()
    if rank not in (3, 4) or torchapi.known_shape(example) is None:
        return False
    for axis in sorted({1, rank - 1}):
        found = _constants(first, name, source, axis)
        steps = [] if found is None else [(first, source, *found), *_steps(first, axis)]
        if any(max(by.numel(), plus.numel()) > 1 for _, _, by, plus in steps):
            break
    else:
        return False
    numbers = _composed(steps, example.shape[axis])
    count = sum(not _is_free(call, by) for call, _, by, _ in steps)
    if numbers is None or (rank == 3 and count == 1):
        return False
    last = steps[-1][0]
    order = [0, axis, *(a for a in range(1, rank) if a != axis)]
    with module.graph.inserting_before(last):
        given = source if axis == 1 else call_for(last, aten.permute.default, source, order)
        made = as_layer(module, Norm(last, given, *numbers))
        if axis != 1:
            back = [order.index(a) for a in range(rank)]
            made = call_for(last, aten.permute.default, made, back)
    last.replace_all_uses_with(made)
    while last is not source:  # the calls, and copies between them
        gone, (last,) = last, [n for n in last.all_input_nodes if not _held(n)]
        module.graph.erase_node(gone)
    return axis != 1


def _held(node: fx.Node) -> bool:
    return values_of(node) is not None


def _composed(steps: list[Step], channels: int) -> tuple[Tensor, Tensor] | None:
    """One factor and one offset for each channel; None if a number is too large for it."""
    factor = torch.ones(channels, dtype=torch.float64)
    offset = torch.zeros(channels, dtype=torch.float64)
    for _, _, by, plus in steps:
        factor, offset = factor * by, offset * by + plus
    whole = bool((factor.isfinite() & offset.isfinite()).all())
    return (factor, offset) if whole else None


def _is_free(call: fx.Node, factor: Tensor) -> bool:
    """Whether integers stay as they are and only mean something else."""
    is_product = torchapi.target_name(call) in PRODUCTS + QUOTIENTS
    return is_product and factor.numel() == 1 and bool(factor > 0)


def _steps(first: fx.Node, axis: int) -> Iterator[Step]:
    """Calls behind another that only take its result on."""
    value = first
    while (call := only_user(value)) is not None:
        name, example = torchapi.target_name(call), call.meta.get("val")
        if not isinstance(example, Tensor) or example.dtype != first.meta["val"].dtype:
            return
        if name not in _SAME:
            if (found := _constants(call, name, value, axis)) is None:
                return
            yield call, value, *found
        value = call


def _constants(call: fx.Node, name: str, value: fx.Node, axis: int) -> tuple[Tensor, Tensor] | None:
    """Factor and offset for each channel, or for all."""
    one, zero = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    if name == "aten.neg.default":
        return -one, zero
    bound = torchapi.bound_arguments(call)
    if not {"self", "other"} <= bound.keys() or not torchapi.same_shape(call, value):
        return None
    is_first = bound["self"] is value
    known = _along(bound["other" if is_first else "self"], axis, value)
    if known is None:
        return None
    alpha = float(bound.get("alpha", 1))
    if name in PRODUCTS:
        return known, zero
    if name in QUOTIENTS and is_first and bound.get("rounding_mode") is None:
        return 1 / known, zero
    if name in ADDS:
        return (one, alpha * known) if is_first else (alpha * one, known)
    if name in _DIFFERENCES:
        return (one, -alpha * known) if is_first else (-alpha * one, known)
    if name in _BACKWARD:
        return (-alpha * one, known) if is_first else (one, -alpha * known)
    return None


def _along(constant: Any, axis: int, value: fx.Node) -> Tensor | None:
    """A number, or one for each channel, that a constant stands for."""
    if isinstance(constant, (int, float)) and not isinstance(constant, bool):
        return torch.tensor([float(constant)], dtype=torch.float64)
    held = values_of(constant) if isinstance(constant, fx.Node) else None
    rank = value.meta["val"].dim()
    if held is None or held.dim() > rank or not held.is_floating_point():
        return None
    shape = (1,) * (rank - held.dim()) + tuple(held.shape)
    if any(size != 1 for place, size in enumerate(shape) if place != axis):
        return None
    return held.detach().double().reshape(-1)


def _channel_axis(layer: fx.Node) -> int:
    """Where the results of a layer have its channels."""
    rank = layer.meta["val"].dim()
    if torchapi.target_name(layer) == "aten.linear.default":
        return int(rank - 1)
    return int(rank + 1 - torchapi.bound_arguments(layer)["weight"].meta["val"].dim())
