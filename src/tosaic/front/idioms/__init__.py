"""Operators that users write out by hand: attention, norms, activations.

What stands for one operator is lowered and quantized as one. Each idiom is the call that gives the
result; it becomes the operator, and what only led there is dead then. Scores, shares and the like
that something else reads too are no part of an idiom.
"""

from __future__ import annotations

from collections.abc import Container
from functools import partial

import torch
from torch import Tensor, fx

from tosaic.front.idioms.attention import attention
from tosaic.front.idioms.calls import become, before, name_of, orders
from tosaic.front.idioms.norms import affine, norm

aten = torch.ops.aten
_SIGNS = frozenset(
    {"aten.softmax.int", "aten._softmax.default", "aten.rsqrt.default", "aten.sqrt.default",
     "aten.pow.Tensor_Scalar",
     "aten.sigmoid.default"}
)  # fmt: skip


def may_have_idioms(graph: fx.Graph) -> bool:
    return any(name_of(node) in _SIGNS for node in graph.nodes)


def recognise(graph: fx.Graph, held: Container[str]) -> None:
    """Put operators in the place of their idioms. ``held`` are the names of parameters."""
    _drop_idle(graph)
    idioms = (attention, norm, partial(affine, held=held), _silu)
    for node in list(graph.nodes):
        if node.op == "call_function" and isinstance(node.meta.get("val"), Tensor):
            with graph.inserting_before(node):
                any(idiom(node) for idiom in idioms)
    graph.eliminate_dead_code()


def _drop_idle(graph: fx.Graph) -> None:
    """What nothing reads would count as a reader."""
    for node in graph.find_nodes(op="call_function", target=aten.dropout.default):
        if not node.args[2]:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _silu(node: fx.Node) -> bool:
    for value, gate in orders(node, ("aten.mul.Tensor",)):
        if name_of(gate) == "aten.sigmoid.default" and before(gate.args[0]) is value:
            return become(node, aten.silu.default, (value,))
    return False
