"""The phases of rewriting TOSA graphs, in order, and which local rewrites belong to them.

The lists below decide the order, not the order of imports: an operator's rewrites are tried in the
order of ``MODULES`` and, within a module, of its lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tosaic.files.text import print_graph
from tosaic.ir.graph import Graph
from tosaic.ir.traits import PLAIN, Traits
from tosaic.ir.verify import problems, verify
from tosaic.rewrite import (
    arithmetic,
    data_movement,
    epilogue,
    float8_operands,
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
    sink_below_concat,
    space_to_depth,
    table_of_slice,
    transpose_forms,
    undilate,
)
from tosaic.rewrite.attention_heads import part_heads
from tosaic.rewrite.candidates import Judge, cut
from tosaic.rewrite.concat_in_place import compute_copies
from tosaic.rewrite.fold_constants import share_constants
from tosaic.rewrite.keep_faster import keep_faster
from tosaic.rewrite.layout import sink_transposes
from tosaic.rewrite.lowest_rank import lower_ranks
from tosaic.rewrite.match import Allowed, Cost, register, simplify
from tosaic.rewrite.peak_memory import lower_peak
from tosaic.rewrite.reshape_sharing import share_shapes
from tosaic.runtime.phases import ended, is_verifying
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
    sink_below_concat,
    peak_memory,
    float8_operands,
)
register(MODULES)

_JUDGED = 600  # operators of a graph, at most, that is rewritten in several layouts


@dataclass(frozen=True, slots=True)
class Machine:
    """What graphs are rewritten for: environment, constraint, costs, judge and traits.

    ``allowed`` is a reason why the target cannot have an operator, or None. ``cost`` is what an
    operator costs there by formulas, which drop the forms that cost too much; ``judge`` says what
    the region of a form takes, and decides. Without it formulas do. Without ``forms`` there are
    only the rewrites that are better everywhere.
    """

    env: Env
    allowed: Allowed | None
    cost: Cost | None
    judge: Judge | None
    forms: bool
    traits: Traits


@dataclass(frozen=True, slots=True)
class Phase:
    """A step over a whole graph, changed in place or given back, on machines that it is for.

    Of several graphs that it gives back, the one is kept that is fastest after all phases. With
    ``keeps`` the judge looks at each region that the step has changed, and what is slower is
    undone; the step is a form then, for machines with costs.
    """

    name: str
    run: Callable[[Graph, Machine], Graph | list[Graph] | None]
    is_for: Callable[[Machine], bool] = lambda _: True
    keeps: Mapping[str, bool] | None = None

    def apply(self, graph: Graph, m: Machine) -> list[Graph]:
        """The graph after this phase, or several that may become the fastest."""
        if self.keeps is None:
            made = self.run(graph, m) or graph if self.is_for(m) else graph
            return made if isinstance(made, list) else [made]
        if m.cost is not None and m.forms and self.is_for(m):
            step = partial(self.run, graph, m)
            keep_faster(
                graph, m.env, m.allowed, m.cost, m.judge, step, traits=m.traits, **self.keeps
            )
        return [graph]


def _lower_peak(graph: Graph, m: Machine) -> None:
    assert m.cost is not None
    lower_peak(graph, m.env, m.allowed, m.cost, m.traits)


def _layouts(graph: Graph, m: Machine) -> list[Graph]:
    """The graph in the layouts that are worth a try, where somebody says which is faster."""
    found = sink_transposes(graph, m.env, m.allowed, m.cost, m.traits)
    has_judge = m.judge is not None and m.forms and len(graph.ops) <= _JUDGED
    return found if has_judge else found[:1]


def _concat_in_place(graph: Graph, m: Machine) -> None:
    assert m.cost is not None
    compute_copies(graph, m.env, m.allowed, m.cost, m.traits)


def _has_judge(m: Machine) -> bool:
    """Whether somebody says what memory a graph takes."""
    return m.judge is not None


_MEMORY = {"saves_memory": True}
PHASES = (
    Phase("simplify", lambda g, m: simplify(g, m.env, m.allowed, m.cost, traits=m.traits)),
    Phase("sink_transposes", _layouts),
    Phase(
        "lower_ranks", lambda g, m: lower_ranks(g, m.env, m.allowed, m.traits.most_axes),
        lambda m: m.traits.most_axes > 0,
    ),
    Phase(
        "part_heads", lambda g, m: part_heads(g, m.env, m.allowed, m.cost, m.traits),
        lambda m: m.traits.matmul == "transposes", {"before_forms": True},
    ),
    Phase(
        "forms", lambda g, m: simplify(g, m.env, m.allowed, m.cost, m.forms, m.judge, m.traits)
    ),
    Phase(
        "share_shapes", lambda g, m: share_shapes(g, m.env, m.allowed, m.cost, m.traits),
        lambda m: m.traits.one_shape, {},
    ),
    Phase("lower_peak", _lower_peak, _has_judge, _MEMORY),
    Phase("concat_in_place", _concat_in_place, _has_judge, _MEMORY),
    Phase("share_constants", lambda g, m: share_constants(g)),
)  # fmt: skip


def improve(
    graph: Graph, env: Env, allowed: Allowed | None = None, cost: Cost | None = None,
    judge: Judge | None = None, forms: bool = True, traits: Traits = PLAIN,
) -> Graph:  # fmt: skip
    """The graph with every rewrite applied, phase by phase; the given one is used up."""
    machine = Machine(env, allowed, cost, judge, forms, traits)
    constraints = () if allowed is None else (allowed,)
    is_valid = is_verifying() and not any(problems(graph, env, constraints))  # as it was given
    graphs = [graph]
    for phase in PHASES:
        graphs = [made for each in graphs for made in phase.apply(each, machine)]
        for made in graphs:
            check = partial(verify, made, env, constraints) if is_valid else None
            ended(phase.name, partial(print_graph, made), check)
    return _fastest(graphs, judge)


def _fastest(graphs: list[Graph], judge: Judge | None) -> Graph:
    """The graph that the judge finds fastest; the first of equal ones."""
    if judge is None or len(graphs) == 1:
        return graphs[0]
    wholes = [cut(g.ops, lambda op: op.ins, set(g.outputs), set(g.ops)) for g in graphs]
    figures = judge(wholes)
    best = 0
    for index, then in enumerate(figures):
        there = figures[best]
        if then is not None and (there is None or then.beats(there)):
            best = index
    return graphs[best]
