"""Interval analysis of integer graphs: what each value can be, for all inputs of its type.

A value has bounds: the least and the greatest number that each of its elements can be. They are
arrays that broadcast to the value's shape, so that channels may differ, and the other files of this
folder compute them for every operator from those of its operands. An operator whose operands could
make it unpredictable by TOSA's rules is a finding; a graph without findings is defined for all
inputs.

Intervals alone know nothing of operands that depend on each other, as the mantissa S << clz(S)
does. Where they do not prove an operator, the analysis splits into cases: a value that reaches the
operator on several paths is cut into pieces, one for each octave and 1/64 of it, and what is
computed from it is bounded case by case. The first axis of all bounds counts the cases. That is
sound because the pieces cover everything the value can be, and in each case all operators are
bounded for every number of the piece.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.spec.dtypes import BOOL

ELEMENTS = 1 << 13  # of bounds, cases not counted: beyond that the ends of an axis are merged
CASES = 1 << 17  # elements of bounds with all of their cases
_SMALL = 1 << 12  # a constant of so many elements is bounded one by one
_DEEP, _TRIES = 48, 6  # operators that a case split looks back, and values that it tries
_FINE = 64  # pieces of an octave


Root = tuple[Value, tuple[object, ...]]
End = Any  # an int for all elements, or an int64 array [cases, *axes]: an axis of 1 is for all


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """The ends of every element: two whole numbers for all of them, or two arrays.

    Most values have one pair of ends, which whole numbers compute many times as fast as arrays do.
    ``root`` is the value whose pieces the cases are, and how its elements were moved since.
    """

    low: End
    high: End
    root: Root | None = None

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest number of all."""
        if self.is_one:
            return self.low, self.high
        return int(self.low.min()), int(self.high.max())

    @property
    def is_one(self) -> bool:
        return type(self.low) is int

    def arrays(self, rank: int) -> tuple[Array, Array]:
        """Both ends as arrays, in whatever form they are."""
        if not self.is_one:
            return self.low, self.high
        pair = np.array((self.low, self.high), np.int64).reshape(2, *(1,) * (rank + 1))
        return pair[0], pair[1]

    def moved(self, change: Callable[[Array], Array]) -> Bounds:
        """The same elements elsewhere: nothing changes where all are alike."""
        return self if self.is_one else paired(change(self.low), change(self.high), self.root)

    def over(self, *axes: int) -> Bounds:
        """The ends of all elements along some axes, of which 0 are the cases."""
        if self.is_one or all(self.low.shape[a] == 1 for a in axes):
            return self
        root = None if 0 in axes else self.root
        return paired(self.low.min(axes, keepdims=True), self.high.max(axes, keepdims=True), root)

    def merged(self) -> Bounds:
        """One pair of ends for all elements, case by case."""
        return self if self.is_one else self.over(*range(1, self.low.ndim))

    def joined(self, other: Bounds) -> Bounds:
        """What either can be."""
        a, b = same_cases(self, other)
        return paired(lesser(a.low, b.low), greater(a.high, b.high), a.root or b.root)

    def within(self, low: int, high: int) -> Bounds:
        """What is left of them in an interval; one pair of ends where that is all of it."""
        least, most = self.ends
        if low <= least and most <= high:
            return self
        bottom, top = (lesser(greater(end, low), high) for end in (self.low, self.high))
        if least <= low and most >= high and np.all((bottom == low) & (top == high)):
            return Bounds(low, high)
        return Bounds(bottom, top, self.root)

    def trimmed(self) -> Bounds:
        """With axes merged, the last one last, until there are few enough elements."""
        made, axis = self, 1
        while not made.is_one and made.low.size > min(CASES, len(made.low) * ELEMENTS):
            if axis == made.low.ndim:
                return made.over(0)
            made, axis = made.over(axis), axis + 1
        return made


def paired(low: End, high: End, root: Root | None = None) -> Bounds:
    """Bounds of two ends, which are arrays both or whole numbers both."""
    one, other = type(low) is int, type(high) is int
    if not (one and other):
        if one or other or low.shape != high.shape:
            low, high = np.broadcast_arrays(low, high)
        if low.size == 1:
            low, high, root = low.item(), high.item(), None
    return Bounds(low, high, root)


def lesser(a: End, b: End) -> End:
    return (a if a < b else b) if type(a) is int is type(b) else np.minimum(a, b)


def greater(a: End, b: End) -> End:
    return (a if a > b else b) if type(a) is int is type(b) else np.maximum(a, b)


def where(condition: Any, a: End, b: End) -> End:
    return (a if condition else b) if type(condition) is bool else np.where(condition, a, b)


def same_cases(*given: Bounds) -> list[Bounds]:
    """Bounds of one case split at most: the cases of all others are merged."""
    roots = [b.root for b in given if b.root is not None]
    if not roots:
        return list(given)
    return [b if b.root is None or b.root == roots[-1] else b.over(0) for b in given]


