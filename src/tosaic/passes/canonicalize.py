"""Canonical form: one overload for each family of ATen names, before anything else reads a program.

In-place, ``_copy`` and ``out=`` overloads, synonyms, and overloads for numbers become the overload
that rules and passes know.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.engine import Call, Replacement, node_pass

aten = torch.ops.aten


@node_pass()
def canonical_overloads(node: fx.Node) -> Replacement:
    """The canonical overload; where a write kept the type of its operand, a cast keeps it."""
    writes, result = bool(torchapi.written_positions(node)), node.meta.get("val")
    if not torchapi.canonicalize(node):
        return None
    if writes and isinstance(result, Tensor) and not _gives(node, result.dtype):
        inner = torchapi.new_call(node, node.target, node.args, dict(node.kwargs))
        return Call(aten.to.dtype, (inner, result.dtype))
    return True


def _gives(node: fx.Node, kind: torch.dtype) -> bool:
    """Whether a call computes elements of a type; operands of one type give it, but for tests."""
    given = [n.meta["val"] for n in node.all_input_nodes]
    kinds = {value.dtype for value in given if isinstance(value, Tensor)}
    overload = torchapi.overload_of(node)
    assert overload is not None
    is_test = _TESTS.match(overload.overloadpacket.__name__) is not None
    if kinds == {kind} and (kind is torch.bool or not is_test):
        return True
    shown, named = fx.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
    made: Tensor = torchapi.computed_beside(node, overload, shown, named)
    return made.dtype is kind


_TESTS = re.compile("logical_|eq|ne$|lt|le$|gt|ge$|is")


@node_pass("aten.view.default")
def reshape_views(node: fx.Node) -> Replacement:
    """Views as reshapes, which need no contiguous operand: passes drop and move copies."""
    return Call(aten.reshape.default, tuple(torchapi.bound_arguments(node).values()))


@node_pass("scan")
def own_scans(node: fx.Node) -> Replacement:
    """PyTorch's scan, along the first axes of its sequences, as the call that all loops are."""
    arguments: Any = (*node.args, ())
    step, carried, xs, read = arguments[:4]
    sizes = {torchapi.known_size(line.meta["val"].shape[0]) for line in xs}
    if len(sizes) != 1 or None in sizes:
        return None
    axes = (0,) * (len(xs) + len(node.meta["val"]) - len(carried))
    groups = tuple(carried), tuple(xs), tuple(read)
    return Call(torchapi.SCAN, (step, *groups, sizes.pop(), axes, False, 0))
