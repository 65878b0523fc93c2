"""Rewrites: the same meaning in a better graph, checked with the same table."""

from __future__ import annotations

from tosaic.ir.graph import Graph

# Each of these modules registers its rewrites.
from tosaic.rewrite import affine, channels, moves, pads, values  # noqa: F401
from tosaic.rewrite.clean import remove_dead
from tosaic.rewrite.fold import share_constants
from tosaic.rewrite.layout import sink_transposes
from tosaic.rewrite.match import Allowed, simplify
from tosaic.spec.env import Env

__all__ = ["Allowed", "improve", "remove_dead", "simplify", "sink_transposes"]


def improve(graph: Graph, env: Env, allowed: Allowed | None = None) -> Graph:
    """The graph with every rewrite applied; the given one is used up.

    ``allowed`` is a constraint of the target: a reason why it cannot have an operator, or None.
    """
    simplify(graph, env, allowed)
    graph = sink_transposes(graph, env, allowed)
    simplify(graph, env, allowed)
    share_constants(graph)
    return graph
