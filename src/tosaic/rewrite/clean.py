"""Removing what nothing needs."""

from __future__ import annotations

from tosaic.ir.graph import Graph
from tosaic.rewrite.match import lasts


def remove_dead(graph: Graph) -> Graph:
    """Drop operators whose results are never read, unless they change what lasts."""
    needed = set(graph.outputs)
    kept = []
    for op in reversed(graph.ops):
        if lasts(op) or any(v in needed for v in op.outs):
            needed.update(op.ins)
            kept.append(op)
    graph.ops = kept[::-1]
    return graph
