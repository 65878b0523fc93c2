"""Candidates: an equal form beside what it replaces, each cut out with its neighbours.

What a form is worth depends on its surroundings: behind a SLICE a RESHAPE is a copy, between two
layers it is nothing. So both sides are graphs of their own, with the operators that make the
operands and those that read the results, and a judge such as the device's compiler says what each
of them takes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from tosaic.ir.graph import Array, Const, Graph, Op, Value
from tosaic.spec.dtypes import I8, I32, I48, SHAPE

if TYPE_CHECKING:
    from tosaic.rewrite.match import Matcher

_MOVES = {"RESHAPE", "SLICE", "TRANSPOSE", "CONCAT", "PAD", "TILE", "REVERSE", "IDENTITY"}
_THROUGH = _MOVES | {"RESCALE", "CLAMP", "TABLE", "CAST"}
_WIDE = (I32, I48)  # what lies between fused operators
_PRODUCTS = ("CONV2D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D", "CONV3D")
_NAMED = (*_PRODUCTS, "RESCALE")
_SCALE = {"multiplier": 1 << 30, "shift": 38}
_MOST = 96  # operators of a region
_LIGHT = 1 << 12  # elements, up to which a neighbour keeps its weights
_HEAVY = 1 << 14  # elements, beyond which weights are compared by their shape alone
_EMPTY = 0.5  # of weights, from which on it is zeros that a form has put there


@dataclass(frozen=True, slots=True)
class Figures:
    """What a graph takes on a device: cycles, and bytes of memory when most are in use.

    ``constants`` are those that lie in the same memory, all the time; elsewhere they are cheap.
    """

    cycles: int
    memory: int
    constants: int = 0

    def beats(self, other: Figures) -> bool:
        """Whether it is faster; weights in memory must be worth it, or saved elsewhere.

        Four bytes are worth a cycle: about what networks have of both.
        """
        saved, more = other.cycles - self.cycles, self.constants - other.constants
        return saved > 0 and (more < 4 * saved or more <= other.memory - self.memory)


Operands = Callable[[Op], Sequence[Value]]
Readers = Callable[[Value], Iterable[Op]]
Judge = Callable[[Sequence[Graph]], Sequence[Figures | None]]
"""What each of several graphs takes; None for one that the device does not take."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value that may take the place of an operator's result.

    ``new`` are the operators that make it, ``gone`` those that nothing needs then.
    """

    value: Value
    new: list[Op]
    gone: list[Op]


@dataclass(frozen=True, slots=True)
class Site:
    """An operator with the candidates for its result, and the region that they concern."""

    op: Op
    candidates: list[Candidate]
    region: list[Op]

    def graphs(self, m: Matcher) -> list[Graph]:
        """The region as it is, and with each candidate in place."""
        core, old = {op for c in self.candidates for op in c.gone}, self.op.outs[0]
        found = [cut(self.region, _ins, m.results, core)]
        for c in self.candidates:
            ops = [*(op for op in self.region if op not in c.gone), *c.new]
            given = {*m.results, c.value} if old in m.results else m.results
            found.append(cut(ops, partial(_swapped, old, c.value), given, {*c.new, *core}))
        return found


def _ins(op: Op) -> Sequence[Value]:
    return op.ins


def _swapped(old: Value, new: Value, op: Op) -> Sequence[Value]:
    return [new if v is old else v for v in op.ins]


def site(m: Matcher, op: Op, candidates: list[Candidate]) -> Site:
    """An operator, its candidates and their neighbours."""
    core = list(dict.fromkeys(o for c in candidates for o in c.gone))
    new = dict.fromkeys(o for c in candidates for o in c.new)
    border = [v for o in (*core, *new) for v in o.ins if v.producer not in new]
    near = neighbours(m.place, m.readers, core, [*border, *op.outs])
    return Site(op, candidates, near)


def best_of(at: Site, figures: Sequence[Figures | None]) -> Candidate | None:
    """The candidate that takes least; None where none is known to take less than what is there.

    ``figures`` are those of the region as it is and of all candidates, then the same with forms. A
    candidate may equal what forms make of the region without it: that may be the candidate.
    """
    count = len(at.candidates) + 1
    there, formed = figures[0], figures[count]
    if there is None:
        return None
    most = there.cycles if formed is None else min(there.cycles, formed.cycles)
    found = [
        (f.cycles, index % count - 1)
        for index, f in enumerate(figures)
        if index % count and f is not None and f.beats(there) and f.cycles <= most
    ]
    return at.candidates[min(found)[1]] if found else None


def judge_alike(
    judge: Judge, groups: Sequence[list[Graph]],
    grown: Callable[[list[Graph]], list[Graph]] = lambda group: group,
) -> list[list[Figures | None]]:  # fmt: skip
    """What the graphs of several groups take: of groups of one structure the first is asked for.

    Repeated blocks of a network differ in their numbers alone, on which a choice does not depend.
    ``grown`` gives the graphs that are judged of a group, which it may use up.
    """
    keys = [tuple(map(_structure, group)) for group in groups]
    firsts = dict(zip(reversed(keys), reversed(groups)))
    judged = {key: [(_structure(g), g) for g in grown(group)] for key, group in firsts.items()}
    graphs = {structure: g for group in judged.values() for structure, g in group}
    figures = dict(zip(graphs, judge(list(graphs.values()))))
    known = {key: [figures[structure] for structure, _ in group] for key, group in judged.items()}
    return [known[key] for key in keys]


def with_copies(graphs: Sequence[Graph]) -> list[Graph]:
    """Graphs, and each of them once more."""
    copies = [cut(g.ops, _ins, set(g.outputs), set(g.ops)) for g in graphs]
    return [*graphs, *copies]


def _structure(graph: Graph) -> Hashable:
    """Operators with attributes, shapes and who reads what: a graph but for its numbers.

    Of these there is what decides whether a rewrite applies: shapes, zeros, ones, zero points at
    the ends of types, scales that change nothing, and whether weights are thinned out.
    """
    numbers = {value: number for number, value in enumerate(graph.values())}

    def told(value: Value, operand: str = "") -> Hashable:
        if not value.is_const or value.const is None:
            return value.type, numbers[value]
        array = value.const.array
        if value.dtype is SHAPE:
            if operand == "start":  # but for channels, steps of a sequence are equally far
                array = np.append(array[:-1] > 0, array[-1:])
            return value.type, array.tobytes()
        if array.size > 1:
            return value.type, array.size > _LIGHT and np.count_nonzero(array) > _EMPTY * array.size
        one, ends = array.item(), value.dtype.range if value.dtype.is_int else ()
        return value.type, one if one in (ends if operand.endswith("_zp") else (0, 1)) else None

    ops = []
    for op in graph.ops:
        names = [o.name for o in op.defn.operands]
        names += names[-1:] * (len(op.ins) - len(names))
        kept = op.name == "RESCALE" and _is_unit(op)
        values = (*map(told, op.ins, names), *map(told, op.outs))
        ops.append((op.name, repr(op.attrs), kept, *values))
    return tuple(ops), tuple(numbers[value] for value in graph.outputs)


def made_for(value: Value, ops: Sequence[Op]) -> list[Op]:
    """Those of several operators that make a value."""
    needed, found = {value}, []
    for op in reversed(ops):
        if not needed.isdisjoint(op.outs):
            needed.update(op.ins)
            found.append(op)
    return found[::-1]


def needless(m: Matcher, op: Op, new: Iterable[Op]) -> list[Op]:
    """An operator and those that only it needs, once new ones are in its place."""
    read = {value for made in new for value in made.ins}
    gone, stack = {op: None}, [op]
    while stack:
        for value in stack.pop().ins:
            made = value.producer
            if made is None or made not in m.place or made in gone or len(made.outs) > 1:
                continue
            if value not in read and not m.results[value] and m.uses[value].keys() <= gone.keys():
                gone[made] = None
                stack.append(made)
    return list(gone)


def neighbours(
    place: Container[Op], readers: Readers, core: Iterable[Op], border: Iterable[Value]
) -> list[Op]:
    """Operators round values: through moves and functions up to what computes.

    Sums between two operators are followed to their ends: they would leave the region unfused.
    """
    found = dict.fromkeys(core)
    values = dict.fromkeys(v for v in border if not v.is_const)
    stack = [(value, back, True) for value in values for back in (True, False)]
    while stack and len(found) < _MOST:
        value, back, goes_on = stack.pop()
        for op in [value.producer] if back else readers(value):
            if op is None or op not in place or op in found:
                continue
            found[op] = None
            follows = goes_on and op.name in _THROUGH
            for v in op.ins:
                if v.dtype in _WIDE or (follows and back):
                    stack.append((v, True, follows and back))
            for v in op.outs:
                if v.dtype in _WIDE or (follows and not back):
                    stack.append((v, False, follows and not back))
    return list(found)


def cut(
    ops: Iterable[Op], ins_of: Operands, results: Container[Value], core: Container[Op]
) -> Graph:
    """Copies of operators as a graph; the weights of those outside of the core count for little."""
    graph, copies = Graph("region"), dict[Value, Value]()
    for op in in_order(ops, ins_of):
        for index, value in enumerate(ins_of(op)):
            if value not in copies:
                const = value.const
                if value.is_const and value is op.ins[index]:
                    const = _plain(op, index, len(graph.ops), op in core)
                copies[value] = Value(value.type, const=const, limits=value.limits)
                if not value.is_const:
                    copies[value].name = f"in{len(graph.inputs)}"
                    graph.inputs.append(copies[value])
        for value in op.outs:
            copies[value] = Value(value.type, limits=value.limits)
        ins, outs = [copies[v] for v in ins_of(op)], [copies[v] for v in op.outs]
        graph.ops.append(Op(op.defn, ins, outs, op.attrs, op.regions))
    read = {v for op in graph.ops for v in op.ins}
    for value, copy in copies.items():
        if copy.producer is not None and (copy not in read or value in results):
            copy.name = f"out{len(graph.outputs)}"
            graph.outputs.append(copy)
    return graph


def in_order(ops: Iterable[Op], ins_of: Operands) -> Iterator[Op]:
    """Operators after those that they read, otherwise as they are given."""
    left = dict.fromkeys(ops)
    while left:
        stack = [next(iter(left))]
        while stack:
            made = (v.producer for v in ins_of(stack[-1]))
            missing = next((op for op in made if op is not None and op in left), None)
            if missing is not None:
                stack.append(missing)
            else:
                yield stack[-1]
                del left[stack.pop()]


def _plain(op: Op, index: int, number: int, is_core: bool) -> Const | None:
    """A constant, or one that all layers of a shape share where a comparison is the same with it.

    So repeated blocks of a network are one graph to a judge. What becomes of the sums of a product
    does not depend on its bias or their scale, and weights that no form has thinned out take as
    long as others; scales that change nothing may be left out. ``number`` tells weights of one
    graph apart.
    """
    value, made = op.ins[index], op.ins[0].producer
    const, name = value.const, op.defn.operands[index].name if op.name in _NAMED else ""
    if name == "weight" and value.dtype is I8 and value.type.size > _LIGHT and const is not None:
        if not is_core:
            return Const(np.zeros(value.shape, np.int8))
        if value.type.size > _HEAVY and np.mean(const.array != 0) > _EMPTY:
            return Const(_weights(value.shape, number))
    if name == "bias" and value.type.size > 1:
        return Const(np.zeros(value.shape, value.dtype.array))
    is_behind = name in _SCALE and made is not None and made.name in _PRODUCTS
    if is_behind and op.attrs["scale32"] and not _is_unit(op):
        return Const(np.full(value.shape, _SCALE[name], value.dtype.array))
    return const


def _is_unit(rescale: Op) -> bool:
    """Whether all multipliers are 1, after their shifts."""
    multiplier, shift = (v.const for v in rescale.ins[1:3])
    if multiplier is None or shift is None:
        return False
    return bool(np.all(np.ldexp(multiplier.array, -shift.array.astype(np.int32)) == 1))


@lru_cache(64)
def _weights(shape: tuple[int, ...], number: int) -> Array:
    """Weights of a shape, spread as those of layers are."""
    draws = np.random.default_rng(number).integers(-31, 32, (4, *shape), np.int8)
    made: Array = draws.sum(0, dtype=np.int16).astype(np.int8)
    return made
