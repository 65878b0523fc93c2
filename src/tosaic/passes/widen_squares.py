"""Asks for 16 bits between squares and their root, which need twice the dynamic range.

A magnitude of 1/256 of the largest has a square of 1/65536: int8 has no number for it, int16 has.
So the squares, their sums and the layer before them have 16 bits, and the root gives what it gave.
"""

from __future__ import annotations

from dataclasses import replace

from torch import fx

from tosaic.front import torchapi
from tosaic.front.hints import MARK, mark_of
from tosaic.front.registry import RULES
from tosaic.passes.engine import graph_pass
from tosaic.passes.match import name_of

_ROOT = "aten.sqrt.default"
_SUMS = frozenset({"aten.add.Tensor", "aten.sum.dim_IntList", "aten.mean.dim"})


@graph_pass
def widen_squares(module: fx.GraphModule) -> bool:
    """Ask for 16 bits from the layers whose squares are added up to where the root is taken, and
    for what a rule wants so."""
    for call in module.graph.nodes:
        name, found = name_of(call), []
        if name == _ROOT:
            found = _squares(call.all_input_nodes[0]) or []
        elif name in RULES and RULES[name].wide:
            bound = torchapi.bound_arguments(call)
            wanted = [bound[argument] for argument in RULES[name].wide]
            found = [n for n in wanted if n.op == "call_function" and len(n.users) == 1]
        for node in found:
            node.meta[MARK] = replace(mark_of(node), wide=True)
    return False


def _squares(node: fx.Node) -> list[fx.Node] | None:
    """The calls that make a sum of squares, and those that only move what is squared; None if it
    is no such sum."""
    if not name_of(node) or len(node.users) != 1:
        return None
    if _is_square(node):
        if mark_of(node.all_input_nodes[0]).long:
            return None  # one function of a magnitude
        return [node, *_moved(node.all_input_nodes[0])]
    if torchapi.target_name(node) not in _SUMS:
        return None
    found = [node]
    for operand in node.all_input_nodes:
        parts = _squares(operand)
        if parts is None:
            return None
        found += parts
    return found


def _is_square(node: fx.Node) -> bool:
    name, bound = torchapi.target_name(node), torchapi.bound_arguments(node)
    if name == "aten.mul.Tensor":
        return bound["self"] is bound["other"]
    return name == "aten.square.default" or (
        name == "aten.pow.Tensor_Scalar" and bound["exponent"] == 2
    )


def _moved(node: fx.Node) -> list[fx.Node]:
    """Calls that only move numbers, back to the layer that computes them."""
    found = []
    while node.op == "call_function":
        name = torchapi.target_name(node)
        rule = RULES.get(name)
        if name != "getitem" and (rule is None or rule.policy not in ("SHARED", "WEIGHTED")):
            break
        found.append(node)
        if rule is not None and rule.policy == "WEIGHTED":
            break
        node = node.all_input_nodes[0]
    return found
