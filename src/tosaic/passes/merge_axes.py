"""Lowers the rank of calls on more than six axes, which TOSA does not have.

Windows of images and volumes are cut by a reshape, a permutation and a reshape over seven axes and
more. Elements keep their order in a reshape, so each such value is held by one of fewer axes: a
permutation moves neighbours that stay such as one axis, and other calls merge the axes that they do
not tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.engine import Call, graph_pass, replace
from tosaic.passes.match import rank_of, shape_of
from tosaic.rewrite.axes import merged_axes

aten = torch.ops.aten
MOST = 6  # axes that level 8K of TOSA has
_VIEWS = frozenset(
    {"view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "contiguous", "clone",
     "view_as", "reshape_as", "_reshape_alias"}
)  # fmt: skip
_PERMUTATIONS = frozenset({"permute", "transpose", "movedim"})
_OVER_AXES = frozenset(
    {"softmax", "_softmax", "log_softmax", "_log_softmax", "sum", "mean", "amax", "amin"}
)


@graph_pass
def merge_axes(module: fx.GraphModule) -> bool:
    """Have calls on fewer axes compute what calls on more than six do, where there are such."""
    graph = module.graph
    if not any(rank_of(node) > MOST for node in graph.nodes):
        return False
    held: dict[fx.Node, fx.Node] = {}  # values of more axes by those with the same elements
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.meta.get("val"), Tensor):
            continue
        if rank_of(node) <= MOST and not any(n in held for n in node.all_input_nodes):
            continue
        with graph.inserting_before(node):
            made = _lowered(node, held)
        if made is not None and rank_of(node) > MOST:
            held[node] = made
        elif made is not None:
            replace(node, Call(aten.reshape.default, (made, list(shape_of(node)))))
    return True


def _lowered(node: fx.Node, held: dict[fx.Node, fx.Node]) -> fx.Node | None:
    """A value with the elements of a call's result; None where the call has no such form."""
    operands = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Tensor)]
    if any(None in shape_of(n) for n in (node, *operands)):
        return None
    if not operands or any(rank_of(n) > MOST and n not in held for n in operands):
        return None
    overload, source = torchapi.overload_of(node), operands[0]
    name = overload._schema.name.partition("::")[2] if overload is not None else ""
    if name in _VIEWS:
        return held.get(source, source)
    if name in _PERMUTATIONS:
        extents, perms = merged_axes(shape_of(source), _permutation(node, rank_of(source)))
        return _permuted(node, held.get(source, source), extents, perms)
    if name == "unfold":
        return _unfolded(node, held.get(source, source), shape_of(source))
    if name in _OVER_AXES and len(operands) == 1:
        return _over_axes(node, held)
    return _pointwise(node, operands, held) if torchapi.is_pointwise(node) else None


def _permuted(
    home: fx.Node, value: fx.Node, extents: Sequence[int], perms: Sequence[int]
) -> fx.Node:
    """At once, or one axis after the other past those before it."""
    if len(extents) <= MOST:
        whole = _reshaped(home, value, extents)
        return torchapi.new_call(home, aten.permute.default, (whole, list(perms)))
    order = list(range(len(extents)))
    for place, axis in enumerate(perms):
        found = order.index(axis)
        groups = order[:place], order[place:found], order[found : found + 1], order[found + 1 :]
        if found > place:
            parts = _reshaped(home, value, [_size(extents, group) for group in groups])
            value = torchapi.new_call(home, aten.permute.default, (parts, [0, 2, 1, 3]))
        order = [*groups[0], *groups[2], *groups[1], *groups[3]]
    return value


def _unfolded(node: fx.Node, value: fx.Node, shape: Sequence[int]) -> fx.Node:
    bound = torchapi.bound_arguments(node)
    axis = bound["dimension"] % len(shape)
    parts = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
    rows = _reshaped(node, value, parts)
    return torchapi.new_call(node, aten.unfold.default, (rows, 1, bound["size"], bound["step"]))


def _over_axes(node: fx.Node, held: dict[fx.Node, fx.Node]) -> fx.Node | None:
    """Sums, extremes and softmax: neighbours that are all summed up, or all not, are one axis."""
    bound, (source,) = torchapi.bound_arguments(node), node.all_input_nodes
    rank, given = rank_of(source), bound.get("dim")
    axes = [given] if isinstance(given, int) else list(given or range(rank))
    among = {axis % rank for axis in axes}
    runs = _runs([axis in among for axis in range(rank)])
    if len(runs) > MOST or ("softmax" in torchapi.target_name(node) and bound.get("dtype")):
        return None
    shape = shape_of(source)
    whole = _reshaped(node, held.get(source, source), [_size(shape, run) for run in runs])
    places = [place for place, run in enumerate(runs) if run[0] in among]
    own = {"self": whole, "dim": places[0] if isinstance(given, int) else places}
    return _called(node, {**bound, **own})


def _pointwise(
    node: fx.Node, operands: Sequence[fx.Node], held: dict[fx.Node, fx.Node]
) -> fx.Node | None:
    """Axes along which the same operands are repeated are one."""
    result = shape_of(node)
    shapes = {n: (1,) * (len(result) - rank_of(n)) + shape_of(n) for n in operands}
    runs = _runs([tuple(s[i] == result[i] for s in shapes.values()) for i in range(len(result))])
    if len(runs) > MOST:
        return None
    made = {
        n: _reshaped(node, held.get(n, n), [_size(shape, run) for run in runs])
        for n, shape in shapes.items()
    }
    bound = torchapi.bound_arguments(node)
    return _called(node, {k: fx.map_arg(v, lambda n: made.get(n, n)) for k, v in bound.items()})


def _called(node: fx.Node, bound: dict[str, Any]) -> fx.Node | None:
    """The call with other arguments; None where it has some that go by name alone."""
    overload = torchapi.overload_of(node)
    assert overload is not None
    by_name = [a.name for a in overload._schema.arguments if a.kwarg_only]
    named = {n: v for n, v in bound.items() if n in by_name}
    if any(v is not None and v != 1 for v in named.values()):  # 1 is how much of a term is added
        return None
    given = tuple(v for n, v in bound.items() if n not in by_name)
    return torchapi.new_call(node, overload, given)


def _permutation(node: fx.Node, rank: int) -> list[int]:
    """Which axis of the operand each axis of the result is."""
    marked = torch.empty([axis + 2 for axis in range(rank)], device="meta")
    made = torchapi.evaluate(node, dict.fromkeys(node.all_input_nodes, marked))
    return [int(size) - 2 for size in made.shape]


def _runs(kinds: Sequence[Any]) -> list[list[int]]:
    """Neighbouring axes of one kind."""
    found: list[list[int]] = []
    for axis, kind in enumerate(kinds):
        if found and kinds[found[-1][0]] == kind:
            found[-1].append(axis)
        else:
            found.append([axis])
    return found


def _reshaped(home: fx.Node, value: fx.Node, shape: Sequence[int]) -> fx.Node:
    if shape_of(value) == tuple(shape):
        return value
    return torchapi.new_call(home, aten.reshape.default, (value, list(shape)))


def _size(shape: Sequence[int], axes: Sequence[int]) -> int:
    return math.prod(shape[axis] for axis in axes)
