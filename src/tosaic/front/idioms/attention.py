"""Attention that is written out: products, a factor, masks, softmax, products."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.idioms.calls import (
    PRODUCTS,
    QUOTIENTS,
    become,
    before,
    name_of,
    new_call,
    number_of,
    orders,
    pair_of,
)

aten = torch.ops.aten
_MATRICES = ("aten.matmul.default", "aten.bmm.default")
_FORBIDDEN = -1e4  # a score from here on takes no part


@dataclass(frozen=True, slots=True)
class _Scores:
    """Products of queries and keys, times a factor, plus a mask or where a mask allows them."""

    query: Any
    key: Any
    scale: float
    mask: fx.Node | None = None


def attention(node: fx.Node) -> bool:
    """Shares of scores times values."""
    if (parts := _weighed(node)) is None:
        return False
    shares, value, order = parts
    scores = _given(shares)
    found = None if scores is None else _scores(scores)
    if found is None:
        return False
    query = found.query.meta["val"]
    tensors = (query, found.key.meta["val"], value.meta["val"])
    if len({t.dtype for t in tensors}) != 1 or len({t.shape[:-2] for t in tensors}) != 1:
        return False
    if found.mask is not None and found.mask.meta["val"].dtype not in (torch.bool, query.dtype):
        return False
    target, given = aten.scaled_dot_product_attention.default, (found.query, found.key, value)
    arguments = (*given, found.mask, 0.0, False)
    if order is None:
        return become(node, target, arguments, scale=found.scale)
    made = new_call(node, target, *arguments, scale=found.scale)
    return become(node, aten.permute.default, (made, order))


def _weighed(node: fx.Node) -> tuple[Any, Any, list[int] | None] | None:
    """Shares and values as a matrix product has them, and how its result is turned then."""
    if (operands := _operands(node)) is not None:
        return *operands, None
    if (terms := _terms(node)) is None:
        return None
    (shares, letters), (value, names), result = terms
    *batch, row, column = list(letters)
    if column in result or row in names or {*batch, column} - {*names}:
        return None
    rest = [name for name in names if name not in (*batch, column)]
    made = [*batch, row, *rest]
    if len(rest) != 1 or sorted(made) != sorted(result):
        return None
    order = [made.index(name) for name in result]
    turned = _in_order(value, names, [*batch, column, *rest])
    return shares, turned, None if made == list(result) else order


def _given(shares: Any) -> Any:
    """What softmax along the last axis is taken of."""
    if name_of(shares) not in ("aten.softmax.int", "aten._softmax.default"):
        return None
    source, value = shares.args[0], shares.meta["val"]
    if len(shares.users) != 1 or source.meta["val"].dtype != value.dtype:
        return None
    return before(source) if shares.args[1] % value.dim() == value.dim() - 1 else None


def _scores(node: Any) -> _Scores | None:
    """What an attention's softmax is taken of."""
    if not isinstance(node, fx.Node) or len(node.users) != 1:
        return None
    if (found := _products(node)) is not None:
        return found
    inner, factor = _factored(node)
    if inner is node:
        return _biased(node) or _filled(node)
    found = _scores(inner)
    if found is None or found.mask is not None:
        return None
    return replace(found, scale=found.scale * factor)


def _products(node: fx.Node) -> _Scores | None:
    if (operands := _operands(node)) is not None:
        (query, first), (key, second) = map(_factored, operands)
        return _Scores(query, _turned(key), first * second)
    if (terms := _terms(node)) is None:
        return None
    (query, names), (key, others), result = terms
    *batch, row, column = list(result)
    inner = [name for name in names if name in others and name not in batch]
    rows, columns = [*batch, row, *inner], [*batch, column, *inner]
    if len(inner) != 1 or sorted(names) != sorted(rows) or sorted(others) != sorted(columns):
        return None
    (query, first), (key, second) = _factored(query), _factored(key)
    turned = _in_order(query, names, rows), _in_order(key, others, columns)
    return _Scores(*turned, first * second)


