"""Delta debugging of a TOSA graph: the fewest operators with which a fault remains.

Operators are left out, never changed: what a kept operator reads from one that is left out becomes
an input of the graph, with the numbers that it had in a run of the whole graph. Types and sizes
stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tosaic.interp.model import Model
from tosaic.ir.graph import Array, Graph, Op, Value


@dataclass(frozen=True, slots=True)
class Case:
    """A graph, numbers for its inputs, and what it gives for them.

    ``sources`` are the operators of the whole graph that it was cut out of, in its own order.
    """

    graph: Graph
    inputs: list[Array]
    expected: list[Array]
    sources: tuple[Op, ...] = ()

    def fresh(self) -> Case:
        """The same around a graph that may be changed."""
        return replace(self, graph=copy_graph(self.graph))


Judge = Callable[[Case], str]  # what is wrong, in words; nothing if all is right


@dataclass(frozen=True, slots=True)
class Cut:
    """Operators copied into a graph of their own, and which value each copy stands for."""

    graph: Graph
    copies: Mapping[Value, Value]


def record(graph: Graph, inputs: Sequence[Array]) -> dict[Value, Array]:
    """What every value of a graph is for the given inputs, by the interpreter."""
    made = [value for op in graph.ops for value in op.outs]
    everything = Graph(graph.name, graph.inputs, made, graph.ops, graph.version)
    return dict(zip([*graph.inputs, *made], [*inputs, *Model(everything).run(*inputs)]))


def cut_out(ops: Sequence[Op], outputs: Collection[Value], name: str = "main") -> Cut:
    """Operators as a graph: its outputs are those given, and what none of the operators reads."""
    copies: dict[Value, Value] = {}
    graph = Graph(name)
    read = {value for op in ops for value in op.ins}
    for op in ops:
        for value in op.ins:
            if value not in copies:
                copies[value] = _copy(value)
                if not value.is_const:
                    graph.inputs.append(copies[value])
        for value in op.outs:
            copies[value] = _copy(value)
        ins, outs = ([copies[v] for v in side] for side in (op.ins, op.outs))
        regions = tuple(copy_graph(region) for region in op.regions)
        graph.ops.append(Op(op.defn, ins, outs, op.attrs, regions, op.loc))
    found = [v for op in ops for v in op.outs if v not in read or v in outputs]
    graph.outputs = [copies[value] for value in found]
    _give_names(graph)
    return Cut(graph, copies)


def copy_graph(graph: Graph) -> Graph:
    """A copy that may be changed; inputs and outputs keep their order and names."""
    made = cut_out(graph.ops, graph.outputs, graph.name)
    copies = {**{v: _copy(v) for v in (*graph.inputs, *graph.outputs)}, **made.copies}
    for value, copy in copies.items():
        copy.name = value.name
    inputs, outputs = ([copies[v] for v in side] for side in (graph.inputs, graph.outputs))
    return Graph(graph.name, inputs, outputs, made.graph.ops, graph.version)


def _copy(value: Value) -> Value:
    return Value(value.type, value.name, value.const, value.quant, value.loc)


def _give_names(graph: Graph) -> None:
    """Names for inputs and outputs that have none, or one that another has."""
    taken: set[str] = set()
    for number, value in enumerate((*graph.inputs, *graph.outputs)):
        if not value.name or value.name in taken:
            value.name = f"port_{number}"
        taken.add(value.name)


@dataclass(slots=True)
class _Search:
    """The judge's answers about sets of operators, each asked for once, within a budget."""

    outputs: Collection[Value]
    values: Mapping[Value, Array]
    judge: Judge
    budget: int
    best: Case

    def case(self, ops: Sequence[Op]) -> Case:
        cut = cut_out(ops, self.outputs)
        wholes = {copy: value for value, copy in cut.copies.items()}
        inputs, outputs = (
            [self.values[wholes[v]] for v in side] for side in (cut.graph.inputs, cut.graph.outputs)
        )
        return Case(cut.graph, inputs, outputs, tuple(ops))

    def fails(self, ops: Sequence[Op]) -> bool:
        if not ops or self.budget <= 0:
            return False
        self.budget -= 1
        case = self.case(ops)
        if not self.judge(case.fresh()):
            return False
        self.best = case
        return True


def reduce(graph: Graph, inputs: Sequence[Array], judge: Judge, budget: int = 120) -> Case:
    """The smallest part of a graph that was found to fail, after at most ``budget`` trials.

    First whole stretches are left out at the end and at the beginning, by halves; then pieces of
    what is left, ever smaller ones; then outputs.
    """
    values = record(graph, inputs)
    search = _Search(set(graph.outputs), values, judge, budget, Case(graph, [], []))
    search.best = search.case(graph.ops)
    _halve(search, lambda ops, count: ops[: len(ops) - count])
    _halve(search, lambda ops, count: ops[count:])
    _thin(search)
    for output in list(search.outputs):
        before, search.outputs = search.outputs, {v for v in search.outputs if v is not output}
        if output not in _made(search.best) or not search.fails(search.best.sources):
            search.outputs = before
    return search.best


def _made(case: Case) -> set[Value]:
    read = {value for op in case.sources for value in op.ins}
    return {value for op in case.sources for value in op.outs if value in read}


def _halve(search: _Search, without: Callable[[Sequence[Op], int], Sequence[Op]]) -> None:
    """Leave out as many operators of one end as one can, by bisection."""
    ops = search.best.sources
    low, high = 0, len(ops)  # so many may be left out, and so many may not
    while high - low > 1:
        middle = (low + high) // 2
        if search.fails(without(ops, middle)):
            low = middle
        else:
            high = middle


def _thin(search: _Search) -> None:
    """Leave out pieces until no single operator can be left out."""
    size = max(1, len(search.best.sources) // 2)
    while search.budget > 0:
        ops, start, found = search.best.sources, 0, False
        while start < len(ops):
            if search.fails((*ops[:start], *ops[start + size :])):
                ops, found = search.best.sources, True
            else:
                start += size
        if size == 1 and not found:
            return
        size = max(1, size // 2)
