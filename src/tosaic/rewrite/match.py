"""The engine of local rewrites: a worklist over operators, with use lists.

A rewrite looks at one operator and what is round it and gives a value to take the place of its
result, or None. What it emits is checked by the table and the target's own constraint; a refusal
of either leaves the graph as it was. Each rewrite makes the graph smaller or moves it towards one
normal form, so the list runs empty; time grows with the number of operators. A form is a rewrite
that takes place where a target needs less for it than for what it makes needless: of several, the
best.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import TypeVar

import numpy as np

from tosaic.errors import InvalidGraph, Unsupported
from tosaic.ir.build import Builder
from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.ir.int_intervals import quick
from tosaic.ir.traits import PLAIN, Traits
from tosaic.rewrite.candidates import (
    Candidate,
    Judge,
    Site,
    best_of,
    judge_alike,
    made_for,
    needless,
    site,
    with_copies,
)
from tosaic.spec.env import Env

Allowed = Callable[[Op], str | None]
Rewrite = Callable[["Matcher", Op], Value | None]
Form = Callable[["Matcher", Op], Value | Iterator[Value] | None]
_Rewrite = TypeVar("_Rewrite", bound=Rewrite)
_Form = TypeVar("_Form", bound=Form)
Cost = Callable[[Op], float]
REWRITES: dict[str, list[Rewrite]] = {}
FORMS: dict[str, list[Form]] = {}
_REWRITES: dict[Rewrite, Sequence[str]] = {}  # as they are marked, by the names of operators
_FORMS: dict[Form, Sequence[str]] = {}
# What a form has to save for certain by formulas: they are estimates.
MARGIN = 0.98
# What has to happen even if nothing reads a result, and what may give another one each time.
LASTING = {"VARIABLE", "VARIABLE_WRITE", "ASSERT_EQUAL_SHAPE", "CUSTOM"}
EFFECTS = {*LASTING, "VARIABLE_READ"}
# Rewrites for each operator of the graph, far more than any needs: what takes more does not end.
MOST = 40


def rewrite(*names: str) -> Callable[[_Rewrite], _Rewrite]:
    """Mark a rewrite of operators of those names; ``phases`` registers it."""

    def mark(function: _Rewrite) -> _Rewrite:
        _REWRITES[function] = names
        return function

    return mark


def form(*names: str) -> Callable[[_Form], _Form]:
    """Mark an equal form of operators of those names, or several, to be taken where it is best."""

    def mark(function: _Form) -> _Form:
        _FORMS[function] = names
        return function

    return mark


def register(modules: Iterable[ModuleType]) -> None:
    """Register the rewrites of modules, in this order; all that were marked must be in them."""
    REWRITES.clear()
    FORMS.clear()
    listed = {m.__name__: m for m in modules}
    for module in listed:
        for rewriting, names in _REWRITES.items():
            for name in names if rewriting.__module__ == module else ():
                REWRITES.setdefault(name, []).append(rewriting)
        for forming, names in _FORMS.items():
            for name in names if forming.__module__ == module else ():
                FORMS.setdefault(name, []).append(forming)
    marked = [*_REWRITES, *_FORMS]
    if left := [f.__name__ for f in marked if f.__module__ not in listed]:
        raise ValueError(f"no phase has these rewrites: {', '.join(left)}")


class Matcher:
    """A graph under rewriting: who reads what, and a Builder for what is new.

    With the costs of a target, ``forms`` may be tried as well: costs drop those that cannot be
    better, and the judge decides among the others.
    """

    def __init__(
        self, graph: Graph, env: Env, allowed: Allowed | None = None, cost: Cost | None = None,
        forms: bool = False, judge: Judge | None = None, traits: Traits = PLAIN,
    ) -> None:  # fmt: skip
        self.graph, self.env, self.allowed, self.cost = graph, env, allowed, cost
        self.forms, self.judge, self.traits = forms and cost is not None, judge, traits
        self.b = Builder(env, Graph(graph.name), (allowed,) if allowed else (), traits)
        self.uses: dict[Value, Counter[Op]] = {}
        self.place: dict[Op, int] = {}  # where an operator, or the one it came from, stood
        self.results = Counter(graph.outputs)
        for index, op in enumerate(graph.ops):
            self._enter(op, index)
        self.queue = deque(graph.ops)
        self.waiting = set(graph.ops)
        self.settled: dict[Op, None] = {}  # no rewrite is left for them; forms were not tried
        self.intervals = quick(graph)  # of integers, computed when asked for
        self.same: dict[object, Value] = {}  # operators seen, for those that compute the same

    def readers(self, value: Value) -> Iterator[Op]:
        """The operators that read a value, each once."""
        return iter(self.uses.get(value, ()))

    def only(self, value: Value) -> bool:
        """Whether one operator alone reads a value, once, and the graph does not give it."""
        readers = self.uses.get(value)
        if readers is None or value in self.results:
            return False
        return len(readers) == 1 and 1 in readers.values()

    def made_by(self, value: Value, *names: str) -> Op | None:
        """The operator that computes a value, if it has one of those names."""
        op = value.producer
        return op if op is not None and op.name in names and op in self.place else None

    def run(self) -> None:
        self._settle()
        for _ in range(MOST + len(self.graph.ops)):
            if not self.settled or not self._take_forms():
                break
            self._settle()
        else:
            raise self._endless()
        self.graph.ops = self._ordered()

    def _settle(self) -> None:
        """Apply rewrites until none is left."""
        left = MOST * max(len(self.graph.ops), 1)
        while self.queue and left:
            op = self.queue.popleft()
            self.waiting.discard(op)
            if op in self.place:
                left -= self._step(op)
        if self.queue:
            raise self._endless()

    def _endless(self) -> InvalidGraph:
        """Tosaic's own fault: rewrites that undo one another."""
        op = next(iter((*self.queue, *self.settled)), None)
        where = f"; the next is {op.name}" if op is not None else ""
        return InvalidGraph(
            f"rewriting the graph '{self.graph.name}' does not end: some rewrites undo one "
            f"another{where}; please report it",
            op.loc if op is not None else None,
        )

    def _step(self, op: Op) -> bool:
        if self._is_dead(op):
            self._drop(op)
            return False
        if len(op.outs) != 1 or op.regions or op.name in EFFECTS:
            return False
        functions = (*REWRITES.get("", ()), *REWRITES.get(op.name, ()))
        if any(self.attempt(function, op) for function in functions):
            return True
        if self.forms and op.name in FORMS:
            self.settled[op] = None
        return False

    def attempt(self, function: Rewrite | Form, op: Op) -> bool:
        """Whether a rewrite, or one of a form's expressions, took place."""
        made = self._called(function, op)
        if made is None:
            return False  # as most say
        return any(
            self._replace(op, value, list(self.b.graph.ops)) for value in self._emitted(made, op)
        )

    def _called(self, function: Rewrite | Form, op: Op) -> Value | Iterator[Value] | None:
        self.b.loc = op.loc
        self.b.graph.ops.clear()
        try:
            return function(self, op)
        except Unsupported:
            return None

    def _emitted(self, made: Value | Iterator[Value] | None, op: Op) -> Iterator[Value]:
        """What a rewrite or a form gives, one by one; the operators are the Builder's then."""
        try:
            for value in made if isinstance(made, Iterator) else (made,):
                if value is not None and value.type == op.outs[0].type:
                    yield value
                self.b.graph.ops.clear()
        except Unsupported:
            return

    def _take_forms(self) -> bool:
        """Put the best form in the place of each operator that has one; whether any has.

        All are judged at once. Where two concern the same operators, one is taken now, and the
        other is looked at again when the graph has settled.
        """
        tried, self.settled = self.settled, {}
        found = [(op, list(self._candidates(op))) for op in self._ordered() if op in tried]
        sites = [site(self, op, candidates) for op, candidates in found if candidates]
        touched, taken = set[Op](), False
        for at, best in zip(sites, self._judged(sites)):
            if best is None:
                continue
            if not touched.isdisjoint(at.region):
                self._push(at.op)
                continue
            readers = set(self.readers(at.op.outs[0]))
            if self._replace(at.op, best.value, best.new):
                touched |= {*best.gone, *readers}
                taken = True
        return taken

    def _candidates(self, op: Op) -> Iterator[Candidate]:
        """Forms of an operator, but for those that cost more by the target's formulas."""
        assert self.cost is not None
        has_doubt = self.judge is not None and op.name in ("TRANSPOSE", "GATHER")
        margin = MARGIN * (self.traits.transpose_doubt if has_doubt else 1.0)
        for function in FORMS.get(op.name, ()):
            for value in self._emitted(self._called(function, op), op):
                new = made_for(value, self.b.graph.ops)
                gone = needless(self, op, new)
                if sum(map(self.cost, new)) < margin * sum(map(self.cost, gone)):
                    yield Candidate(value, new, gone)

    def _judged(self, sites: list[Site]) -> list[Candidate | None]:
        """The best candidate of each site, None where none is better than what is there."""
        if self.judge is None:
            return [min(at.candidates, key=self._balance) for at in sites]
        groups = [at.graphs(self) for at in sites]
        return list(map(best_of, sites, judge_alike(self.judge, groups, self._with_forms)))

    def _with_forms(self, graphs: list[Graph]) -> list[Graph]:
        """Graphs as rewrites leave them, and all again with the forms that formulas take.

        What a candidate makes possible behind it counts as well.
        """
        found = with_copies(graphs)
        for index, graph in enumerate(found):
            forms = index >= len(graphs)
            Matcher(graph, self.env, self.allowed, self.cost, forms, traits=self.traits).run()
        return found

    def _balance(self, found: Candidate) -> float:
        assert self.cost is not None
        return sum(map(self.cost, found.new)) - sum(map(self.cost, found.gone))

    def _replace(self, op: Op, value: Value, new: list[Op]) -> bool:
        """Let all read the new value; not if the target refuses one of them then."""
        old, readers = op.outs[0], list(self.readers(op.outs[0]))
        fresh = any(value in n.outs for n in new)
        if self.results[old] and not fresh and (value.producer is None or self.results[value]):
            return False  # an output is computed, under a name of its own
        if self.allowed is not None and not self._fits(readers, old, value):
            return False
        for made in new:
            self._enter(made, self.place[op])
            self._push(made)
        for reader in readers:
            self._swap(reader, old, value)
            self._push(reader)
        if self.results[old]:
            self.graph.outputs = [value if v is old else v for v in self.graph.outputs]
            self.results[value] = self.results.pop(old)
            value.name, value.quant = old.name, old.quant
        if fresh:
            value.name, value.quant = value.name or old.name, value.quant or old.quant
            value.limits = value.limits or old.limits
        self._drop(op)
        return True

    def _fits(self, readers: list[Op], old: Value, value: Value) -> bool:
        assert self.allowed is not None
        for reader in readers:
            ins, before = reader.ins, self.allowed(reader)
            reader.ins = [value if v is old else v for v in ins]
            after = self.allowed(reader)
            reader.ins = ins
            if after and not before:
                return False
        return True

    def _swap(self, reader: Op, old: Value, value: Value) -> None:
        reader.ins = [value if v is old else v for v in reader.ins]
        count = self.uses[old].pop(reader)
        self.uses.setdefault(value, Counter())[reader] += count

    def _enter(self, op: Op, place: int) -> None:
        self.place[op] = place
        for value in op.ins:
            readers = self.uses.get(value)
            if readers is None:
                readers = self.uses[value] = Counter()
            readers[op] += 1

    def _push(self, op: Op) -> None:
        if op not in self.waiting:
            self.waiting.add(op)
            self.queue.append(op)

    def _is_dead(self, op: Op) -> bool:
        read = any(self.uses.get(v) or self.results[v] for v in op.outs)
        return not read and not lasts(op)

    def _drop(self, op: Op) -> None:
        """Take an operator away; those that it read may be dead now, or have one reader left."""
        del self.place[op]
        for value in set(op.ins):
            del self.uses[value][op]
            if value.producer in self.place:
                assert value.producer is not None
                self._push(value.producer)
                if len(self.uses[value]) == 1:
                    self._push(next(self.readers(value)))

    def _ordered(self) -> list[Op]:
        """Operators after those that they read, otherwise where they stood."""
        found: dict[Op, None] = {}
        for root in sorted(self.place, key=self.place.__getitem__):
            stack = [root]
            while stack:
                op = stack[-1]
                before = [v.producer for v in op.ins if v.producer in self.place]
                missing = [p for p in before if p not in found]
                if op in found or not missing:
                    found[stack.pop()] = None
                else:
                    stack.extend(missing)
        return list(found)


