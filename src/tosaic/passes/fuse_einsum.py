"""Turns an einsum that multiplies batches of matrices into that product, operands permuted."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.passes.engine import Call, Replacement, node_pass

aten = torch.ops.aten


@node_pass("aten.einsum.default")
def fuse_einsum(node: fx.Node) -> Replacement:
    """Axes in both operands and the result are a stack; of the others there is one each."""
    if (terms := _terms(node)) is None:
        return None
    (first, names), (second, others), result = terms
    stack = [name for name in result if name in names and name in others]
    row, column, inner = (
        [name for name in where if name not in stack and (name in beside) == is_beside]
        for where, beside, is_beside in ((names, result, True), (others, result, True),
                                         (names, others, True))
    )  # fmt: skip
    if not len(row) == len(column) == len(inner) == 1:
        return None
    if len(names) != len(stack) + 2 or len(others) != len(stack) + 2:
        return None
    made = [*stack, *row, *column]
    if sorted(made) != sorted(result):
        return None
    left = _in_order(first, names, [*stack, *row, *inner])
    right = _in_order(second, others, [*stack, *inner, *column])
    if made == list(result):
        return Call(aten.matmul.default, (left, right))
    inside = torchapi.new_call(node, aten.matmul.default, (left, right))
    return Call(aten.permute.default, (inside, [made.index(name) for name in result]))


def _terms(node: fx.Node) -> tuple[tuple[Any, str], tuple[Any, str], str] | None:
    """The operands of an einsum of two, with the names of their axes, and those of its result."""
    bound: dict[str, Any] = torchapi.bound_arguments(node)
    equation, operands = bound["equation"], bound["tensors"]
    left, arrow, result = str(equation).replace(" ", "").partition("->")
    names = left.split(",")
    is_plain = arrow and "." not in left and all(len({*n}) == len(n) for n in (*names, result))
    if not is_plain or len(names) != 2:
        return None
    first, second = operands
    if not all(v.meta["val"].is_floating_point() for v in (first, second)):
        return None
    return (first, names[0]), (second, names[1]), result


def _in_order(value: fx.Node, names: str, wanted: list[str]) -> fx.Node:
    order = [names.index(name) for name in wanted]
    if order == sorted(order):
        return value
    if sorted(order[:-2]) == order[:-2] == list(range(len(order) - 2)):
        return torchapi.new_call(value, aten.transpose.int, (value, -2, -1))
    return torchapi.new_call(value, aten.permute.default, (value, order))