def constant_number(value: Value) -> int:
    """The one number of a constant operand."""
    assert value.const is not None
    return int(value.const.array.item(0))


def whole(value: Value) -> Bounds:
    """All that a type holds."""
    return Bounds(*value.dtype.range)


@dataclass(frozen=True, slots=True)
class Finding:
    """An operator that was not proved to be predictable, and what could happen."""

    op: Op
    reason: str

    def __str__(self) -> str:
        where = f" ({self.op.loc})" if self.op.loc else ""
        return f"{self.op.name}{where}: {self.reason}"


Rule = Callable[["Intervals", Op], list[Bounds]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the function that bounds the results of operators."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


@dataclass(slots=True)
class Intervals:
    """The bounds of the values of a graph, computed as they are asked for, and the findings.

    ``inputs`` are the ends of graph inputs that do not have the whole range of their type. Where
    ``is_rough``, large constants are bounded by their type; without ``splits``, there are no cases.
    What a quick analysis ``keeps`` on the values of a graph need not be computed again after exact
    rewrites, for which they stay what they are.
    """

    inputs: Mapping[Value, tuple[int, int]] = field(default_factory=dict)
    is_rough: bool = False
    splits: bool = True
    keeps: bool = False
    findings: dict[Op, Finding] = field(default_factory=dict)
    _known: dict[Value, Bounds] = field(default_factory=dict)
    _problem: str | None = None

    def of(self, value: Value) -> Bounds:
        """The bounds of an integer or bool; its type's range unless an operator tells more."""
        found = self._known.get(value)
        if found is None:
            if value.is_const:
                self._known[value] = self._constant(value)
            elif value.producer is None:
                self.bind(value, None)
            else:
                self._compute(value.producer)
            found = self._known[value]
        return found

    def bind(self, value: Value, given: Bounds | None) -> None:
        """What a graph input can be: what is given, or what its type holds."""
        if given is None:
            given = Bounds(*(self.inputs.get(value) or value.limits or value.dtype.range))
        self._known[value] = given

    def forget(self, value: Value) -> None:
        """Bound a value again when it is next asked for: more was proved of it."""
        self._known.pop(value, None)

    def require(self, holds: bool | np.bool_, reason: str) -> bool:
        """Note what an operator could do wrong, unless it cannot."""
        if not holds and self._problem is None:
            self._problem = reason
        return bool(holds)

    def _constant(self, value: Value) -> Bounds:
        assert value.const is not None
        size = value.type.size
        if self.is_rough and size > _SMALL:
            return whole(value)
        if not size:
            return Bounds(0, 0)
        array = value.const.array
        if 1 < size <= _SMALL:
            wide = array.astype(np.int64)[np.newaxis]
            return Bounds(wide, wide)
        return Bounds(int(array.min()), int(array.max()))

    def _compute(self, op: Op) -> None:
        """Bound an operator, those before it first, without recursion."""
        stack = [op]
        while stack:
            top = stack[-1]
            waiting = [
                v.producer for v in top.ins
                if v.producer is not None and v not in self._known and not v.is_const
                and tracked(v)
            ]  # fmt: skip
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            if any(v not in self._known for v in top.outs):
                self.visit(top)

    def visit(self, op: Op) -> None:
        """Bound the results of an operator; note it where nothing proves it."""
        problem = self._apply(op)
        if problem is not None and not (self.splits and self._split(op)):
            self.findings[op] = Finding(op, problem)

    def _apply(self, op: Op) -> str | None:
        before, self._problem = self._problem, None
        function = RULES.get(op.name)
        if function is None:
            self.require(not any(tracked(v) for v in op.outs), "it is not analysed")
            made = []
        else:
            made = function(self, op)
            if op.name not in POINTWISE:
                made = [_moved(found, op) for found in made]
        for value, found in zip(op.outs, made):
            if not tracked(value):
                continue
            found = found.within(*(value.limits or value.dtype.range)).trimmed()
            self._known[value] = found
            if self.keeps:
                value.bounds = found
        for value in op.outs[len(made) :]:
            if tracked(value):
                self._known[value] = Bounds(*(value.limits or value.dtype.range))
        problem, self._problem = self._problem, before
        return problem

    def _split(self, op: Op) -> bool:
        """Whether the cases of one value before an operator prove it; they are kept then."""
        cone, candidates = _cone(op)
        for value in candidates[:_TRIES]:
            before = {v: self._known.get(v) for o in cone for v in o.outs}
            root = self.of(value).over(0)
            pieces = _pieces(*root.ends)
            if len(pieces[0]) < 2:
                continue
            shape = (-1, *(1,) * value.type.rank)
            low, high = (end.reshape(shape) for end in pieces)
            before[value] = self._known[value]
            self._known[value] = Bounds(low, high, (value, ()))
            reached = {value}
            problem: str | None = None
            for inner in cone:
                if reached.intersection(inner.ins):
                    reached.update(inner.outs)
                    problem = self._apply(inner)
                    if inner is op:
                        break
                    if problem is None:
                        self.findings.pop(inner, None)
            if problem is None:
                return True
            self._known.update({v: b for v, b in before.items() if b is not None})
        return False


def quick(graph: Graph | None = None) -> Intervals:
    """An analysis without large constants and cases, with what values keep of an earlier one."""
    made = Intervals(is_rough=True, splits=False, keeps=True)
    for op in () if graph is None else graph.ops:
        made._known.update((v, v.bounds) for v in op.outs if v.bounds is not None)
    return made


def tracked(value: Value) -> bool:
    """Whether a value has integers to bound."""
    kind = value.type.dtype
    return kind is BOOL or kind.is_int


def _moved(found: Bounds, op: Op) -> Bounds:
    """Bounds behind an operator that is not element by element: only some keep cases apart.

    Results of two operands of one shape that are moved alike still belong together.
    """
    if found.is_one:
        return found
    if op.name not in MOVES or found.root is None:
        return found.over(0)
    value, path = found.root
    how = (op.name, op.ins[0].shape, op.outs[0].shape, op.attrs.get("perms"))
    return Bounds(found.low, found.high, (value, (*path, how)))


MOVES = frozenset(("RESHAPE", "TRANSPOSE"))
# Element by element of operands that broadcast: every path from a value to a result leads from the
# same element of it, so that cases stay together. All other operators merge them.
POINTWISE = frozenset((
    "ADD", "SUB", "MUL", "ABS", "NEGATE", "CLZ", "CLAMP", "RESCALE", "TABLE", "MAXIMUM", "MINIMUM",
    "LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT", "ARITHMETIC_RIGHT_SHIFT", "IDENTITY", "CAST",
    "SELECT", "GREATER", "GREATER_EQUAL", "EQUAL", "BITWISE_AND", "BITWISE_OR", "BITWISE_XOR",
    "BITWISE_NOT", "INTDIV", "LOGICAL_NOT", "LOGICAL_AND", "LOGICAL_OR",
))  # fmt: skip


def _cone(op: Op) -> tuple[list[Op], list[Value]]:
    """The operators that an operator computes from, element by element, in order, and itself.

    Beside them the values that several of them read, or one of them twice: the nearest first.
    """
    near = {op: None}
    queue, reads = [op], dict[Value, int]()
    for reader in queue:
        for value in reader.ins:
            made = value.producer
            if value.is_const or not tracked(value):
                continue
            reads[value] = reads.get(value, 0) + 1
            if made is None or made in near or len(near) == _DEEP:
                continue
            if made.name in POINTWISE or made.name in MOVES:
                near[made] = None
                queue.append(made)
    order: dict[Op, None] = {}
    stack = [op]
    while stack:
        top = stack[-1]
        made_by = (v.producer for v in top.ins)
        before = [p for p in made_by if p is not None and p in near and p not in order]
        if before and top not in order:
            stack.extend(before)
        else:
            order[stack.pop()] = None
    return list(order), [v for v, count in reads.items() if count > 1 and v.dtype.bits > 8]


def _edges() -> Array:
    whole = np.arange(2 * _FINE)
    octaves = np.arange(_FINE, 2 * _FINE)[np.newaxis] << np.arange(1, 26)[:, np.newaxis]
    edges: Array = np.concatenate([whole, octaves.reshape(-1)])
    return edges[edges < 1 << 31]


_EDGES = np.unique(np.concatenate([1 - _edges(), _edges()]))


def _pieces(low: int, high: int) -> tuple[Array, Array]:
    """An interval cut at the edges of octaves and of the parts of these, negatives in the same."""
    inside = _EDGES[np.searchsorted(_EDGES, low, "right") : np.searchsorted(_EDGES, high, "right")]
    starts = np.concatenate([[low], inside]).astype(np.int64)
    ends = np.concatenate([inside - 1, [high]]).astype(np.int64)
    return starts, ends


def analysed(graph: Graph, inputs: Mapping[Value, tuple[int, int]] | None = None) -> Intervals:
    """The bounds of all integers of a graph, and which of its operators are not proved."""
    rough = Intervals(inputs or {}, is_rough=True)  # large constants seldom matter
    run_graph(rough, graph)
    if all(op.name in ("GATHER", "SCATTER") for op in rough.findings):  # of indices, not weights
        return rough
    made = Intervals(inputs or {})
    for op in rough.findings:
        made._compute(op)
    made.findings = {op: made.findings[op] for op in rough.findings if op in made.findings}
    return made


def run_graph(intervals: Intervals, graph: Graph) -> None:
    """Bound the operators of a graph in order; its inputs have their bounds or get them."""
    for op in graph.ops:
        intervals.visit(op)
