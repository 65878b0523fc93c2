"""Turns reads and writes at positions that are known only when a program runs into gathers.

torch.export reads a position from a tensor with ``item``; ``select``, ``slice`` and ``narrow`` take
the number. ``index`` and ``index_put`` take the tensor itself, which stays in the graph.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.passes.engine import Call, Replacement, graph_pass, visit
from tosaic.passes.match import name_of

aten = torch.ops.aten
_ARITHMETIC = {
    operator.add: aten.add.Tensor, operator.sub: aten.sub.Tensor, operator.mul: aten.mul.Tensor
}  # fmt: skip
_READS = ("aten.select.int", "aten.slice.Tensor", "aten.narrow.default", "aten.narrow.Tensor")
_WRITES = ("aten.select_scatter.default", "aten.slice_scatter.default")
ITEMS = ("aten.item.default", "aten._local_scalar_dense.default")
CLAIMS = ("aten._assert_scalar.default", "aten.sym_constrain_range_for_size.default",
           "aten.sym_constrain_range.default")  # fmt: skip


@graph_pass
def gather_positions(module: fx.GraphModule) -> bool:
    """The program without numbers that are read from tensors, as far as they are positions."""
    graph = module.graph
    items = [n for n in graph.nodes if name_of(n) in (*ITEMS, "aten.narrow.Tensor")]
    if not items:
        return False
    changed = visit(graph, [_gathered], (*_READS, *_WRITES))
    return _drop_claims(graph) or changed


def _gathered(node: fx.Node) -> Replacement:
    """A read or a write at a position of a tensor, as ``index`` or ``index_put``."""
    bound = torchapi.bound_arguments(node)
    base, axis = bound["self"], bound["dim"] % bound["self"].meta["val"].dim()
    start = bound.get("index", bound.get("start"))
    if not isinstance(start, fx.Node) or bound.get("step", 1) != 1:
        return None
    if (place := _position(node, start)) is None:
        return None
    if "index" not in bound:
        length = _length(node, bound, axis)
        if length is None:
            return None
        steps = torchapi.new_call(node, aten.arange.default, (length,), {"dtype": torch.int64})
        place = torchapi.new_call(node, aten.add.Tensor, (steps, place))
    indices = [*[None] * axis, place]
    if name_of(node) in _READS:
        return Call(aten.index.Tensor, (base, indices))
    return Call(aten.index_put.default, (base, indices, bound["src"]))


def _length(node: fx.Node, bound: dict[str, Any], axis: int) -> int | None:
    """How many elements are read or written, if that is known beforehand."""
    if isinstance(bound.get("length"), int):
        return int(bound["length"])
    shape = bound.get("src", node).meta["val"].shape
    return shape[axis] if isinstance(shape[axis], int) else None


def _position(home: fx.Node, number: fx.Node) -> fx.Node | None:
    """The tensor that a number was read from, or arithmetic on it."""
    if isinstance(number.meta.get("val"), torch.Tensor):
        return number
    if name_of(number) in ITEMS:
        source = number.all_input_nodes[0]
        kind = source.meta["val"].dtype
        if kind.is_floating_point or kind is torch.bool:
            return None
        if source.meta["val"].dim():
            source = torchapi.new_call(home, aten.reshape.default, (source, []))
        if kind is not torch.int64:
            source = torchapi.new_call(
                home, aten._to_copy.default, (source,), {"dtype": torch.int64}
            )
        return source
    overload = _ARITHMETIC.get(number.target)  # type: ignore[arg-type]
    if overload is None:
        return None
    left, right = (_position(home, a) if isinstance(a, fx.Node) else a for a in number.args)
    if left is None or right is None:
        return None
    if not isinstance(left, fx.Node):
        if overload is aten.sub.Tensor:
            return None
        left, right = right, left
    return torchapi.new_call(home, overload, (left, right))


def _drop_claims(graph: fx.Graph) -> bool:
    """Without what is claimed of numbers that nothing else reads."""
    changed = False
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and (
            name_of(node) in (*CLAIMS, *ITEMS) or node.target in _COMPARISONS
        ) and _only_claims(node):  # fmt: skip
            graph.erase_node(node)
            changed = True
    return changed


_COMPARISONS = (
    *_ARITHMETIC, operator.ge, operator.le, operator.lt, operator.gt, operator.eq, operator.ne,
    operator.and_,
)  # fmt: skip


def _only_claims(node: fx.Node) -> bool:
    """Whether numbers that a claim is about serve claims alone."""
    for source in node.all_input_nodes:
        if isinstance(source.meta.get("val"), torch.Tensor):
            continue
        if not all(_is_claim(user) for user in source.users) or not _only_claims(source):
            return False
    return True


def _is_claim(node: fx.Node) -> bool:
    if name_of(node) in CLAIMS:
        return True
    return node.target in _COMPARISONS and all(map(_is_claim, node.users))