def _operands(node: fx.Node) -> tuple[Any, Any] | None:
    """The two stacks of matrices that a call multiplies."""
    if name_of(node) not in _MATRICES:
        return None
    bound = torchapi.bound_arguments(node)
    found = before(bound["self"]), before(bound.get("other", bound.get("mat2")))
    values = [operand.meta["val"] for operand in found]
    return found if all(v.dim() >= 2 and v.is_floating_point() for v in values) else None


def _terms(node: fx.Node) -> tuple[tuple[Any, str], tuple[Any, str], str] | None:
    """The operands of an einsum of two, with the names of their axes, and those of its result."""
    if name_of(node) != "aten.einsum.default":
        return None
    equation, operands = node.args[0], node.args[1]
    left, arrow, result = str(equation).replace(" ", "").partition("->")
    names = left.split(",")
    is_plain = arrow and "." not in left and all(len({*n}) == len(n) for n in (*names, result))
    if (
        not is_plain
        or len(names) != 2
        or len(result) < 2
        or not isinstance(operands, (list, tuple))
    ):
        return None
    first, second = (before(operand) for operand in operands)
    if not all(v.meta["val"].is_floating_point() for v in (first, second)):
        return None
    return (first, names[0]), (second, names[1]), result


def _in_order(value: fx.Node, names: str, wanted: list[str]) -> fx.Node:
    order = [names.index(name) for name in wanted]
    if order == sorted(order):
        return value
    return new_call(value, aten.permute.default, value, order)


def _turned(key: Any) -> Any:
    """Keys as rows."""
    rank = key.meta["val"].dim()
    if name_of(key) == "aten.transpose.int":
        swapped = sorted(axis % rank for axis in key.args[1:]) == [rank - 2, rank - 1]
    else:
        last = [*range(rank - 2), rank - 1, rank - 2]
        swapped = name_of(key) == "aten.permute.default" and [a % rank for a in key.args[1]] == last
    return key.args[0] if swapped else new_call(key, aten.transpose.int, key, -2, -1)


def _factored(value: Any) -> tuple[Any, float]:
    """A value and the number that it is multiplied by."""
    if len(value.users) != 1:
        return value, 1.0
    for inner, factor in orders(value, PRODUCTS):
        if (number := number_of(factor)) is not None and number > 0:
            return inner, number
    pair = pair_of(value, QUOTIENTS)
    if pair is not None and (number := number_of(pair[1])) is not None and number > 0:
        return pair[0], 1 / number
    return value, 1.0


def _biased(node: fx.Node) -> _Scores | None:
    """Scores to which something is added, once or twice."""
    for inner, added in orders(node, ("aten.add.Tensor",)):
        if not all(isinstance(v, fx.Node) and _is_real(v) for v in (inner, added)):
            return None
        if inner.meta["val"].shape != node.meta["val"].shape:
            continue
        found = _scores(inner)
        if found is not None and found.mask is None:
            return replace(found, mask=added)
        if found is not None and found.mask is not None and _is_real(found.mask):
            return replace(found, mask=new_call(node, aten.add.Tensor, found.mask, added))
    return None


def _is_real(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.is_floating_point()


def _filled(node: fx.Node) -> _Scores | None:
    """Scores of which some are put out of reach."""
    name, bound = name_of(node), torchapi.bound_arguments(node)
    if name == "aten.masked_fill.Scalar":
        mask, low, keeps = bound["mask"], bound["value"], False
    elif name in ("aten.where.ScalarOther", "aten.where.self"):
        mask, low, keeps = bound["condition"], _constant(bound["other"]), True
    else:
        return None
    number, inner = number_of(low), before(bound["self"])
    if number is None or number > _FORBIDDEN or mask.meta["val"].dtype is not torch.bool:
        return None
    found = _scores(inner)
    if found is None or found.mask is not None or inner.meta["val"].shape != node.meta["val"].shape:
        return None
    allowed = mask if keeps else new_call(node, aten.logical_not.default, mask)
    return replace(found, mask=allowed)


def _constant(value: Any) -> Any:
    """The number that a tensor is full of."""
    if name_of(value) in ("aten.full.default", "aten.scalar_tensor.default"):
        return value.args[-1]
    return value.args[1] if name_of(value) == "aten.full_like.default" else value
