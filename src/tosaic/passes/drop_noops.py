"""Removes no-op calls: identities, and casts and copies whose result equals their input.

Expansions go where their consumer broadcasts the operand itself, so that a sum can fuse with the
layer before it.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.ir.traits import PLAIN
from tosaic.passes.engine import Pass
from tosaic.passes.match import CASTS, name_of

_CHECKS = frozenset({"aten._assert_tensor_metadata.default"})
_DROPOUTS = frozenset({"aten.dropout.default", "aten.feature_dropout.default"})
_SAME = frozenset({"aten.alias.default", "aten.detach.default"})
_COPIES = frozenset({"aten._to_copy.default", "aten.lift_fresh_copy.default"})
_EXPANDED = frozenset({"aten.expand.default", "aten.expand_as.default"})
_REPEATED = frozenset({"aten.repeat.default"})


def _drop_noops(module: fx.GraphModule, at_outputs: bool) -> bool:
    """Let consumers of a no-op read its operand; results keep their names unless ``at_outputs``."""
    graph, changed = module.graph, False
    writes = any(torchapi.written_positions(node) for node in graph.nodes)
    for node in list(graph.nodes):
        for reader in _broadcasting(node, writes):
            reader.replace_input_with(node, node.all_input_nodes[0])
            changed = True
        if _is_noop(node, writes) and (at_outputs or _is_unnamed(node)):
            if node.users:
                node.replace_all_uses_with(node.all_input_nodes[0])
            graph.erase_node(node)
            changed = True
    return changed


drop_noops = Pass("drop_noops", partial(_drop_noops, at_outputs=True))
drop_inner_noops = Pass("drop_inner_noops", partial(_drop_noops, at_outputs=False))


def _is_unnamed(node: fx.Node) -> bool:
    """Whether neither a result nor stored calibration, which lists calls in place, names a call."""
    named = torchapi.WRITTEN_AS in node.meta or any(u.op == "output" for u in node.users)
    return not named


def _is_noop(node: fx.Node, writes: bool) -> bool:
    """Whether a call gives what it is given; where calls write, a copy may be there for it."""
    name = name_of(node)
    if name in _CHECKS:
        return not node.users
    if name in _DROPOUTS:
        return not torchapi.bound_arguments(node)["train"]
    if name in CASTS | _COPIES:
        return _keeps_type(node) and not (writes and name in _COPIES)
    return name in _SAME


def _broadcasting(node: fx.Node, writes: bool) -> list[fx.Node]:
    """Consumers that broadcast a value anyway, as ``x * gate.expand_as(x)`` would a gate."""
    name = name_of(node)
    if name not in _EXPANDED and (name not in _REPEATED or writes):
        return []
    own, wide = (torchapi.known_shape(n.meta["val"]) for n in (node.all_input_nodes[0], node))
    if not own or wide is None or len(wide) > PLAIN.view_axes:  # beyond, it is a copy
        return []
    if any(m not in (1, n) for m, n in zip(own[::-1], wide[::-1])):
        return []

    def broadcasts(reader: fx.Node) -> bool:
        others = [n for n in reader.all_input_nodes if n is not node]
        shapes = [torchapi.known_shape(n.meta["val"]) for n in (*others, reader)]
        known = [shape for shape in shapes if shape is not None]
        return known == shapes and np.broadcast_shapes(own, *known[:-1]) == known[-1]

    return [user for user in node.users if torchapi.is_pointwise(user) and broadcasts(user)]


def _keeps_type(node: fx.Node) -> bool:
    source = node.args[0]
    examples = [n.meta.get("val") for n in (source, node) if isinstance(n, fx.Node)]
    tensors = [e for e in examples if isinstance(e, Tensor)]
    return len(tensors) == 2 and tensors[0].dtype == tensors[1].dtype
