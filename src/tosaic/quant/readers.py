"""Calls around an observed value: consumers that are a unary function shape its range."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.hints import MARK
from tosaic.front.roles import is_weighted
from tosaic.passes.attention_masks import MOVES, SOFTMAXES
from tosaic.passes.fuse_unary import Curve
from tosaic.quant.break_points import break_points
from tosaic.quant.observer import RangeObserver
from tosaic.quant.observer_range import Reader
from tosaic.quant.unary_function import function_of, is_pointwise

_LARGEST = frozenset({
    "aten.amax.default", "aten.max.dim", "aten.max.default", "aten.argmax.default",
    "aten.topk.default", "aten.sort.default", "aten.maximum.default",
})  # fmt: skip
_SAMPLES, _EARS = 256, 2  # of a signal at least, and its channels at most
_MIXING = frozenset({"aten.linear.default", "aten.matmul.default", "aten.mm.default"})
# What goes to a number where its operand goes to minus infinity.
_ENDING = frozenset({
    *SOFTMAXES, "aten.exp.default", "aten.exp2.default", "aten.sigmoid.default",
    "aten.relu.default", "aten.relu6.default", "aten.tanh.default", "aten.gelu.default",
    "aten.silu.default", "aten.softplus.default", "aten.elu.default", "aten.logsumexp.default",
    "aten.hardsigmoid.default", "aten.hardswish.default", "aten.hardtanh.default",
})  # fmt: skip
_CHOICES = ("aten.where.", "aten.masked_fill.")
_PASSED_ON = frozenset({
    *MOVES, "aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor",
    "aten.cat.default", "aten.log_softmax.int", "aten._to_copy.default",
})  # fmt: skip


def tell_readers(
    module: fx.GraphModule, observers: Mapping[Any, Any], curves: Mapping[fx.Node, Curve]
) -> None:
    """Give each observer the function that alone reads what it observes.

    ``observers`` are those of values, by their nodes, and of values as one call reads them.
    Calls between values of one observer only move numbers, so they count as no readers; ``curves``
    are calls that read as one.
    """
    members: dict[RangeObserver, set[fx.Node]] = {}
    for key, observer in observers.items():
        if isinstance(observer, RangeObserver):
            members.setdefault(observer, set()).add(key if isinstance(key, fx.Node) else key[0])
    for observer, own in members.items():
        edges = [(node, user) for node in own for user in node.users if user not in own]
        observer.reader, observer.row = _common(module, edges, curves), _row(own, edges)
        observer.points = break_points(edges)
        observer.mask = _mask(own, edges, observer.below)
        inputs = [node for node in own if node.op == "placeholder" and MARK not in node.meta]
        observer.is_input, observer.is_signal = bool(inputs), all(map(_is_signal, inputs))


def _is_signal(node: fx.Node) -> bool:
    """Whether an input is a long row of numbers, or a few, that no layer reads as features."""
    shape = torchapi.known_shape(node.meta["val"]) or ()
    is_row = bool(shape) and shape[-1] >= _SAMPLES and math.prod(shape[1:-1]) <= _EARS
    return is_row and not any(torchapi.target_name(u) in _MIXING for u in node.users)


def _mask(
    own: set[fx.Node], edges: list[tuple[fx.Node, fx.Node]], below: float
) -> tuple[float, bool] | None:
    """How far below other values those lie that mask something; None if there are none.

    And whether all that reads them makes the same of any number that is far below.
    """
    if not any(map(_may_mask, own)) or any(_may_mask(n) for n, u in edges if u.op == "output"):
        return None
    readers = {torchapi.target_name(user) for _, user in edges if user.op != "output"}
    masks = filter(_may_mask, own)
    return 0.0 if readers <= _LARGEST else below, all(map(_is_forgiving, masks))


def _is_forgiving(node: fx.Node) -> bool:
    """Whether what reads a value makes the same of any number that is far below."""
    pending, seen = [node], set[fx.Node]()
    while pending:
        for user in pending.pop().users:
            name = torchapi.target_name(user)
            if user in seen or name in _LARGEST or name in _ENDING:
                continue
            if name not in _PASSED_ON and not name.startswith(_CHOICES):
                return False
            seen.add(user)
            pending.append(user)
    return True


def _may_mask(node: fx.Node) -> bool:
    """Whether minus infinity in a value masks something, and is no logarithm of 0."""
    pending, seen = [node], set[fx.Node]()
    while pending:
        if (value := pending.pop()) in seen:
            continue
        seen.add(value)
        name = torchapi.target_name(value)
        if value.op in ("placeholder", "get_attr") or name.startswith(_CHOICES):
            return True
        if name in _PASSED_ON:
            pending += value.all_input_nodes
    return False


def _row(own: set[fx.Node], edges: list[tuple[fx.Node, fx.Node]]) -> int | None:
    """The axis of the softmax that alone reads values, which have one shape then."""
    calls = {user for _, user in edges}
    if len(edges) != 1 or torchapi.target_name(user := calls.pop()) not in SOFTMAXES:
        return None
    if len({torchapi.known_shape(node.meta["val"]) for node in own}) > 1:
        return None
    axis: int = torchapi.bound_arguments(user)["dim"]
    return axis


def _common(
    module: fx.GraphModule,
    edges: list[tuple[fx.Node, fx.Node]],
    curves: Mapping[fx.Node, Curve],
) -> Reader | None:
    """The one function that all reading calls are."""
    whole = {curves.get(user) for _, user in edges}
    if len(whole) == 1 and None not in whole:
        return whole.pop()
    calls = {_described(source, user) for source, user in edges}
    if len(calls) != 1 or None in calls:
        return None
    source, user = edges[0]
    if is_weighted(user):
        return None  # it adds up many, and its weights are large
    reader = function_of(module, source, user)
    return reader if reader is not None and is_pointwise(reader) else None


def _described(source: fx.Node, user: fx.Node) -> str | None:
    """The same for calls that do the same with what they read."""
    if user.op != "call_function" or not isinstance(user.meta.get("val"), Tensor):
        return None
    named = fx.map_arg((user.args, user.kwargs), lambda n: "x" if n is source else n.name)
    return f"{user.target}{named}"
