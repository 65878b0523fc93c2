"""Regions of control flow: what they share and how they are written out in a graph."""

from __future__ import annotations

from collections.abc import Sequence

from tosaic.errors import Unsupported
from tosaic.ir.graph import Graph, Value
from tosaic.lowering.builder import Lowering


def same_meaning(first: Sequence[Value], second: Sequence[Value], what: str) -> None:
    """A value that goes two ways must mean the same on both."""
    for one, other in zip(first, second):
        if one.quant != other.quant:
            raise Unsupported(f"{what} are quantized differently, and nothing here rescales them")


def passed_on(b: Lowering, values: Sequence[Value]) -> None:
    """Give values as outputs; what is an input or a constant is copied first."""
    for value in values:
        is_made = value.producer is not None and value not in b.graph.outputs
        b.output(value if is_made else b.with_quant(b.IDENTITY(value), value.quant))


def written_out(b: Lowering, region: Graph, operands: Sequence[Value]) -> list[Value]:
    """The operators of a region in the graph itself: what it gives for operands."""
    given = dict(zip(region.inputs, operands, strict=True))
    for op in region.ops:
        op.ins = [given.get(value, value) for value in op.ins]
        b.add(op)
    return [given.get(value, value) for value in region.outputs]
