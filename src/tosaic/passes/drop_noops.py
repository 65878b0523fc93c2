"""Calls that give what they are given, or what their readers make: nothing needs them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.ir.traits import PLAIN

_CHECKS = frozenset({"aten._assert_tensor_metadata.default"})
_DROPOUTS = frozenset({"aten.dropout.default", "aten.feature_dropout.default"})
_SAME = frozenset({"aten.alias.default", "aten.detach.default"})
_CASTS = frozenset(
    {"aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten.to.other",
     "aten.type_as.default"}
)  # fmt: skip
_COPIES = frozenset({"aten._to_copy.default", "aten.lift_fresh_copy.default"})
_EXPANDED = frozenset({"aten.expand.default", "aten.expand_as.default"})
_REPEATED = frozenset({"aten.repeat.default"})


def drop_idle(graph: fx.Graph, *, at_outputs: bool = True) -> None:
    """Readers of such a call read what it reads: a sum then takes the sums of its layer."""
    idle = _Idle(graph)
    for node in list(graph.nodes):
        for reader in idle.readers(node):
            reader.replace_input_with(node, node.all_input_nodes[0])
        if not idle.is_idle(node) or not (at_outputs or all(u.op != "output" for u in node.users)):
            continue
        if node.users:
            node.replace_all_uses_with(node.all_input_nodes[0])
        graph.erase_node(node)


def has_idle(graph: fx.Graph) -> bool:
    idle = _Idle(graph)
    return any(idle.is_idle(node) or idle.readers(node) for node in graph.nodes)


class _Idle:
    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph

    def is_idle(self, node: fx.Node) -> bool:
        name = torchapi.target_name(node) if node.op == "call_function" else ""
        if name in _CHECKS:
            return not node.users
        if name in _DROPOUTS:
            return not torchapi.bound_arguments(node)["train"]
        if name in _CASTS | _COPIES:
            return _keeps_type(node) and (name in _CASTS or not self._writes)
        return name in _SAME

    def readers(self, node: fx.Node) -> list[fx.Node]:
        """Calls that repeat a value anyway, as ``x * gate.expand_as(x)`` would a gate."""
        name = torchapi.target_name(node) if node.op == "call_function" else ""
        if name not in _EXPANDED and (name not in _REPEATED or self._writes):
            return []
        own, wide = (torchapi.known_shape(n.meta["val"]) for n in (node.all_input_nodes[0], node))
        if (
            not own
            or wide is None
            or len(wide) > PLAIN.view_axes  # over which an operand is repeated for nothing
            or any(m not in (1, n) for m, n in zip(own[::-1], wide[::-1]))
        ):
            return []

        def repeats(reader: fx.Node) -> bool:
            others = [n for n in reader.all_input_nodes if n is not node]
            shapes = [torchapi.known_shape(n.meta["val"]) for n in (*others, reader)]
            known = [shape for shape in shapes if shape is not None]
            return known == shapes and np.broadcast_shapes(own, *known[:-1]) == known[-1]

        return [user for user in node.users if torchapi.is_pointwise(user) and repeats(user)]

    @cached_property
    def _writes(self) -> bool:
        """Whether a call writes to a tensor: a copy may be there to be written."""
        return any(
            node.op == "call_function" and torchapi.written_positions(node)
            for node in self.graph.nodes
        )


def _keeps_type(node: fx.Node) -> bool:
    source = node.args[0]
    examples = [n.meta.get("val") for n in (source, node) if isinstance(n, fx.Node)]
    tensors = [e for e in examples if isinstance(e, Tensor)]
    return len(tensors) == 2 and tensors[0].dtype == tensors[1].dtype
