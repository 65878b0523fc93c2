"""Norms that are written out, and the weights and biases that follow them."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.match import (
    ADDS,
    PRODUCTS,
    become,
    before,
    name_of,
    number_of,
    orders,
    pair_of,
)

aten = torch.ops.aten
_SQRT = "aten.sqrt.default"


@dataclass(frozen=True, slots=True)
class _Norm:
    """What is normalised over which axes, and how."""

    source: fx.Node
    axes: tuple[int, ...]
    eps: float
    centred: bool
    weight: fx.Node | None = None
    bias: fx.Node | None = None


def _mean(node: Any) -> tuple[fx.Node, tuple[int, ...]] | None:
    """What a mean that keeps its axes is of, and which these are."""
    if name_of(node) != "aten.mean.dim":
        return None
    bound = torchapi.bound_arguments(node)
    source = before(bound["self"])
    if not bound["keepdim"] or bound["dim"] is None or bound["dtype"] not in (None, torch.float32):
        return None
    rank = source.meta["val"].dim()
    return source, tuple(sorted(axis % rank for axis in bound["dim"]))


def _square(node: Any) -> Any:
    """What a call is the square of."""
    name = name_of(node)
    if name == "aten.square.default":
        return before(node.args[0])
    if name == "aten.pow.Tensor_Scalar" and node.args[1] == 2:
        return before(node.args[0])
    pair = pair_of(node, ("aten.mul.Tensor",))
    return pair[0] if pair is not None and pair[0] is pair[1] else None


def _centred(node: Any) -> tuple[fx.Node, tuple[int, ...]] | None:
    """What a call takes the mean away from."""
    pair = pair_of(node, ("aten.sub.Tensor",))
    if pair is None or (found := _mean(pair[1])) is None or found[0] is not pair[0]:
        return None
    return found


def _variance(node: Any) -> tuple[Any, tuple[int, ...], bool] | None:
    """What a call is the mean square of, about its mean or about 0."""
    if (found := _mean(node)) is not None:
        base = _square(found[0])
        if not isinstance(base, fx.Node):
            return None
        apart = _centred(base)
        if apart is not None and apart[1] == found[1]:
            return base, found[1], True
        return base, found[1], False
    bound = torchapi.bound_arguments(node) if name_of(node).startswith("aten.var.") else {}
    unbiased = bound.get("correction", bound.get("unbiased"))
    axes = bound.get("dim")
    if not bound or unbiased is None or bool(unbiased) or not axes or not bound["keepdim"]:
        return None
    source = before(bound["self"])
    rank = source.meta["val"].dim()
    return source, tuple(sorted(axis % rank for axis in axes)), True


def _spread(node: Any) -> tuple[Any, tuple[int, ...], bool, float] | None:
    """The same and eps, for variance + eps."""
    for total, eps in orders(node, ADDS):
        if (number := number_of(eps)) is not None and number >= 0:
            found = _variance(total)
            return None if found is None else (*found, number)
    return None


def _over(node: fx.Node) -> tuple[Any, Any] | None:
    """What is divided by a root, and what the root is of."""
    for element, root in orders(node, PRODUCTS):
        if name_of(root) == "aten.rsqrt.default":
            return element, before(root.args[0])
        inverse = name_of(root) == "aten.pow.Tensor_Scalar" and root.args[1] == -0.5
        if inverse:
            return element, before(root.args[0])
        if name_of(root) == "aten.reciprocal.default" and name_of(before(root.args[0])) == _SQRT:
            return element, before(before(root.args[0]).args[0])
    pair = pair_of(node, ("aten.div.Tensor",))
    if pair is not None and name_of(pair[1]) == _SQRT:
        return pair[0], before(pair[1].args[0])
    return None


def _normalised(node: fx.Node) -> _Norm | None:
    if (parts := _over(node)) is None or (found := _spread(parts[1])) is None:
        return None
    element, (base, axes, centred, eps) = parts[0], found
    if not centred:
        return _Norm(element, axes, eps, False) if element is base else None
    apart = _centred(element)
    if apart is None or apart[1] != axes:
        return None
    if base not in (element, apart[0]) and _centred(base) != apart:
        return None
    return _Norm(apart[0], axes, eps, True)


def norm(node: fx.Node) -> bool:
    """A norm that is written out, over one axis."""
    found = _normalised(node)
    if found is None or len(found.axes) != 1 or not found.source.meta["val"].is_floating_point():
        return False
    return _emit(node, found)


def _emit(node: fx.Node, norm: _Norm) -> bool:
    """The norm in the place of a call; rows are brought to the end and back."""
    source, axis, rank = norm.source, norm.axes[0], norm.source.meta["val"].dim()
    length = source.meta["val"].shape[axis]
    if not isinstance(length, int):
        return False
    turn = [*(a for a in range(rank) if a != axis), axis]
    rows = (
        source
        if axis == rank - 1
        else torchapi.new_call(node, aten.permute.default, (source, turn))
    )
    args: tuple[Any, ...] = (rows, [length], norm.weight)
    target = aten.rms_norm.default
    if norm.centred:
        target, args = aten.layer_norm.default, (*args, norm.bias)
    args = (*args, norm.eps)
    if rows is source:
        return become(node, target, args)
    made = torchapi.new_call(node, target, args)
    back = [turn.index(a) for a in range(rank)]
    return become(node, aten.permute.default, (made, back))


def _parameter(value: Any, length: int, axis_from_end: int, held: Container[str]) -> fx.Node | None:
    """The parameter of a norm's length that a factor or a summand is, in whatever view."""
    if not isinstance(value, fx.Node) or not isinstance(value.meta.get("val"), Tensor):
        return None
    shape = list(value.meta["val"].shape)
    place = len(shape) - axis_from_end
    if place < 0 or math.prod(shape) != length or shape[place] != length:
        return None
    views = ("aten.unsqueeze.default", "aten.view.default", "aten.reshape.default")
    while name_of(value) in views:
        value = value.args[0]
    is_row = value.op == "placeholder" and list(value.meta["val"].shape) == [length]
    return value if is_row and value.name in held else None


