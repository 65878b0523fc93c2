"""Recognises norms that are written out, with the weights and biases that follow them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.hints import HELD
from tosaic.passes.engine import Call, Replacement, graph_pass, visit
from tosaic.passes.match import (
    ADDS,
    PRODUCTS,
    VIEWS,
    Pattern,
    before,
    either,
    matched,
    name_of,
    number,
    op,
    orders,
    var,
)

aten = torch.ops.aten
_X, _DIM, _EPS = var("x"), var("dim"), number("eps")


def _mean(value: Pattern) -> Pattern:
    return op("mean.dim", value, dim=_DIM, keepdim=True, dtype=(None, torch.float32))


def _square(value: Pattern) -> Pattern:
    power = op("pow.Tensor_Scalar", value, 2)
    return either(op("square.default", value), power, op("mul.Tensor", value, value))


def _variance(value: Pattern) -> Pattern:
    """PyTorch's own, without Bessel's correction."""
    own = op("var.correction", value, dim=_DIM, keepdim=True, correction=0)
    return either(own, op("var.dim", value, dim=_DIM, keepdim=True, unbiased=False))


def _over_root(value: Pattern, square: Pattern) -> Pattern:
    """A value over the root of a square and eps."""
    total = op("add.Tensor", square, _EPS, commutes=True)
    root, power = op("sqrt.default", total), op("pow.Tensor_Scalar", total, -0.5)
    inverse = either(op("rsqrt.default", total), power, op("reciprocal.default", root))
    product = op("mul.Tensor", value, inverse, commutes=True)
    return either(product, op("div.Tensor", value, root))


_CENTRED = op("sub.Tensor", _X, _mean(_X))
_SPREAD = either(_mean(_square(_CENTRED)), _variance(_X), _variance(_CENTRED))
_LAYER, _RMS = _over_root(_CENTRED, _SPREAD), _over_root(_X, _mean(_square(_X)))


@dataclass(frozen=True, slots=True)
class _Norm:
    """What is normalised over which axis, and how."""

    source: fx.Node
    axis: int
    eps: float
    centred: bool
    weight: fx.Node | None = None
    bias: fx.Node | None = None


@graph_pass
def fuse_norms(module: fx.GraphModule) -> bool:
    """Norms in the place of what they are written out as, then their weights and biases."""
    return visit(module.graph, [_norm, _affine], ())


def _norm(node: fx.Node) -> Replacement:
    """A norm that is written out, over one axis."""
    if not isinstance(node.meta.get("val"), Tensor):
        return None
    for form in (_LAYER, _RMS):
        found = matched(node, form)
        if found is not None and len(found["dim"]) == 1 and found["eps"] >= 0:
            source = found["x"]
            if source.meta["val"].is_floating_point():
                return _emit(node, _Norm(source, found["dim"][0], found["eps"], form is _LAYER))
    return None


def _emit(node: fx.Node, norm: _Norm) -> Replacement:
    """The norm in the place of a call; rows are brought to the end and back."""
    source, axis, rank = norm.source, norm.axis, norm.source.meta["val"].dim()
    length = source.meta["val"].shape[axis]
    if not isinstance(length, int):
        return None
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
        return Call(target, args)
    made = torchapi.new_call(node, target, args)
    back = [turn.index(a) for a in range(rank)]
    return Call(aten.permute.default, (made, back))


def _parameter(value: Any, length: int, axis_from_end: int) -> fx.Node | None:
    """The parameter of a norm's length that a factor or a summand is, in whatever view."""
    if not isinstance(value, fx.Node) or not isinstance(value.meta.get("val"), Tensor):
        return None
    shape = list(value.meta["val"].shape)
    place = len(shape) - axis_from_end
    if place < 0 or math.prod(shape) != length or shape[place] != length:
        return None
    while name_of(value) in VIEWS:
        value = value.args[0]
    is_row = value.meta.get(HELD) and list(value.meta["val"].shape) == [length]
    return value if is_row else None


def _read_norm(node: Any) -> _Norm | None:
    """A norm that is there already, its rows perhaps brought to the end and back."""
    is_transposed, inner = False, node
    example = node.meta.get("val") if isinstance(node, fx.Node) else None
    rank = example.dim() if isinstance(example, Tensor) else 0  # a number may be computed, too
    axis = rank - 1
    if name_of(node) == "aten.permute.default" and len(node.users) == 1:
        inner, is_transposed = before(node.args[0]), True
        axis = list(node.args[1]).index(rank - 1)
    name = name_of(inner)
    if name not in ("aten.rms_norm.default", "aten.layer_norm.default") or len(inner.users) != 1:
        return None
    bound = torchapi.bound_arguments(inner)
    source = bound["input"]
    if is_transposed:
        if name_of(source) != "aten.permute.default":
            return None
        source = source.args[0]
    if len(bound["normalized_shape"]) != 1 or bound["eps"] is None:
        return None
    centred = name == "aten.layer_norm.default"
    return _Norm(source, axis, bound["eps"], centred, bound["weight"], bound.get("bias"))


def _affine(node: fx.Node) -> Replacement:
    """The weight that a norm without one is multiplied by, and the bias that is added to it."""
    for names in (PRODUCTS, ADDS):
        for value, other in orders(node, names):
            if (norm := _read_norm(value)) is None:
                continue
            is_product = names is PRODUCTS
            if norm.bias is not None or (
                norm.weight is not None if is_product else not norm.centred
            ):
                continue
            length = norm.source.meta["val"].shape[norm.axis]
            from_end = norm.source.meta["val"].dim() - norm.axis
            parameter = _parameter(other, length, from_end)
            if parameter is None or parameter.meta["val"].dtype != node.meta["val"].dtype:
                continue
            if is_product:
                return _emit(node, replace(norm, weight=parameter))
            return _emit(node, replace(norm, bias=parameter))
    return None
