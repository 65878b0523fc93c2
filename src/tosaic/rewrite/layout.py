"""Sinks TRANSPOSE through the graph until they cancel or fold into constants.

One pass in order. A value that is a transposition of another is only noted as such; an operator
that can work on the untransposed value does, and its result is noted likewise. What cannot asks
for the transposed value, which is then made, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from tosaic.errors import Unsupported
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Op, Quant, Value
from tosaic.ir.traits import PLAIN, Traits
from tosaic.rewrite.match import Allowed, Cost, remove_dead
from tosaic.spec.env import Env
from tosaic.spec.ops_elementwise import BROADCASTS

Perms = tuple[int, ...]
UNARY = {
    "CLAMP", "ERF", "SIGMOID", "TANH", "ABS", "BITWISE_NOT", "CEIL", "CLZ", "COS", "EXP", "FLOOR",
    "LOG", "LOGICAL_NOT", "RECIPROCAL", "RSQRT", "SIN", "CAST", "IDENTITY", "TABLE", "NEGATE",
    "RESCALE",
}  # fmt: skip
_SUMS = ("CONV2D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D", "CONV3D", "MATMUL")
_REDUCE = {
    "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PRODUCT", "REDUCE_SUM",
    "REVERSE",
}  # fmt: skip


def sink_transposes(
    graph: Graph, env: Env, allowed: Allowed | None = None, cost: Cost | None = None,
    traits: Traits = PLAIN,
) -> list[Graph]:  # fmt: skip
    """The graph with fewer transpositions, or as many; the given one is left alone.

    Where elementwise operators idle on narrow channels, none sinks past one that becomes narrow by
    that, unless fewer transpositions are then left and the whole costs less.

    The transposition of a value that several operators read sinks through each of them: often
    all cancel then. Where several of them end in the same one, the second try has it made early,
    once. Of an operator between values of two layouts, the third try turns the one that is not
    transposed. The fourth leaves all transpositions of what several read where they are. The last
    makes only the part of a transposition that a reshape needs, as in a channel shuffle.

    The fewest transpositions come first; behind them the graph that costs least, if it is another.
    """
    if not any(op.name == "TRANSPOSE" for op in graph.ops):
        return [graph]
    uses = Counter([*graph.outputs, *(v for op in graph.ops for v in op.ins)])
    shared = {v for v, count in uses.items() if count > 1}
    found, stopped = _attempts(graph, env, allowed, shared, traits.narrow_channels)
    best = min(found, key=_moved)
    if cost is None:
        return [best]
    if stopped and _moved(best)[0]:
        others, _ = _attempts(graph, env, allowed, shared, 0)
        other = min(others, key=_moved)
        if _moved(other)[0] < _moved(best)[0] and _total(other, cost) < _total(best, cost):
            best = other
        found += others
    cheap = min(found, key=lambda g: _total(g, cost))
    return [best] if cheap is best else [best, cheap]


def _attempts(
    graph: Graph, env: Env, allowed: Allowed | None, shared: set[Value], narrow: int
) -> tuple[list[Graph], bool]:
    """The graph and what it becomes, and whether narrow channels have stopped a transposition."""
    sinker = partial(_Sinker, graph, env, allowed, shared, narrow)
    tried = [sinker()]
    found = [graph, tried[0].attempt()]
    if _moved(found[-1])[0] > 1:
        early = tried[0].demanded()
        others = [sinker(early=early)] if early else []
        others += [sinker(bold=True), sinker(fixed=shared), sinker(within=True)]
        found += [other.attempt() for other in others]
        tried += others
    return found, any(each.stopped for each in tried)


def _total(graph: Graph, cost: Cost) -> float:
    return sum(cost(op) for op in graph.ops)


def _moved(graph: Graph) -> tuple[int, int]:
    """Transpositions, and the elements that they move."""
    moved = [op.outs[0].type.size for op in graph.ops if op.name == "TRANSPOSE"]
    return len(moved), sum(moved)


def inverse(perms: Perms) -> Perms:
    return tuple(sorted(range(len(perms)), key=perms.__getitem__))


def _moves_none(shape: Sequence[int], perms: Perms) -> bool:
    """Whether a transposition leaves every element where it is in memory."""
    moved = [p for p in perms if shape[p] != 1]
    return moved == sorted(moved)


def regrouped(shape: Sequence[int], perms: Perms, wanted: Sequence[int]) -> Perms | None:
    """How to reshape first and transpose later, or None.

    For a reshape to ``wanted`` of the transposition of a value of that shape, the result is the
    axes of ``wanted`` in the order in which a reshape of the value itself has them.
    """
    groups = groups_of([shape[p] for p in perms], wanted)
    if groups is None:
        return None
    places = [axis for axis, size in enumerate(shape) if size != 1]
    ranked = []
    for ins, outs in groups:
        found = [places.index(perms[axis]) for axis in ins]
        start = found[0] if found else -1
        if found and found != list(range(start, start + len(found))):
            return None
        ranked.append((start, outs))
    return tuple(axis for _, outs in sorted(ranked) for axis in outs)


def within_groups(shape: Sequence[int], perms: Perms, wanted: Sequence[int]) -> Perms | None:
    """The part of a transposition that a reshape to ``wanted`` needs at least, or None.

    It puts the axes that the reshape merges next to one another, and leaves the rest as it is: of
    channels in groups, the groups change places, and the channels stay last.
    """
    groups = groups_of([shape[p] for p in perms], wanted)
    if groups is None:
        return None
    merged = [[perms[axis] for axis in ins] for ins, _ in groups if ins]
    single = [axis for axis, size in enumerate(shape) if size == 1]
    return (*single, *(axis for group in sorted(merged, key=min) for axis in group))


def groups_of(
    shape: Sequence[int], wanted: Sequence[int]
) -> list[tuple[list[int], list[int]]] | None:
    """Axes that a reshape turns into one another; axes of one element go with those before."""
    groups: list[tuple[list[int], list[int]]] = [([], [])]
    ins = [axis for axis, size in enumerate(shape) if size != 1]
    left = right = 1
    for axis, size in enumerate(wanted):
        if size != 1 and left == right:
            groups.append(([], []))
            left = right = 1
        groups[-1][1].append(axis)
        right *= size
        while left < right and ins:
            groups[-1][0].append(ins[0])
            left *= shape[ins.pop(0)]
        if left % right:
            return None
    return groups if left == right and not ins else None


class _Sinker:
    def __init__(
        self,
        graph: Graph,
        env: Env,
        allowed: Allowed | None,
        shared: Collection[Value],
        narrow: int = 0,
        early: Mapping[Value, Perms] = MappingProxyType({}),
        fixed: Collection[Value] = (),
        bold: bool = False,
        within: bool = False,
    ) -> None:
        self.graph, self.shared, self.bold, self.within = graph, shared, bold, within
        self.early, self.fixed, self.narrow = early, fixed, narrow
        self.stopped = False  # whether narrow channels have kept a transposition where it was
        self.existing: dict[tuple[Value, Perms], Value] = {}  # transpositions that were made
        new = Graph(graph.name, list(graph.inputs), version=graph.version)
        self.b = Builder(env, new, (allowed,) if allowed else ())
        self.base: dict[Value, tuple[Value, Perms]] = {}  # an old value -> what it transposes
        self.made: dict[Value, Value] = {v: v for v in graph.inputs}
        self.nearest: dict[Value, Value] = {}  # an old value -> the shared one it comes from
        # What transpositions behind a shared value did to the axes that its base had.
        self.demands: dict[Value, Counter[Perms]] = {}

    def attempt(self) -> Graph:
        """The new graph; the old one where the target has no transposition that it needs."""
        try:
            return remove_dead(self.run())
        except Unsupported:
            return self.graph

    def demanded(self) -> dict[Value, Perms]:
        """Shared values behind which one transposition was made several times."""
        best = {value: demands.most_common(1)[0] for value, demands in self.demands.items()}
        return {value: perms for value, (perms, count) in best.items() if count > 1}

    def descend(self, op: Op) -> None:
        """Note which shared value a transposed result comes from; transpose it if it is time."""
        result = op.outs[0]
        if result in self.early:
            order, (value, perms) = self.early[result], self.base[result]
            if len(order) == len(perms):
                transposed = self.transposed(value, order)
                del self.base[result]
                self.note(result, transposed, tuple(order.index(p) for p in perms))
        above = next((self.nearest[v] for v in op.ins if v in self.nearest), None)
        if result in self.shared:
            self.nearest[result] = result
        elif above is not None:
            self.nearest[result] = above

    def run(self) -> Graph:
        for op in self.graph.ops:
            self.b.loc = op.loc
            if op.name == "TRANSPOSE":
                value, perms = self.seen(op.ins[0])
                self.note(op.outs[0], value, tuple(perms[p] for p in op.attrs["perms"]))
            elif op.name == "RESHAPE":
                self.reshape(op)
            elif not self.sunk(op):
                self.keep(op)
            if op.outs and op.outs[0] in self.base:
                self.descend(op)
        self.b.output(*(self.whole(v) for v in self.graph.outputs))
        return self.b.graph

    def seen(self, value: Value) -> tuple[Value, Perms]:
        """The value as a transposition of one in the new graph."""
        if value in self.base:
            return self.base[value]
        return self.made.get(value, value), tuple(range(value.type.rank))

    def note(self, old: Value, value: Value, perms: Perms) -> None:
        if perms == tuple(range(len(perms))):
            self.made[old] = value
        else:
            self.base[old] = value, perms

    def whole(self, old: Value) -> Value:
        """The value itself, transposed now if it has to be."""
        if old not in self.made:
            if old not in self.base:
                return old  # a constant
            self.made[old] = self.transposed(*self.base[old])
            if old in self.nearest:
                perms = self.base[old][1]
                self.demands.setdefault(self.nearest[old], Counter())[perms] += 1
            if not self.made[old].name:
                _name(old, self.made[old])
        return self.made[old]

    def transposed(self, value: Value, perms: Perms) -> Value:
        """A transposition, merged with one before it, even if a reshape is between them."""
        shape = tuple(value.shape[p] for p in perms)
        if value.is_const:
            quant = _permuted(value.quant, perms)
            return self.b.remade(value, lambda a: a.transpose(perms), shape, quant=quant)
        if _moves_none(value.shape, perms):
            return self.reshaped(value, shape)
        between = value.producer
        if between is not None and between.name == "RESHAPE":
            inner = between.ins[0]
            order = regrouped(shape, inverse(perms), inner.shape)
            if order and inner.producer is not None and inner.producer.name == "TRANSPOSE":
                first = inner.producer.attrs["perms"]
                merged = tuple(first[axis] for axis in order)
                return self.reshaped(self.transposed(inner.producer.ins[0], merged), shape)
        made = self.b.TRANSPOSE(value, perms=perms)
        self.existing[value, perms] = made
        return made

    def transposed_too(self, value: Value, perms: Perms) -> Value | None:
        """A transposition that costs nothing more, or that this try is there to make."""
        if value.is_const or _moves_none(value.shape, perms) or self.bold:
            return self.existing.get((value, perms)) or self.transposed(value, perms)
        return self.existing.get((value, perms))

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """The same elements in another shape, from where they were last computed."""
        if value.shape == tuple(shape):
            return value
        while value.producer is not None and value.producer.name == "RESHAPE":
            value = value.producer.ins[0]
        if value.shape == tuple(shape):
            return value
        return self.b.RESHAPE(value, self.b.shape(shape))

    def reshape(self, op: Op) -> None:
        """Reshape the untransposed value, if no group of axes is torn apart by that."""
        old, result = op.ins[0], op.outs[0]
        value, perms = self.seen(old)
        order = None if old in self.fixed else regrouped(value.shape, perms, result.shape)
        if order is None and self.within and old not in self.fixed:
            inner = within_groups(value.shape, perms, result.shape)
            if inner is not None:
                value = self.existing.get((value, inner)) or self.transposed(value, inner)
                perms = tuple(inner.index(p) for p in perms)
                order = regrouped(value.shape, perms, result.shape)
        if order is None:
            value, order = self.whole(old), tuple(range(result.type.rank))
        shape = [result.shape[axis] for axis in order]
        made = self.reshaped(value, shape)
        if made.name and result in self.graph.outputs:  # an output has a name of its own
            made = self.b.RESHAPE(made, self.b.shape(shape))
        if not made.name:
            _name(result, made)
            made.quant = _permuted(result.quant, order)
        self.note(result, made, inverse(order))

    def keep(self, op: Op) -> None:
        """The operator as it was: its operands are, though others may make them."""
        results = [
            Value(v.type, v.name, v.const, v.quant, v.loc, v.limits, v.bounds) for v in op.outs
        ]
        ins = [self.whole(v) for v in op.ins]
        self.b.add(Op(op.defn, ins, results, op.attrs, op.regions, op.loc))
        self.made.update(zip(op.outs, results))

    def sunk(self, op: Op) -> bool:
        """Emit the operator on untransposed operands, if it has such a form."""
        rule = _RULES.get(op.name)
        movable = [v for v in op.ins if v in self.base and v not in self.fixed]
        if rule is None or not movable or len(movable) < sum(v in self.base for v in op.ins):
            return False
        perms = self.base[max(movable, key=lambda v: v.type.size)][1]
        if self.narrows(op, perms):
            self.stopped = True
            return False
        try:
            form = rule(self, op, perms)
            if form is None:
                return False
            ins, attrs = form
            kinds = [v.dtype for v in op.outs]  # shapes are those of turned operands
            result = self.b.op(op.name, *ins, out=kinds, loc=op.loc, **{**op.attrs, **attrs})
        except Unsupported:
            return False
        if op.name == "ARGMAX":
            perms = _without(perms, op.attrs["axis"])
        result.quant, result.loc = _permuted(op.outs[0].quant, inverse(perms)), op.outs[0].loc
        result.limits = op.outs[0].limits
        self.note(op.outs[0], result, perms)
        return True

    def narrows(self, op: Op, perms: Perms) -> bool:
        """Whether an operator would get few channels for many by that."""
        result, made = op.outs[0], self.seen(op.ins[0])[0].producer
        if not self.narrow or result.type.rank != len(perms):
            return False
        if op.name in UNARY and made is not None and made.name in ("RESCALE", *_SUMS):
            return False  # part of what makes the sums
        channels = result.shape[inverse(perms)[-1]]
        return channels < self.narrow <= result.shape[-1]


Form = tuple[list[Value], dict[str, Any]] | None
_RULES: dict[str, Callable[[_Sinker, Op, Perms], Form]] = {}


def _unary(s: _Sinker, op: Op, perms: Perms) -> Form:
    last = len(perms) - 1
    if op.attrs.get("per_channel") and perms[last] != last:
        return None
    return [s.seen(op.ins[0])[0], *op.ins[1:]], {}


def _pairwise(s: _Sinker, op: Op, perms: Perms) -> Form:
    """Every operand is transposed alike, or can be at no cost."""
    ins, back = [], inverse(perms)
    for index, old in enumerate(op.ins):
        if op.name == "MUL" and index == 2:
            ins.append(old)
            continue
        value, given = s.seen(old)
        left = tuple(given[p] for p in back)
        transposed = s.transposed_too(value, left)
        if transposed is None:
            return None
        ins.append(transposed)
    return ins, {}


def _reduce(s: _Sinker, op: Op, perms: Perms) -> Form:
    return [s.seen(op.ins[0])[0]], {"axis": perms[op.attrs["axis"]]}


def _without(perms: Perms, axis: int) -> Perms:
    """A transposition of what is left when an axis of its result is gone."""
    gone = perms[axis]
    return tuple(p - (p > gone) for p in perms if p != gone)


def _concat(s: _Sinker, op: Op, perms: Perms) -> Form:
    form = _pairwise(s, op, perms)
    return form and (form[0], {"axis": perms[op.attrs["axis"]]})


def _sizes(value: Value) -> list[int]:
    if value.const is None:
        raise Unsupported("the sizes are not known")
    return [int(n) for n in value.const.array]


def _slice(s: _Sinker, op: Op, perms: Perms) -> Form:
    order = inverse(perms)
    lists = [[_sizes(v)[i] for i in order] for v in op.ins[1:]]
    return [s.seen(op.ins[0])[0], *(s.b.shape(sizes) for sizes in lists)], {}


def _pad(s: _Sinker, op: Op, perms: Perms) -> Form:
    padding, order = _sizes(op.ins[1]), inverse(perms)
    transposed = [n for i in order for n in padding[2 * i : 2 * i + 2]]
    return [s.seen(op.ins[0])[0], s.b.shape(transposed), op.ins[2]], {}


_RULES.update(dict.fromkeys(UNARY, _unary))
_RULES.update(dict.fromkeys(BROADCASTS, _pairwise))
_RULES.update(dict.fromkeys(_REDUCE, _reduce))
_RULES.update(ARGMAX=_reduce, CONCAT=_concat, SLICE=_slice, TILE=_slice, PAD=_pad)


def _permuted(quant: Quant | None, perms: Perms) -> Quant | None:
    if quant is None or quant.axis is None:
        return quant
    return Quant(quant.scale, quant.zero_point, perms.index(quant.axis))


def _name(old: Value, new: Value) -> None:
    new.name, new.quant, new.loc, new.limits = old.name, old.quant, old.loc, old.limits
