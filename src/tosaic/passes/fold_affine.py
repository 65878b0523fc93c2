"""Folds products and sums with a constant for each channel into the layer before them.

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
from tosaic.front.hints import mark_of
from tosaic.passes.channel_paths import Place, readers_of, scale_inputs, unshared
from tosaic.passes.engine import Call, Replacement, graph_pass, node_pass, replace
from tosaic.passes.fold_batch_norm import (
    LAYERS,
    Norm,
    as_layer,
    is_layer,
    parameters,
    scale_layer,
)
from tosaic.passes.match import ADDS, COPIES, PRODUCTS, QUOTIENTS, constant_of, only_user, values_of
from tosaic.passes.sink_permutes import sink_permutes

aten = torch.ops.aten
_DIFFERENCE = "aten.sub.Tensor"
_BACKWARD = frozenset({"aten.rsub.Tensor", "aten.rsub.Scalar"})


@node_pass("aten.matmul.default", "aten.mm.default", "aten.bmm.default")
def linear_of_matmul(node: fx.Node) -> Replacement:
    """A product with a constant matrix is a linear layer."""
    left, right = torchapi.bound_arguments(node).values()
    held, example = values_of(right), left.meta["val"]
    if held is None or example.dim() < 2 or not example.is_floating_point():
        return None
    if held.dim() == 3 == example.dim() and len(held) == 1:
        held = held[0]
    if held.dim() != 2:
        return None
    (weight,) = parameters(node, weight=held.detach().t().contiguous())
    return Call(aten.linear.default, (left, weight))


Step = tuple[fx.Node, fx.Node, Tensor, Tensor]  # a call, what it reads, its factor, its offset


@node_pass(*LAYERS)
def fold_affine(layer: fx.Node) -> Replacement:
    """A layer takes the constants that its result is multiplied by and added to."""
    if not is_layer(layer):
        return None
    axis = channel_axis(layer)
    steps = list(_steps(layer, axis))
    if all(_is_free(call, by) for call, _, by, _ in steps):
        return None
    found = _composed(steps, layer.meta["val"].shape[axis])
    if found is None:
        return None
    scale_layer(layer, *found)
    for call, source, _, _ in reversed(steps):
        replace(call, source)
    return True


@graph_pass
def affine_to_depthwise(module: fx.GraphModule) -> bool:
    """What no layer stands before is a layer of its own; permutations that it needs are sunk."""
    made = [
        _as_layer(node) for node in list(module.graph.nodes)
        if node.op == "call_function" and node.users
    ]  # fmt: skip
    if _PERMUTED in made:
        sink_permutes.apply(module)
    return any(made)


@node_pass("aten.conv1d.default", "aten.conv2d.default")
def fold_into_readers(node: fx.Node) -> Replacement:
    """Layers that alone read factors and offsets of channels take them into their weights.

    Zero padding is none of what is multiplied: where there is some, only factors pass.
    """
    bound = torchapi.bound_arguments(node)
    if not is_layer(node) or not _is_pointwise(bound):
        return None
    places = readers_of(Place(node, 1), moves_only=True)
    weight, offset = constant_of(bound["weight"]), constant_of(bound["bias"])
    if not places or weight is None or any(mark_of(p.value).long for p in places):
        return None
    if offset is not None and bool(offset.any()) and any(map(_pads, places)):
        return None
    module, source = node.graph.owning_module, bound["input"]
    assert module is not None
    assert isinstance(source, fx.Node)
    is_own = unshared(module)
    if not all(is_own(p.value) for p in places):
        return None
    for place in places:
        factor, plus = (
            None if t is None else t.reshape(-1).repeat_interleave(place.inner)
            for t in (weight, offset)
        )
        assert factor is not None
        scale_inputs(place.value, factor, plus)
    return source


def _is_pointwise(bound: dict[str, Any]) -> bool:
    """Whether a convolution multiplies each channel by a number of its own, and no more."""
    weight = bound["weight"].meta["val"]
    plain = all(int(n) == 1 for n in (*bound["stride"], *weight.shape[1:]))
    padded = bound["padding"] if isinstance(bound["padding"], (list, tuple)) else ()
    return plain and bool(padded) and not any(padded) and bound["groups"] == weight.shape[0]


def _pads(place: Place) -> bool:
    """Whether a layer reads zeros around its input."""
    padding = torchapi.bound_arguments(place.value).get("padding", 0)
    return padding != "valid" and any(padding) if isinstance(padding, (list, tuple, str)) else False


_MADE, _PERMUTED = "made", "permuted"


def _as_layer(first: fx.Node) -> str:
    """Calls that multiply and add constants of channels, as a layer in the place of the last."""
    name, others = torchapi.target_name(first), [n for n in first.all_input_nodes if not _held(n)]
    example = others[0].meta.get("val") if len(others) == 1 else None
    if not isinstance(example, Tensor) or not example.is_floating_point():
        return ""
    source, rank = others[0], example.dim()
    if rank not in (3, 4) or torchapi.known_shape(example) is None:
        return ""
    for axis in sorted({1, rank - 1}):
        found = _constants(first, name, source, axis)
        steps = [] if found is None else [(first, source, *found), *_steps(first, axis)]
        if any(max(by.numel(), plus.numel()) > 1 for _, _, by, plus in steps):
            break
    else:
        return ""
    numbers = _composed(steps, example.shape[axis])
    count = sum(not _is_free(call, by) for call, _, by, _ in steps)
    if numbers is None or (rank == 3 and count == 1):
        return ""
    last = steps[-1][0]
    order = [0, axis, *(a for a in range(1, rank) if a != axis)]
    with last.graph.inserting_before(last):
        permute = aten.permute.default
        given = source if axis == 1 else torchapi.new_call(last, permute, (source, order))
        made = as_layer(Norm(last, given, *numbers))
        if axis != 1:
            back = [order.index(a) for a in range(rank)]
            made = torchapi.new_call(last, permute, (made, back))
    last.replace_all_uses_with(made)
    while last is not source:  # the calls, and copies between them
        gone, (last,) = last, [n for n in last.all_input_nodes if not _held(n)]
        gone.graph.erase_node(gone)
    return _MADE if axis == 1 else _PERMUTED


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
    is_product = torchapi.target_name(call) in (PRODUCTS, QUOTIENTS)
    return is_product and factor.numel() == 1 and bool(factor > 0)


def _steps(first: fx.Node, axis: int) -> Iterator[Step]:
    """Calls behind another that only take its result on."""
    value = first
    while (call := only_user(value)) is not None:
        name, example = torchapi.target_name(call), call.meta.get("val")
        if not isinstance(example, Tensor) or example.dtype != first.meta["val"].dtype:
            return
        if name not in COPIES:
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
    if name == PRODUCTS:
        return known, zero
    if name == QUOTIENTS and is_first:
        return 1 / known, zero
    if name == ADDS:
        return (one, alpha * known) if is_first else (alpha * one, known)
    if name == _DIFFERENCE:
        return (one, -alpha * known) if is_first else (-alpha * one, known)
    if name in _BACKWARD:
        return (-alpha * one, known) if is_first else (one, -alpha * known)
    return None


def _along(constant: Any, axis: int, value: fx.Node) -> Tensor | None:
    """A number, or one for each channel, that a constant stands for."""
    known, rank = constant_of(constant), value.meta["val"].dim()
    if known is None or known.dim() > rank:
        return None
    shape = (1,) * (rank - known.dim()) + tuple(known.shape)
    is_along = all(size == 1 for place, size in enumerate(shape) if place != axis)
    return known.reshape(-1) if is_along else None


def channel_axis(layer: fx.Node) -> int:
    """Where the results of a layer have its channels."""
    rank = layer.meta["val"].dim()
    if torchapi.target_name(layer) == "aten.linear.default":
        return int(rank - 1)
    return int(rank + 1 - torchapi.bound_arguments(layer)["weight"].meta["val"].dim())
