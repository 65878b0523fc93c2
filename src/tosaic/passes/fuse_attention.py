"""Recognises attention that is written out as the one operator.

softmax(q · kᵀ · scale, masked) · v is found by its two products and the softmax between them, with
masks in the ways that people write them: numbers added, or put where a condition holds. In int8 a
sum with −10000 or −∞ has no room left for scores; the operator knows what a mask is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.passes.attention_masks import FAR, SOFTMAXES, Masking, conditions, joined
from tosaic.passes.engine import Call, Replacement, node_pass
from tosaic.passes.match import (
    ADDS,
    BOTH,
    CASTS,
    COPIES,
    PRODUCTS,
    QUOTIENTS,
    VIEWS,
    before,
    name_of,
    number_of,
    shape_of,
    values_of,
)

aten = torch.ops.aten
_PRODUCTS = ("aten.matmul.default", "aten.bmm.default")
OPERATOR = "aten.scaled_dot_product_attention.default"
_LOWEST = -1e30  # a bound below this one bounds nothing


@dataclass(frozen=True, slots=True)
class _Scores:
    """Products of queries and turned keys, what they are multiplied with, and their masks."""

    query: fx.Node
    transposed: fx.Node
    scale: float = 1.0
    heads: fx.Node | None = None  # a factor for each head
    masks: tuple[Masking, ...] = field(default=())

    def masked(self, mask: Masking) -> _Scores:
        return replace(self, masks=(*self.masks, mask))


@node_pass(*_PRODUCTS, OPERATOR)
def fuse_attention(node: fx.Node) -> Replacement:
    """The operator in the place of the last product of an attention that is written out."""
    if name_of(node) == OPERATOR:
        return _with_condition(node)
    scores = _attention(node)
    return None if scores is None else _operator(node, scores, conditions(node, scores.masks))


@node_pass(*_PRODUCTS)
def fuse_exact_attention(node: fx.Node) -> Replacement:
    """The same for floats, where masks mean the same for all inputs: numbers that are added, or
    a constant that leaves something of each row."""
    scores = _attention(node)
    if scores is None or not (_is_sum(scores) or all(map(_leaves_rows, scores.masks))):
        return None
    return _operator(node, scores, list(scores.masks))


def _is_sum(scores: _Scores) -> bool:
    return len(scores.masks) == 1 and scores.masks[0].value is None


def _leaves_rows(mask: Masking) -> bool:
    known = values_of(mask.node)
    if known is None or mask.value is None:
        return known is not None
    allowed = (known.bool() == mask.is_allowed).expand(mask.shape)
    return mask.value <= FAR and bool(allowed.any(-1).all())


def _with_condition(node: fx.Node) -> bool:
    """Give the operator a condition in the place of computed numbers that stand for one."""
    bound = torchapi.bound_arguments(node)
    query, key, mask = bound["query"], bound["key"], bound["attn_mask"]
    if not isinstance(mask, fx.Node) or not mask.meta["val"].dtype.is_floating_point:
        return False
    whole = (*shape_of(query)[:-1], shape_of(key)[-2])
    given = Masking(mask, shape=whole)
    found = conditions(node, [given])
    if found is None or found == [given] or not all(_fits(m, whole) for m in found):
        return False
    made = joined(node, found, whole)
    assert made is not None
    node.replace_input_with(mask, made)
    return True


def _attention(node: fx.Node) -> _Scores | None:
    """The scores of the attention that a product of shares and values ends."""
    shares = _bare(_operands(node)[0])
    while shares is not None and name_of(shares) in VIEWS:
        source = shares.args[0]
        assert isinstance(source, fx.Node)
        shares = _bare(source) if shape_of(source)[-2:] == shape_of(shares)[-2:] else None
    if shares is None or name_of(shares) not in SOFTMAXES:
        return None
    bound = torchapi.bound_arguments(shares)
    last = shares.meta["val"].dim() - 1
    if bound["dim"] not in (-1, last) or bound.get("half_to_float"):
        return None
    return _scores(bound["self"])


def _operands(product: fx.Node) -> list[fx.Node]:
    return list(torchapi.bound_arguments(product).values())


def _bare(node: Any) -> fx.Node | None:
    """What a value is that nothing else reads, before it is copied or cast to what it is."""
    source = before(node, names=COPIES | CASTS)
    is_bare = isinstance(source, fx.Node) and len(source.users) == 1
    return source if is_bare and name_of(source) not in COPIES | CASTS else None


def _scores(given: Any) -> _Scores | None:
    node = _bare(given)
    if node is None or node.op != "call_function":
        return None
    name, bound = torchapi.target_name(node), torchapi.bound_arguments(node)
    if name in _PRODUCTS:
        operands = node.all_input_nodes
        if len(operands) != 2:
            return None
        (query, first), (transposed, second) = (_factored(operand) for operand in operands)
        return _Scores(query, transposed, first * second)
    if name in VIEWS:  # other axes for the heads, as windows have them
        source = bound["self"]
        return _scores(source) if shape_of(source)[-2:] == shape_of(node)[-2:] else None
    reads = _FORMS.get(name)
    found = None if reads is None else reads(bound)
    if found is None:
        return None
    masks = [m if m.shape else replace(m, shape=shape_of(node)) for m in found.masks]
    return replace(found, masks=tuple(masks))


def _factored(node: fx.Node) -> tuple[fx.Node, float]:
    """What is multiplied by a number for this reader alone, and the number."""
    name = name_of(node)
    if len(node.users) == 1 and name == PRODUCTS:
        bound = torchapi.bound_arguments(node)
        for one, other in BOTH:
            factor = number_of(bound[other])
            if factor is not None and factor > 0 and _is_as_large(bound[one], node):
                return bound[one], factor
    elif len(node.users) == 1 and name == QUOTIENTS:
        bound = torchapi.bound_arguments(node)
        divisor = number_of(bound["other"])
        if divisor is not None and divisor > 0 and _is_as_large(bound["self"], node):
            return bound["self"], 1 / divisor
    return node, 1.0


def _is_as_large(source: Any, node: fx.Node) -> bool:
    return isinstance(source, fx.Node) and torchapi.same_shape(source, node)


def _multiplied(bound: dict[str, Any]) -> _Scores | None:
    for one, other in BOTH:
        factor, found = number_of(bound[other]), _scores(bound[one])
        if factor is not None and found is not None:
            return _scaled(found, factor)
        if found is not None and _is_of_heads(bound[other], found):
            return None if found.masks or found.heads else replace(found, heads=bound[other])
    return None


def _is_of_heads(factor: Any, scores: _Scores) -> bool:
    """Whether a constant has one positive number for each head, or for some of them."""
    known = values_of(factor)
    if (
        known is None
        or known.dim() < 2
        or known.shape[-2:] != (1, 1)
        or not bool((known > 0).all())
    ):
        return False
    batch = shape_of(scores.query)[:-2]
    own = (1,) * (len(batch) - known.dim() + 2) + tuple(known.shape[:-2])
    return len(own) == len(batch) and all(a in (1, b) for a, b in zip(own, batch))


def _divided(bound: dict[str, Any]) -> _Scores | None:
    divisor, found = number_of(bound["other"]), _scores(bound["self"])
    if not divisor or found is None:
        return None
    return _scaled(found, 1 / divisor)


def _scaled(scores: _Scores, factor: float) -> _Scores | None:
    """A mask would be scaled as well, and is left alone."""
    return replace(scores, scale=scores.scale * factor) if not scores.masks and factor > 0 else None


def _added(bound: dict[str, Any]) -> _Scores | None:
    if bound.get("alpha", 1) != 1:
        return None
    for one, other in BOTH:
        found = _scores(bound[one])
        if found is not None and isinstance(bound[other], fx.Node):
            return found.masked(Masking(bound[other]))
    return None


def _filled(bound: dict[str, Any]) -> _Scores | None:
    found, value = _scores(bound["self"]), number_of(bound["value"])
    if found is None or value is None:
        return None
    return found.masked(Masking(bound["mask"], value, is_allowed=False))


def _chosen(bound: dict[str, Any]) -> _Scores | None:
    for one, other in BOTH:
        found, value = _scores(bound[one]), number_of(bound[other])
        if found is not None and value is not None:
            return found.masked(Masking(bound["condition"], value, is_allowed=one == "self"))
    return None


def _bounded(bound: dict[str, Any]) -> _Scores | None:
    """A bound that is as low as numbers get changes nothing."""
    for one, other in (("self", "other"), ("other", "self"), ("self", "min")):
        if one in bound and other in bound and bound.get("max") is None:
            least, found = number_of(bound[other]), _scores(bound[one])
            if found is not None and least is not None and least <= _LOWEST:
                return found
    return None


def _product_and_mask(bound: dict[str, Any]) -> _Scores | None:
    if bound["beta"] != 1 or bound["alpha"] <= 0:
        return None
    found = _Scores(bound["batch1"], bound["batch2"], float(bound["alpha"]))
    return found.masked(Masking(bound["self"]))


_FORMS: dict[str, Callable[[dict[str, Any]], _Scores | None]] = {
    PRODUCTS: _multiplied, QUOTIENTS: _divided, ADDS: _added, "aten.masked_fill.Scalar": _filled,
    "aten.masked_fill.Tensor": _filled, "aten.where.self": _chosen,
    "aten.where.ScalarOther": _chosen, "aten.where.ScalarSelf": _chosen,
    "aten.maximum.default": _bounded, "aten.clamp.default": _bounded,
    "aten.clamp_min.default": _bounded, "aten.baddbmm.default": _product_and_mask,
}  # fmt: skip


def _operator(node: fx.Node, scores: _Scores, masks: list[Masking] | None) -> Call | None:
    """The operator, if all of it has the shapes that it takes."""
    operands = scores.query, scores.transposed, _operands(node)[1]
    shapes, kinds = [shape_of(n) for n in operands], {n.meta["val"].dtype for n in operands}
    if len({shape[:-2] for shape in shapes}) != 1 or len(kinds) != 1:
        return None  # it would spread, or be cast
    if any(len(shape) < 2 for shape in shapes):  # vectors, or sizes that are not known
        return None
    whole = (*shapes[0][:-1], shapes[1][-1])
    if masks is None or not all(_fits(mask, whole) for mask in masks):
        return None
    mask = joined(node, masks, whole)
    transposed = torchapi.new_call(node, aten.transpose.int, (scores.transposed, -2, -1))
    query = scores.query
    if scores.heads is not None:
        query = torchapi.new_call(node, aten.mul.Tensor, (query, scores.heads))
    operator = aten.scaled_dot_product_attention.default
    return Call(operator, (query, transposed, operands[2], mask), {"scale": scores.scale})


def _fits(mask: Masking, whole: tuple[int, ...]) -> bool:
    """Whether a mask spreads to the scores without making more of them."""
    shape = shape_of(mask.node)
    own = mask.shape[len(mask.shape) - len(shape) :]
    spreads = 0 < len(shape) <= len(mask.shape) and all(a in (1, b) for a, b in zip(shape, own))
    return spreads and (mask.shape == whole or mask.is_known)
