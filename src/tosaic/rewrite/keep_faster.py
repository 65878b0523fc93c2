"""Undoes what a step over a whole graph has made slower, region by region.

The operators that a step has put in and taken out fall into regions that share no value. Each is
judged as it was and as it is now, with its neighbours; where it takes longer now, it becomes again
what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tosaic.ir.graph import Graph, Op, Value
from tosaic.ir.traits import PLAIN, Traits
from tosaic.rewrite.candidates import (
    Figures,
    Judge,
    cut,
    in_order,
    judge_alike,
    neighbours,
    with_copies,
)
from tosaic.rewrite.match import Allowed, Cost, Matcher
from tosaic.spec.env import Env

_ALLOWED = 0.003  # of the time of the whole graph by formulas, which less memory may cost


@dataclass(frozen=True, slots=True)
class Region:
    """Operators that a step has taken out, has put in, or has given other operands."""

    old: set[Op]
    new: set[Op]


def keep_faster(
    graph: Graph, env: Env, allowed: Allowed | None, cost: Cost, judge: Judge | None,
    step: Callable[[], object], before_forms: bool = False, saves_memory: bool = False,
    traits: Traits = PLAIN,
) -> None:  # fmt: skip
    """Run a step that changes a graph, and undo it where it is slower by a judge.

    What comes ``before_forms`` is judged as it is and with the forms that formulas choose: the
    faster of both is what it can become. A step that ``saves_memory``, as it has found for the
    whole graph, may cost a little time.
    """
    ins, outputs = {op: list(op.ins) for op in graph.ops}, list(graph.outputs)
    step()
    changes = Changes(graph, ins, outputs)
    found = list(changes.regions()) if judge is not None else []
    if judge is None or not found:
        return

    def formed(graphs: list[Graph]) -> list[Graph]:
        both = with_copies(graphs)
        for graph in both[len(graphs) :]:
            Matcher(graph, env, allowed, cost, forms=True, traits=traits).run()
        return both

    groups = [[changes.cut(region, is_new) for is_new in (False, True)] for region in found]
    judged = judge_alike(judge, groups, formed) if before_forms else judge_alike(judge, groups)
    slack = _ALLOWED * sum(map(cost, graph.ops)) / len(found) if saves_memory else 0.0
    slower = []
    for region, figures in zip(found, judged):
        old, new = _fastest(figures[::2]), _fastest(figures[1::2])
        if old is None or new is None or new > old + slack:
            slower.append(region)
    changes.undo(slower)


def _fastest(figures: Sequence[Figures | None]) -> int | None:
    """The fewest cycles that equal graphs take; None if the device takes none of them."""
    return min((each.cycles for each in figures if each is not None), default=None)


class Changes:
    """What a step has changed of a graph, of which ``ins`` and ``outputs`` are as they were."""

    def __init__(self, graph: Graph, ins: dict[Op, list[Value]], outputs: list[Value]) -> None:
        self.graph, self.ins, self.outputs = graph, ins, outputs
        self.uses = graph.uses()
        self.kept = {op for op in graph.ops if ins.get(op) == op.ins}
        self.after = {op: place for place, op in enumerate(graph.ops)}
        both = dict.fromkeys((*ins, *graph.ops))
        self.order = {op: place for place, op in enumerate(both)}

    def regions(self) -> Iterator[Region]:
        """The changes in parts that no new value, and none that is gone, connects."""
        changed = [op for op in self.order if op not in self.kept]
        once = {op for op in changed if op not in self.ins or op not in self.after}
        touched = {v for op in once for v in op.outs}
        links = {op: touched.intersection(self._values(op)) for op in changed}
        for was, now in zip(self.outputs, self.graph.outputs):
            if was is not now and now.producer in links:
                links[now.producer] |= {was}
        linked: dict[Value, list[Op]] = {}
        for op, values in links.items():
            for value in values:
                linked.setdefault(value, []).append(op)
        left = dict.fromkeys(changed)
        while left:
            stack, found = [next(iter(left))], set[Op]()
            while stack:
                op = stack.pop()
                if op not in found:
                    found.add(op)
                    del left[op]
                    stack += [o for v in links[op] for o in linked[v] if o not in found]
            yield Region({op for op in found if op in self.ins}, found & self.after.keys())

    def _values(self, op: Op) -> Iterator[Value]:
        return chain(op.ins, self.ins.get(op, ()), op.outs)

    def cut(self, region: Region, is_new: bool) -> Graph:
        """A region with its neighbours, which are the same before and after."""
        changed = sorted(region.old | region.new, key=self.order.__getitem__)
        border = [v for op in changed for v in self._values(op)]
        near = set(neighbours(self.kept, self._readers, changed, border)).difference(changed)
        place = self.after if is_new else self.order
        ops = sorted(near | (region.new if is_new else region.old), key=place.__getitem__)
        outputs = set(self.graph.outputs if is_new else self.outputs)
        ins_of = self._now if is_new else self.ins.__getitem__
        return cut(ops, ins_of, outputs, region.old ^ region.new)

    def _readers(self, value: Value) -> Sequence[Op]:
        return self.uses.get(value, ())

    @staticmethod
    def _now(op: Op) -> Sequence[Value]:
        return op.ins

    def undo(self, regions: Sequence[Region]) -> None:
        """Put regions back to what they were."""
        if not regions:
            return
        old = {op for region in regions for op in region.old}
        new = {op for region in regions for op in region.new}
        for op in old:
            op.ins = self.ins[op]
        graph, pairs = self.graph, zip(self.outputs, self.graph.outputs)
        graph.outputs = [
            was if was.producer in old or now.producer in new else now for was, now in pairs
        ]
        kept = old.union(op for op in graph.ops if op not in new)
        graph.ops = list(in_order((op for op in (*self.ins, *graph.ops) if op in kept), self._now))
