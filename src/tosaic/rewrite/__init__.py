"""Rewrites: the same meaning in a better graph, checked with the same table."""

from __future__ import annotations

from tosaic.ir.graph import Graph

# Each of these modules registers its rewrites.
from tosaic.rewrite import (  # noqa: F401
    affine,
    channels,
    columns,
    gaps,
    monotone,
    moves,
    pads,
    phases,
    pieces,
    scalings,
    shuffles,
    tabulate,
    turns,
    values,
    windows,
)
from tosaic.rewrite.copies import compute_copies
from tosaic.rewrite.fold import share_constants
from tosaic.rewrite.heads import part_heads
from tosaic.rewrite.layout import sink_transposes
from tosaic.rewrite.lowest_rank import lower_ranks
from tosaic.rewrite.match import Allowed, Cost, remove_dead, simplify
from tosaic.rewrite.peak import lower_peak
from tosaic.rewrite.shapes import share_shapes
from tosaic.spec.env import Env

__all__ = ["Allowed", "Cost", "improve", "remove_dead", "simplify", "sink_transposes"]


def improve(
    graph: Graph, env: Env, allowed: Allowed | None = None, cost: Cost | None = None
) -> Graph:
    """The graph with every rewrite applied; the given one is used up.

    ``allowed`` is a constraint of the target: a reason why it cannot have an operator, or None.
    ``cost`` is what an operator costs there, by which the cheapest of equal forms is chosen.
    """
    simplify(graph, env, allowed, cost)
    graph = sink_transposes(graph, env, allowed, cost)
    if cost is not None:
        lower_ranks(graph, env, allowed)
        part_heads(graph, env, allowed, cost)
    simplify(graph, env, allowed, cost, forms=True)
    if cost is not None:
        share_shapes(graph, env, allowed, cost)
        lower_peak(graph, env, allowed, cost)
        compute_copies(graph, env, allowed, cost)
    share_constants(graph)
    return graph