def lasts(op: Op) -> bool:
    """Whether an operator has to run even if nothing reads its results."""
    inner = (o for region in op.regions for o in region.walk())
    return op.name in LASTING or any(o.name in LASTING for o in inner)


def simplify(
    graph: Graph, env: Env, allowed: Allowed | None = None, cost: Cost | None = None,
    forms: bool = False, judge: Judge | None = None, traits: Traits = PLAIN,
) -> None:  # fmt: skip
    """Apply every local rewrite, in the regions of control flow first, until none is left."""
    for op in graph.ops:
        for region in op.regions:
            simplify(region, env, allowed, cost, forms, judge, traits)
    Matcher(graph, env, allowed, cost, forms, judge, traits).run()


def known(value: Value) -> Array | None:
    """The numbers of a constant, which are made now."""
    return value.const.array if value.const is not None and value.is_const else None


def numbers(value: Value, exact: bool = False) -> Array:
    """The numbers of a constant, to compute with; ``exact`` are those before they were rounded."""
    assert value.const is not None
    held = value.const.exact if exact else None
    return (value.const.array if held is None else held).astype(np.float64)


def sizes(value: Value) -> list[int] | None:
    """A constant shape."""
    return None if value.const is None else [int(n) for n in value.const.array.reshape(-1)]


def one_number(value: Value) -> float | int | None:
    """The number that a constant of one element holds."""
    array = known(value) if value.type.size == 1 else None
    return None if array is None else array.reshape(-1)[0].item()


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
