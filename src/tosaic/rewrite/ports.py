"""Inputs and outputs of a graph in another order of their axes."""

from __future__ import annotations

from collections.abc import Sequence

from tosaic.ir.graph import Graph, Op, Value
from tosaic.rewrite.layout import inverse
from tosaic.spec import OPS
from tosaic.spec.dtypes import TensorType


def turn_input(graph: Graph, index: int, order: Sequence[int]) -> None:
    """Take an input with its axes in that order; a TRANSPOSE gives what it was."""
    old, order = graph.inputs[index], tuple(order)
    kind = TensorType(old.dtype, tuple(old.shape[axis] for axis in order))
    graph.inputs[index] = new = Value(kind, old.name, quant=old.quant, loc=old.loc)
    old.name = ""
    graph.ops.insert(0, Op(OPS["TRANSPOSE"], [new], [old], {"perms": inverse(order)}))


def turn_output(graph: Graph, index: int, order: Sequence[int]) -> None:
    """Give an output with its axes in that order."""
    old, order = graph.outputs[index], tuple(order)
    kind = TensorType(old.dtype, tuple(old.shape[axis] for axis in order))
    new = Value(kind, old.name, quant=old.quant, loc=old.loc)
    graph.ops.append(Op(OPS["TRANSPOSE"], [old], [new], {"perms": order}))
    graph.outputs[index], old.name = new, ""
