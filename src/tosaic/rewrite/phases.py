"""The phases of rewriting, in order, and which local rewrites belong to them.

The lists below decide the order, not the order of imports: an operator's rewrites are tried in the
order of ``MODULES`` and, within a module, of its lines.
"""

from __future__ import annotations

from functools import partial

from tosaic.ir.graph import Graph
from tosaic.rewrite import (
    arithmetic,
    data_movement,
    epilogue,
    fold_affine,
    fold_constants,
    fold_pads,
    fuse_tables,
    im2col,
    peak_memory,
    permute_channels,
    permute_weights,
    polyphase_deconv,
    pool_before_monotone,
    rescale_as_depthwise,
    space_to_depth,
    table_of_slice,
    transpose_forms,
    undilate,
)
from tosaic.rewrite.attention_heads import part_heads
from tosaic.rewrite.candidates import Judge
from tosaic.rewrite.concat_in_place import compute_copies
from tosaic.rewrite.fold_constants import share_constants
from tosaic.rewrite.keep_faster import keep_faster
from tosaic.rewrite.layout import sink_transposes
from tosaic.rewrite.lowest_rank import lower_ranks
from tosaic.rewrite.match import Allowed, Cost, register, simplify
from tosaic.rewrite.peak_memory import lower_peak
from tosaic.rewrite.reshape_sharing import share_shapes
from tosaic.spec.env import Env

MODULES = (
    fold_constants,
    fold_affine,
    permute_channels,
    epilogue,
    space_to_depth,
    undilate,
    pool_before_monotone,
    data_movement,
    fold_pads,
    polyphase_deconv,
    table_of_slice,
    rescale_as_depthwise,
    permute_weights,
    fuse_tables,
    transpose_forms,
    arithmetic,
    im2col,
    peak_memory,
)
register(MODULES)


def improve(
    graph: Graph, env: Env, allowed: Allowed | None = None, cost: Cost | None = None,
    judge: Judge | None = None, forms: bool = True,
) -> Graph:  # fmt: skip
    """The graph with every rewrite applied; the given one is used up.

    ``allowed`` is a constraint of the target: a reason why it cannot have an operator, or None.
    ``cost`` is what an operator costs there by formulas, which drop the forms that cost too much;
    ``judge`` says what the region of a form takes, and decides. Without it formulas do.
    Without ``forms`` there are only the rewrites that are better everywhere.
    """
    simplify(graph, env, allowed, cost)
    graph = sink_transposes(graph, env, allowed, cost)
    if cost is not None:
        lower_ranks(graph, env, allowed)
    if cost is not None and forms:
        judged = partial(keep_faster, graph, env, allowed, cost, judge)
        judged(lambda: part_heads(graph, env, allowed, cost), before_forms=True)
        simplify(graph, env, allowed, cost, True, judge)
        judged(lambda: share_shapes(graph, env, allowed, cost))
        judged(lambda: lower_peak(graph, env, allowed, cost), saves_memory=True)
        judged(lambda: compute_copies(graph, env, allowed, cost), saves_memory=True)
    share_constants(graph)
    return graph
