"""Masks of attention: conditions where scores count, and numbers that are added to them.

A softmax that is no attention known as a whole reads its scores and one number far below: a sum
with −10000 or −∞ leaves no room for the others. What then is far below the largest of its row does
not count for the range either: see ``quant.readers``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.engine import Call, Replacement, node_pass
from tosaic.passes.match import BOTH, CASTS, PRODUCTS, hold, name_of, number_of, values_of

aten = torch.ops.aten
FAR = -1e3  # what adds this much, or is this little, counts for nothing
_AWAY = 32.0  # what is this much below all others has a share of 1e-14
MOVES = frozenset({
    "aten.unsqueeze.default", "aten.expand.default", "aten.view.default", "aten.reshape.default",
    "aten.slice.Tensor", "aten.permute.default", "aten.transpose.int", "aten.clone.default",
    "aten.contiguous.default", "aten.select.int", "aten.squeeze.dim", "aten.repeat.default",
})  # fmt: skip
_ZEROS = frozenset({"aten.zeros_like.default", "aten.new_zeros.default", "aten.zeros.default"})


@dataclass(frozen=True, slots=True)
class Masking:
    """Numbers to add to scores; with ``value``, a condition and the number elsewhere.

    ``is_allowed`` says whether scores stay where the condition holds, or where it does not.
    ``shape`` is that of the scores where they are masked.
    """

    node: fx.Node
    value: float | None = None
    is_allowed: bool = True
    shape: tuple[int, ...] = ()

    @property
    def is_known(self) -> bool:
        return values_of(self.node) is not None


def conditions(home: fx.Node, masks: Sequence[Masking]) -> list[Masking] | None:
    """The same masks, with conditions where numbers stand for them; None if one is no mask.

    New calls are made where the graph of ``home`` inserts them.
    """
    found = [term for mask in masks for term in terms(home, mask)]
    if any(mask.value is not None and mask.value > FAR for mask in found):
        return None
    computed = [m for m in found if m.value is None and not m.is_known]
    return None if computed and len(found) > 1 else found


def terms(home: fx.Node, mask: Masking, sign: int = 1) -> list[Masking]:
    """Conditions and known numbers that a mask is the sum of, or the mask itself.

    A mask that is taken away has the sign −1.
    """
    if mask.value is not None or mask.is_known:
        return [mask]
    made = _condition(home, mask.node, sign)
    if made is not None:
        return [replace(made, shape=mask.shape)]
    bound = torchapi.bound_arguments(mask.node)
    if name_of(mask.node) in MOVES:
        parts = terms(home, replace(mask, node=bound["self"]), sign)
        moved = [_moved(home, part, mask.node) for part in parts] if len(parts) > 1 else [None]
        return [mask] if None in moved else [part for part in moved if part is not None]
    if name_of(mask.node) != "aten.add.Tensor" or bound["alpha"] != 1:
        return [mask]
    if not all(isinstance(bound[k], fx.Node) for k in ("self", "other")):
        return [mask]
    parts = [t for k in ("self", "other") for t in terms(home, replace(mask, node=bound[k]), sign)]
    return [mask] if any(p.value is None and not p.is_known for p in parts) else parts


def _moved(home: fx.Node, part: Masking, move: fx.Node) -> Masking | None:
    """A part of a sum as it is where the sum was reshaped or permuted."""
    whole = torchapi.known_shape(torchapi.bound_arguments(move)["self"].meta["val"])
    if whole is None or any(isinstance(arg, fx.Node) for arg in move.args[1:]):
        return None
    values = values_of(part.node)
    if values is not None:
        return replace(part, node=held(home, move.target(values.expand(whole), *move.args[1:])))  # type: ignore[operator]
    spread = torchapi.new_call(home, aten.expand.default, (part.node, [*whole]))
    return replace(part, node=torchapi.new_call(home, move.target, (spread, *move.args[1:])))


def joined(home: fx.Node, masks: Sequence[Masking], shape: tuple[int, ...]) -> fx.Node | None:
    """One mask for scores of a shape: numbers, or a condition where scores count."""
    if not masks:
        return None
    if len(masks) == 1 and masks[0].value is None and not masks[0].is_known:
        return masks[0].node
    total = torch.zeros((), dtype=home.meta["val"].dtype)
    for mask in masks:
        total = total + _numbers(mask, shape) if mask.is_known else total
    given = [allowed(home, mask) for mask in masks if not mask.is_known]
    if not given:
        return held(home, total)
    is_bias = bool(((total != 0) & (total > FAR)).any())
    if not is_bias and total.dim():
        given.append(held(home, total > FAR))
    result = given[0]
    for other in given[1:]:
        result = torchapi.new_call(home, aten.logical_and.default, (result, other))
    if not is_bias:
        return result
    low = float(total[total > FAR].min()) - _AWAY  # numbers that int8 has, beside the others
    numbers = held(home, total.clamp(min=low)), held(home, torch.tensor([low]))
    return torchapi.new_call(home, aten.where.self, (result, *numbers))


def _numbers(mask: Masking, shape: tuple[int, ...]) -> Tensor:
    """What a known mask adds to scores of a shape."""
    values = values_of(mask.node)
    assert values is not None
    if mask.value is not None:
        values = torch.zeros(values.shape).masked_fill(values.bool() != mask.is_allowed, -math.inf)
    return values.detach() if mask.shape == shape else values.expand(mask.shape).reshape(shape)


def allowed(home: fx.Node, mask: Masking) -> fx.Node:
    """A condition that holds where scores count."""
    if mask.is_allowed:
        return mask.node
    return torchapi.new_call(home, aten.logical_not.default, (mask.node,))


def held(home: fx.Node, values: Tensor) -> fx.Node:
    """A tensor as a buffer of the module."""
    module = home.graph.owning_module
    assert module is not None
    return hold(home, f"_mask_of_{home.name}_{len(list(module.buffers()))}", values)


def _condition(home: fx.Node, node: fx.Node, sign: int = 1) -> Masking | None:
    """The condition behind numbers that are 0 where it holds and far below elsewhere."""
    if node.op != "call_function":
        return None
    name, bound = torchapi.target_name(node), torchapi.bound_arguments(node)
    if name in CASTS:
        return _condition(home, bound["self"], sign)
    if name == "aten.neg.default":
        return _condition(home, bound["self"], -sign)
    if name in MOVES:
        inner = _condition(home, bound["self"], sign)
        if inner is None:
            return None
        moved = torchapi.new_call(home, node.target, (inner.node, *node.args[1:]))
        return replace(inner, node=moved)
    found = _two_numbers(home, name, bound, sign)
    if found is None or torchapi.same_shape(found.node, node):
        return found
    if torchapi.known_shape(node.meta["val"]) is None:
        return None
    spread = torchapi.new_call(home, aten.expand.default, (found.node, [*node.meta["val"].shape]))
    return replace(found, node=spread)


def _two_numbers(home: fx.Node, name: str, bound: dict[str, Any], sign: int) -> Masking | None:
    """A condition from a call that chooses between 0 and a number far below."""

    def far(value: Any) -> float | None:
        known = number_of(value)
        return known * sign if known is not None and known * sign <= FAR else None

    if name.startswith("aten.masked_fill."):
        value = far(bound["value"])
        if value is not None and _is_zero(bound["self"]):
            return Masking(bound["mask"], value, is_allowed=False)
    if name.startswith("aten.where."):
        for one, other in BOTH:
            value = far(bound[other])
            if value is not None and _is_zero(bound[one]):
                return Masking(bound["condition"], value, is_allowed=one == "self")
    if name == PRODUCTS:
        for one, other in BOTH:
            value = far(bound[other])
            if value is not None and isinstance(bound[one], fx.Node):
                return _indicated(home, bound[one], value)
    return None


def _is_zero(value: Any) -> bool:
    known = values_of(value)
    if name_of(value) in _ZEROS:
        return True
    return not bool(known.any()) if known is not None else number_of(value) == 0


def _indicated(home: fx.Node, node: fx.Node, value: float) -> Masking | None:
    """From numbers that are 1 where scores do not count; 1 − m is so where m is 0."""
    name, bound = torchapi.target_name(node), torchapi.bound_arguments(node)
    allowed = False
    if name == "aten.rsub.Scalar" and bound["other"] == 1 and bound["alpha"] == 1:
        node, allowed = bound["self"], True
    elif name == "aten.sub.Tensor" and number_of(bound["self"]) == 1 and bound["alpha"] == 1:
        node, allowed = bound["other"], True
    while name_of(node) in CASTS:
        node = torchapi.bound_arguments(node)["self"]
    kind = node.meta["val"].dtype
    if kind is not torch.bool:
        half = 0.5 if kind.is_floating_point else 0
        node = torchapi.new_call(home, aten.gt.Scalar, (node, half))
    return Masking(node, value, is_allowed=allowed)


SOFTMAXES = frozenset({"aten.softmax.int", "aten._softmax.default"})
_SIGNS = {"aten.add.Tensor": 1, "aten.sub.Tensor": -1}
_PRODUCTS = {  # that add to what they multiply
    "aten.baddbmm.default": (aten.bmm.default, "batch1", "batch2"),
    "aten.addmm.default": (aten.mm.default, "mat1", "mat2"),
}


@node_pass(*SOFTMAXES)
def select_masked_scores(node: fx.Node) -> Replacement:
    """Let a softmax read its scores where a mask allows them, and ``FAR`` elsewhere."""
    found = False
    while (made := _parted(node, node.args[0])) is not None:
        node.replace_input_with(node.all_input_nodes[0], made)
        found = True
    return found


@node_pass(*_SIGNS, "aten.where.self")
def select_infinities(node: fx.Node) -> Replacement:
    """Write a sum with a known mask of infinities as a choice of a number, which has no scale."""
    bound, sign = torchapi.bound_arguments(node), _SIGNS.get(name_of(node))
    for one, other in BOTH[: 1 if sign == -1 else 2]:
        known = values_of(bound[other])
        if known is None or not known.is_floating_point() or not bool(known.isinf().any()):
            continue
        if sign is not None:
            return _added(node, bound[one], known * sign, bound["alpha"])
        if known.numel() == 1 and node.meta["val"].dim() >= known.dim():
            condition = bound["condition"]
            if other == "self":
                condition = torchapi.new_call(node, aten.logical_not.default, (condition,))
            return Call(aten.where.ScalarOther, (condition, bound[one], float(known)))
    return None


def _added(node: fx.Node, base: Any, mask: Tensor, alpha: Any) -> Replacement:
    """A value plus a mask, of which infinities are all of one sign."""
    limits = set(mask[mask.isinf()].tolist())
    if alpha != 1 or len(limits) > 1 or not isinstance(base, fx.Node):
        return None
    near = mask.detach().masked_fill(mask.isinf(), 0.0)
    if near.any() or not torchapi.same_shape(base, node):
        base = torchapi.new_call(node, aten.add.Tensor, (base, held(node, near)))
    return Call(aten.where.ScalarOther, (held(node, mask.isfinite()), base, limits.pop()))


def _parted(home: fx.Node, scores: Any) -> fx.Node | None:
    """Scores and a mask that are added up, chosen instead; None if they are something else."""
    if not isinstance(scores, fx.Node) or len(scores.users) != 1 or scores.op != "call_function":
        return None
    sign, bound = _SIGNS.get(name_of(scores)), torchapi.bound_arguments(scores)
    if bound.get("alpha") != 1:
        return None
    if name_of(scores) in _PRODUCTS and bound["beta"] == 1:
        return _parted_product(home, bound["self"], *_PRODUCTS[name_of(scores)], bound)
    if sign is None:
        return None
    for one, other in BOTH[: 2 if sign > 0 else 1]:
        base, mask = bound[one], bound[other]
        if not all(isinstance(n, fx.Node) for n in (base, mask)) or values_of(base) is not None:
            continue
        if not torchapi.same_shape(base, scores):
            continue
        made = _masked(home, base, mask, sign)
        if made is not None:
            return made
    return None


def _parted_product(
    home: fx.Node, mask: Any, product: Any, first: str, second: str, bound: dict[str, Any]
) -> fx.Node | None:
    """The same of a product of matrices that a mask is added to."""
    base = torchapi.new_call(home, product, (bound[first], bound[second]))
    made = _masked(home, base, mask, 1) if isinstance(mask, fx.Node) else None
    if not base.users:
        home.graph.erase_node(base)
    return made


def _masked(home: fx.Node, base: fx.Node, mask: fx.Node, sign: int) -> fx.Node | None:
    known = values_of(mask)
    if known is None:
        return _conditional(home, base, mask, sign)
    return _limited(home, base, known * sign)


def _limited(home: fx.Node, base: fx.Node, mask: Tensor) -> fx.Node | None:
    """A known mask whose numbers are no lower than has an effect."""
    if not bool((mask < FAR).any()):
        return None
    near = held(home, mask.detach().clamp(min=FAR))
    return torchapi.new_call(home, aten.add.Tensor, (base, near))


def _conditional(home: fx.Node, base: fx.Node, mask: fx.Node, sign: int) -> fx.Node | None:
    """Scores where the condition behind a mask that is computed allows them."""
    shape = torchapi.known_shape(base.meta["val"]) or ()
    found = terms(home, Masking(mask, shape=shape), sign)
    if any(not t.is_known if t.value is None else t.value > FAR for t in found):
        return None
    made, allowing = base, list[fx.Node]()
    for term in found:
        if term.value is not None:
            allowing.append(allowed(home, term))
            continue
        numbers = values_of(term.node)
        assert numbers is not None
        near = (numbers.detach() * sign).masked_fill(numbers * sign < FAR, 0.0)
        allowing.append(held(home, numbers * sign >= FAR))
        if bool(near.any()):
            made = torchapi.new_call(home, aten.add.Tensor, (made, held(home, near)))
    condition, *others = allowing
    for other in others:  # one choice alone is read by the softmax, which leaves it its steps
        condition = torchapi.new_call(home, aten.logical_and.default, (condition, other))
    return torchapi.new_call(home, aten.where.ScalarOther, (condition, made, FAR))