def _read_norm(node: Any) -> tuple[_Norm, bool] | None:
    """A norm that is there already, and whether it was turned for it."""
    turned, inner = False, node
    rank = node.meta["val"].dim() if isinstance(node, fx.Node) else 0
    axis = rank - 1
    if name_of(node) == "aten.permute.default" and len(node.users) == 1:
        inner, turned = before(node.args[0]), True
        axis = list(node.args[1]).index(rank - 1)
    name = name_of(inner)
    if name not in ("aten.rms_norm.default", "aten.layer_norm.default") or len(inner.users) != 1:
        return None
    bound = torchapi.bound_arguments(inner)
    source = bound["input"]
    if turned:
        if name_of(source) != "aten.permute.default":
            return None
        source = source.args[0]
    if len(bound["normalized_shape"]) != 1 or bound["eps"] is None:
        return None
    centred = name == "aten.layer_norm.default"
    return (
        _Norm(source, (axis,), bound["eps"], centred, bound["weight"], bound.get("bias")),
        turned,
    )


def affine(node: fx.Node, held: Container[str]) -> bool:
    """The weight that a norm without one is multiplied by, and the bias that is added to it."""
    for names in (PRODUCTS, ADDS):
        for value, other in orders(node, names):
            if (found := _read_norm(value)) is None:
                continue
            norm, is_product = found[0], names is PRODUCTS
            if norm.bias is not None or (
                norm.weight is not None if is_product else not norm.centred
            ):
                continue
            length = norm.source.meta["val"].shape[norm.axes[0]]
            from_end = norm.source.meta["val"].dim() - norm.axes[0]
            parameter = _parameter(other, length, from_end, held)
            if parameter is None or parameter.meta["val"].dtype != node.meta["val"].dtype:
                continue
            if is_product:
                return _emit(node, replace(norm, weight=parameter))
            return _emit(node, replace(norm, bias=parameter))
    return False
