"""Recognises magnitudes of spectra: the root of re² + im² as hypot, and functions of the sum.

A square needs twice the digits of its root, and a logarithm shows all of them. So magnitudes, the
layers whose results they are of, and moves on the way have 32 bits, such layers have 16-bit inputs,
and their weights 16 bits: those of one layer are the nearest to 8 bits, and what is left over are
those of another, whose result is added. Functions of a magnitude are one table of its octaves.
Targets without 16 bits have the magnitude in 8, which are still twice the digits of the sum.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.hints import MARK, mark_of
from tosaic.front.registry import RULES
from tosaic.front.roles import role_of
from tosaic.passes.attention_masks import MOVES
from tosaic.passes.engine import graph_pass
from tosaic.passes.match import hold, name_of, shape_of, values_of

HYPOT = "aten.hypot.default"
_SUM = "aten.sum.dim_IntList"
_SUMS = frozenset({"aten.add.Tensor", "aten.sub.Tensor"})
_aten = torch.ops.aten


@graph_pass
def fuse_magnitude(module: fx.GraphModule) -> bool:
    """Replace sums of two squares by squares of magnitudes, and say what these need."""
    changed = _find(module)
    for node in list(module.graph.nodes):
        if name_of(node) == HYPOT:
            _widen(node)
            changed = True
    return changed


@graph_pass
def fuse_narrow_magnitude(module: fx.GraphModule) -> bool:
    """Replace sums of two squares by squares of magnitudes, where all have 8 bits."""
    return _find(module)


def _find(module: fx.GraphModule) -> bool:
    changed = False
    for node in list(module.graph.nodes):
        parts = None if node.op != "call_function" else _parts(node)
        if parts is not None:
            _as_magnitude(node, *parts)
            changed = True
    return changed


def squared(node: object) -> fx.Node | None:
    """The value that a call squares."""
    if not isinstance(node, fx.Node) or node.op != "call_function":
        return None
    name, bound = name_of(node), torchapi.bound_arguments(node)
    source = bound.get("self")
    is_square = name == "aten.square.default" or (
        name == "aten.pow.Tensor_Scalar" and bound["exponent"] == 2
    ) or (name == "aten.mul.Tensor" and bound["other"] is source)  # fmt: skip
    real = isinstance(source, fx.Node) and isinstance(source.meta.get("val"), Tensor)
    return source if is_square and real else None


def _parts(node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """Two values whose squares a call adds up."""
    name = name_of(node)
    if name == "aten.add.Tensor" and len(node.all_input_nodes) == 2:
        bound = torchapi.bound_arguments(node)
        one, other = squared(bound["self"]), squared(bound["other"])
        if one is None or other is None or bound["alpha"] != 1 or one is other:
            return None
        return (one, other) if shape_of(one) == shape_of(other) == shape_of(node) else None
    if name != _SUM:
        return None
    bound = torchapi.bound_arguments(node)
    source, axes = squared(bound["self"]), bound["dim"]
    if source is None or axes is None or len(axes) != 1 or shape_of(source)[axes[0]] != 2:
        return None
    one, other = _halves(node, source, int(axes[0]), bool(bound["keepdim"]))
    return one, other


def _halves(node: fx.Node, source: fx.Node, axis: int, keeps: bool) -> tuple[fx.Node, fx.Node]:
    """Both elements along an axis, as values of the shape of their sum."""
    made = []
    with node.graph.inserting_before(node):
        for index in (0, 1):
            ends = (source, axis, index, index + 1) if keeps else (source, axis, index)
            target = _aten.slice.Tensor if keeps else _aten.select.int
            made.append(_call(node, target, ends))
    return made[0], made[1]


def _call(like: fx.Node, target: object, args: tuple[object, ...]) -> fx.Node:
    """A call whose result has the shape and the origin of another."""
    made = like.graph.call_function(target, args)  # type: ignore[arg-type]
    made.meta = dict(like.meta)
    return made


def _as_magnitude(node: fx.Node, one: fx.Node, other: fx.Node) -> None:
    with node.graph.inserting_before(node):
        size = _call(node, _aten.hypot.default, (one, other))
    for user in list(node.users):
        _take_roots(user, node, size)
    node.target, node.args, node.kwargs = _aten.pow.Tensor_Scalar, (size, 2), {}


def _take_roots(call: fx.Node, square: fx.Node, size: fx.Node) -> None:
    """Roots of a square are the magnitude, those behind calls that only move it included."""
    if name_of(call) == "aten.sqrt.default":
        call.replace_all_uses_with(size)
        call.graph.erase_node(call)
    elif name_of(call) in MOVES and any(_leads_to_root(user) for user in call.users):
        with call.graph.inserting_before(call):
            moved = call.graph.node_copy(call, lambda n: size if n is square else n)
        for user in list(call.users):
            _take_roots(user, call, moved)


def _leads_to_root(call: fx.Node) -> bool:
    name = name_of(call)
    return name == "aten.sqrt.default" or (name in MOVES and any(map(_leads_to_root, call.users)))


def _widen(size: fx.Node) -> None:
    """Ask for 32 bits on both sides of a magnitude, and for 16 before it if it is not of layers."""
    layers = [_moved(operand) for operand in size.all_input_nodes]
    shows, path = _shows_digits(size), {n for operand in layers for n in operand}
    if not all(layers):
        path.update(n for n in size.all_input_nodes if n.op == "call_function")
    if not all(layers) or not shows:  # 16 bits are as good
        for node in path:
            node.meta[MARK] = replace(mark_of(node), wide=True, reads=False)
    if not shows:
        return
    for node in path if all(layers) else ():
        _mark(node, "signed")
        if _is_layer(node):
            _widen_moves(node)
            _split_weight(node)
    left = [size]
    while left:
        node = left.pop()
        if all(user.op == "call_function" for user in node.users):
            _mark(node, "magnitude")
            left += [user for user in node.users if _is_move(user)]
            for user in list(node.users):
                left += _banks(user, node)


def _widen_moves(layer: fx.Node) -> None:
    """What a layer reads has 16 bits as it is computed or given, not as it was moved."""
    node = layer.all_input_nodes[0]
    while node.op == "call_function" and _is_move(node):
        node.meta[MARK] = replace(mark_of(node), wide=True)
        node = node.all_input_nodes[0]


def _shows_digits(node: fx.Node) -> bool:
    """Whether something else than a layer reads a magnitude: a function that magnifies small ones,
    such as a logarithm, or a sum of bins before one."""
    readers = [u for u in node.users if u.users]
    return any(
        _shows_digits(user) if _is_move(user) else not _is_layer(user) or bool(_banks(user, node))
        for user in readers
    )


def _banks(call: fx.Node, source: fx.Node) -> list[fx.Node]:
    """The linear layers of weights that are not negative which read a magnitude or its square:
    sums of bins. A constant matrix on the left is such a layer between two transpositions."""
    if squared(call) is source:
        layers = [layer for user in list(call.users) for layer in _banks(user, call)]
        return [call] if layers else []
    if name_of(call) in ("aten.matmul.default", "aten.bmm.default", "aten.mm.default"):
        made = _from_left(call, source)
        return [] if made is None else [made]
    weight = values_of(call.args[1]) if name_of(call) == "aten.linear.default" else None
    return [call] if weight is not None and bool((weight >= 0).all()) else []


def _from_left(call: fx.Node, source: fx.Node) -> fx.Node | None:
    """C · x as the transposition of a linear layer of that of x."""
    held, example = values_of(call.args[0]), source.meta["val"]
    if held is None or call.args[1] is not source or not bool((held >= 0).all()):
        return None
    held = held[0] if held.dim() == 3 and len(held) == 1 else held
    if held.dim() != 2 or example.dim() < 2:
        return None
    with call.graph.inserting_before(call):
        transposed = _call(source, _aten.transpose.int, (source, -1, -2))
        transposed.meta["val"] = example.transpose(-1, -2)
        weight = hold(call, f"{call.name}_bank", held.detach().contiguous())
        layer = _call(call, _aten.linear.default, (transposed, weight))
        layer.meta["val"] = call.meta["val"].transpose(-1, -2)
    call.target, call.args, call.kwargs = _aten.transpose.int, (layer, -1, -2), {}
    _mark(transposed, "magnitude")
    return layer


def _moved(node: fx.Node) -> list[fx.Node]:
    """The calls from layers to a value that move their results and add them up; nothing if
    something else is among them."""
    if node.op != "call_function":
        return []
    if _is_layer(node):
        return [node]
    is_sum = name_of(node) in _SUMS and len(node.all_input_nodes) == 2
    if not is_sum and not _is_move(node) and name_of(node) != "getitem":
        return []
    before = [_moved(n) for n in node.all_input_nodes]
    return [node, *(n for found in before for n in found)] if all(before) else []


def _is_move(node: fx.Node) -> bool:
    rule = RULES.get(name_of(node))
    return rule is not None and rule.policy == "SHARED" and len(node.all_input_nodes) == 1


def _is_layer(node: fx.Node) -> bool:
    rule = RULES.get(name_of(node))
    return rule is not None and rule.policy == "WEIGHTED"


def _mark(node: fx.Node, long: str) -> None:
    node.meta[MARK] = replace(mark_of(node), long=long)


def _split_weight(layer: fx.Node) -> None:
    """A layer of weights of 8 bits, plus one of what these leave of them."""
    argument = layer.args[1]
    values = values_of(argument)
    if values is None or not isinstance(argument, fx.Node) or len(layer.args) < 2:
        return
    if mark_of(layer).split:
        return
    axis = role_of(layer, "weight").axis
    others = [i for i in range(values.dim()) if i != axis]
    steps = values.detach().abs().amax(others, keepdim=True).clamp(min=1e-30) / 127
    upper = (values.detach() / steps).round() * steps
    graph = layer.graph
    with graph.inserting_before(layer):
        high = hold(layer, f"{layer.name}_upper", upper, argument.meta)
        low = hold(layer, f"{layer.name}_lower", values.detach() - upper, argument.meta)
        first = graph.node_copy(layer)
        second = graph.node_copy(layer)
    rest = layer.args[3:]
    first.args = (layer.args[0], high, *layer.args[2:])
    second.args = (layer.args[0], low, *((None, *rest) if len(layer.args) > 2 else ()))
    if "bias" in layer.kwargs:
        second.kwargs = {**layer.kwargs, "bias": None}
    for part in (first, second):
        part.meta = {**layer.meta, MARK: replace(mark_of(layer), split=True)}
    layer.target, layer.args, layer.kwargs = _aten.add.Tensor, (first, second), {}
