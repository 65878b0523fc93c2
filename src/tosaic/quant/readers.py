"""Consumers of an observed value: a consumer that is a unary function shapes the range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.roles import is_weighted
from tosaic.passes.attention_masks import SOFTMAXES
from tosaic.passes.fuse_unary import Curve
from tosaic.quant.observer import RangeObserver
from tosaic.quant.observer_range import Reader


def tell_readers(
    module: fx.GraphModule, observers: Mapping[Any, Any], curves: Mapping[fx.Node, Curve]
) -> None:
    """Give each observer the function that alone reads what it observes, where there is one.

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
    reader = _function(module, source, user)
    return reader if reader is not None and _is_pointwise(reader) else None


def _described(source: fx.Node, user: fx.Node) -> str | None:
    """The same for calls that do the same with what they read."""
    if user.op != "call_function" or not isinstance(user.meta.get("val"), Tensor):
        return None
    named = fx.map_arg((user.args, user.kwargs), lambda n: "x" if n is source else n.name)
    return f"{user.target}{named}"


def _function(module: fx.GraphModule, source: fx.Node, user: fx.Node) -> Reader | None:
    """A call as a function of one of its operands; the others must be parameters."""
    known: dict[fx.Node, Tensor] = {}
    for node in user.all_input_nodes:
        if node is not source and node.op != "get_attr":
            return None
        if node is not source:
            known[node] = torchapi.attribute(module, str(node.target)).detach().double()
    target: Any = user.target
    given = user.args, user.kwargs  # as they are now: observers will stand before them

    def read(values: Tensor) -> Tensor:
        args, kwargs = fx.map_arg(given, lambda n: known[n] if n in known else values.clone())
        result: Tensor = target(*args, **kwargs)
        return result

    return read


def _is_pointwise(read: Reader) -> bool:
    """Whether the order and the number of values do not matter, and something else does."""
    probe = torch.linspace(-4, 4, 64, dtype=torch.float64)
    try:
        whole = read(probe)
        parts = torch.cat([read(probe[40:]), read(probe[:40])])
        back = read(probe.flip(0)).flip(0)
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
        return False  # it wants another rank or another type
    if whole.shape != probe.shape or not whole.dtype.is_floating_point:
        return False
    # Vectors of processors and what is left over beside them may differ in the last bits.
    return all(
        a.shape == probe.shape and torch.allclose(a, whole, rtol=1e-9, atol=1e-12, equal_nan=True)
        for a in (parts.roll(40), back)
    )
