"""Removing what nothing needs."""

from __future__ import annotations

from tosaic.ir.graph import Graph

_EFFECTS = {"VARIABLE", "VARIABLE_WRITE", "ASSERT_EQUAL_SHAPE", "CUSTOM"}


def remove_dead(graph: Graph) -> Graph:
    """Drop operators whose results are never read; regions are part of their operator."""
    needed = set(graph.outputs)
    kept = []
    for op in reversed(graph.ops):
        if op.name in _EFFECTS or any(v in needed for v in op.outs):
            needed.update(op.ins)
            kept.append(op)
    graph.ops = kept[::-1]
    return graph
