"""The engine of local rewrites: a worklist over operators, with use lists.

A rewrite looks at one operator and what is round it and gives a value to take the place of its
result, or None. What it emits is checked by the table and the target's own constraint; a refusal
of either leaves the graph as it was. Each rewrite makes the graph smaller or moves it towards one
normal form, so the list runs empty; time grows with the number of operators. A form is a rewrite
that takes place where what it emits costs a target less than what it makes needless.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.build import Builder
from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.ir.int_intervals import quick
from tosaic.spec.env import Env

Allowed = Callable[[Op], str | None]
Rewrite = Callable[["Matcher", Op], Value | None]
Cost = Callable[[Op], float]
REWRITES: dict[str, list[Rewrite]] = {}
FORMS: dict[str, list[Rewrite]] = {}
# What a form has to save for certain: costs are estimates.
MARGIN = 0.98
# What has to happen even if nothing reads a result, and what may give another one each time.
LASTING = {"VARIABLE", "VARIABLE_WRITE", "ASSERT_EQUAL_SHAPE", "CUSTOM"}
EFFECTS = {*LASTING, "VARIABLE_READ"}
# Rewrites for each operator of the graph, far more than any needs: a guard against a loop.
MOST = 40


def rewrite(*names: str) -> Callable[[Rewrite], Rewrite]:
    """Register a rewrite for operators of those names."""
    return partial(_register, REWRITES, names)


def form(*names: str) -> Callable[[Rewrite], Rewrite]:
    """Register an equal form of operators of those names, to be taken where it is cheaper."""
    return partial(_register, FORMS, names)


def _register(kept: dict[str, list[Rewrite]], names: Sequence[str], function: Rewrite) -> Rewrite:
    for name in names:
        kept.setdefault(name, []).append(function)
    return function


class Matcher:
    """A graph under rewriting: who reads what, and a Builder for what is new.

    With the costs of a target, ``forms`` may be tried as well.
    """

    def __init__(
        self, graph: Graph, env: Env, allowed: Allowed | None = None, cost: Cost | None = None,
        forms: bool = False,
    ) -> None:  # fmt: skip
        self.graph, self.allowed, self.cost, self.forms = graph, allowed, cost, forms
        self.b = Builder(env, Graph(graph.name), (allowed,) if allowed else ())
        self.uses: dict[Value, Counter[Op]] = {}
        self.place: dict[Op, int] = {}  # where an operator, or the one it came from, stood
        self.results = Counter(graph.outputs)
        for index, op in enumerate(graph.ops):
            self._enter(op, index)
        self.queue = deque(graph.ops)
        self.waiting = set(graph.ops)
        self.intervals = quick(graph)  # of integers, computed when asked for
        self.same: dict[object, Value] = {}  # operators seen, for those that compute the same

    def readers(self, value: Value) -> Iterator[Op]:
        """The operators that read a value, each once."""
        return iter(self.uses.get(value, ()))

    def only(self, value: Value) -> bool:
        """Whether one operator alone reads a value, once, and the graph does not give it."""
        readers = self.uses.get(value, Counter())
        return value not in self.results and len(readers) == 1 and sum(readers.values()) == 1

    def made_by(self, value: Value, *names: str) -> Op | None:
        """The operator that computes a value, if it has one of those names."""
        op = value.producer
        return op if op is not None and op.name in names and op in self.place else None

    def run(self) -> None:
        left = MOST * len(self.graph.ops)
        while self.queue and left:
            op = self.queue.popleft()
            self.waiting.discard(op)
            if op in self.place:
                left -= self._step(op)
        self.graph.ops = self._ordered()

    def _step(self, op: Op) -> bool:
        if self._is_dead(op):
            self._drop(op)
            return False
        if len(op.outs) != 1 or op.regions or op.name in EFFECTS:
            return False
        functions = (*REWRITES.get("", ()), *REWRITES.get(op.name, ()))
        if any(self.attempt(function, op) for function in functions):
            return True
        forms = FORMS.get(op.name, ()) if self.forms and self.cost is not None else ()
        return any(self.attempt(function, op, by_cost=True) for function in forms)

    def attempt(self, function: Rewrite, op: Op, by_cost: bool = False) -> bool:
        """Whether a rewrite took place."""
        new, self.b.loc = self.b.graph.ops, op.loc
        new.clear()
        try:
            value = function(self, op)
        except Unsupported:
            return False
        if value is None or value.type != op.outs[0].type:
            return False
        if by_cost and not self._saves(op, list(new)):
            return False
        return self._replace(op, value, list(new))

    def _saves(self, op: Op, new: list[Op]) -> bool:
        """Whether new operators cost less than an operator and those that only it needs."""
        assert self.cost is not None
        read = {value for made in new for value in made.ins}
        gone, stack = {op}, [op]
        while stack:
            for value in stack.pop().ins:
                made = value.producer
                if made is None or made not in self.place or made in gone or len(made.outs) > 1:
                    continue
                if value not in read and not self.results[value] and gone.issuperset(
                    self.uses[value]
                ):  # fmt: skip
                    gone.add(made)
                    stack.append(made)
        return sum(map(self.cost, new)) < MARGIN * sum(map(self.cost, gone))

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
            self.uses.setdefault(value, Counter())[op] += 1

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
    forms: bool = False,
) -> None:  # fmt: skip
    """Apply every local rewrite, in the regions of control flow first, until none is left."""
    for op in graph.ops:
        for region in op.regions:
            simplify(region, env, allowed, cost, forms)
    Matcher(graph, env, allowed, cost, forms).run()


def known(value: Value) -> Array | None:
    """The numbers of a constant, which are made now."""
    return value.const.array if value.const is not None and value.is_const else None


def numbers(value: Value) -> Array:
    """The numbers of a constant, to compute with."""
    assert value.const is not None
    return value.const.array.astype(np.float64)


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
