"""Merges axes that no operator tells apart, so that tensors of five axes and more have four.

A compiler may be made for four axes and get operators on more of them wrong in places. Most
operators keep the axes of their operands, so operators that are connected by such tensors are one
region, whose tensors get new shapes together: axes are merged where every operator of the region
treats the two as one, from the left until four are left. A RESHAPE at its border is all that is
new. Products of convolutions stay as they are with what is fused into them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations

from tosaic.errors import Unsupported
from tosaic.ir.build import Builder, make
from tosaic.ir.graph import Graph, Op, Value
from tosaic.rewrite.layout import UNARY
from tosaic.rewrite.match import Allowed, sizes
from tosaic.spec.dtypes import TensorType
from tosaic.spec.env import Env
from tosaic.spec.ops_elementwise import BROADCASTS

_REDUCTIONS = ("REDUCE_SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ALL", "REDUCE_ANY",
               "REDUCE_PRODUCT")  # fmt: skip
_MOVES = ("SLICE", "PAD", "TILE", "REVERSE")
_MEMBERS = frozenset({*BROADCASTS, *UNARY, *_REDUCTIONS, *_MOVES, "CONCAT"})
_FUSED = frozenset({"RESCALE", "CLAMP", "TABLE"})  # into the products before them
Groups = list[range]  # of axes that become one
Uses = Mapping[Value, Sequence[Op]]


def lower_ranks(graph: Graph, env: Env, allowed: Allowed | None = None, most: int = 4) -> None:
    """Give the tensors of each region the fewest axes, down to ``most``; what is refused stays."""
    for op in graph.ops:
        for region in op.regions:
            lower_ranks(region, env, allowed, most)
    for part in [part for region in _regions(graph, most) for part in _parts(region, most)]:
        for groups in part.groupings(graph.uses(), most):
            try:
                graph.ops, graph.outputs = _Lowered(graph, part.ops, groups, env, allowed).made()
                break
            except Unsupported:
                continue  # as a sum over the last axis may be


def _regions(graph: Graph, most: int) -> Iterator[list[Op]]:
    """Connected operators on tensors of more than ``most`` axes that keep their axes."""
    fused, parent = _behind_products(graph), dict[Op, Op]()

    def root(op: Op) -> Op:
        while parent[op] is not op:
            parent[op] = parent[parent[op]]
            op = parent[op]
        return op

    readers: dict[Value, Op] = {}
    for op in graph.ops:
        if op.name not in _MEMBERS or op in fused or op.outs[0].type.rank <= most:
            continue
        parent[op] = op
        for value in (*_data(op), *op.outs):
            if not value.is_const:  # a constant is made anew for each reader
                parent[root(readers.setdefault(value, op))] = root(op)
    found: dict[Op, list[Op]] = {}
    for op in parent:
        found.setdefault(root(op), []).append(op)
    yield from found.values()


def _behind_products(graph: Graph) -> set[Op]:
    """Operators that read the sums of a convolution over three axes, one after the other."""
    found = set[Op]()
    for op in graph.ops:
        made = op.ins[0].producer if op.ins else None
        if made is not None and op.name in _FUSED and (made.name == "CONV3D" or made in found):
            found.add(op)
    return found


def _data(op: Op) -> Sequence[Value]:
    """The operands that have the axes of the result."""
    if op.name == "CONCAT":
        return op.ins
    if op.name in BROADCASTS:
        return op.ins[: 2 if op.name == "MUL" else len(op.ins)]
    return op.ins[:1]


@dataclass(slots=True)
class _Part:
    """Operators whose tensors get new shapes together, and the runs of axes that each merges."""

    ops: list[Op]
    runs: set[range]

    def groupings(self, uses: Uses, most: int) -> list[Groups]:
        """Ways to merge axes, the best first.

        That is one in which tensors have the shape that others read or give them in, in which
        nothing is a batch, which is computed part by part, and in which most axes are left.
        """
        values = dict.fromkeys(v for op in self.ops for v in (*_data(op), *op.outs))
        largest = max(values, key=lambda value: value.type.size).shape
        shapes = [(v.shape, other) for v in values for other in _other_shapes(v, uses)]
        found = [groups for groups in _divisions(len(largest)) if self.runs.issuperset(groups)]
        lowest = max(most, min(map(len, found)))

        def worth(groups: Groups) -> tuple[int, bool, int]:
            shared = sum(_merged(shape, groups) == other for shape, other in shapes)
            batch = len(groups) >= most and _merged(largest, groups)[0] > 1
            return -shared, batch, -len(groups)

        return sorted((g for g in found if len(g) <= lowest < len(largest)), key=worth)


def _other_shapes(value: Value, uses: Uses) -> set[tuple[int, ...]]:
    """Those that a tensor is read in or given in."""
    found = {op.outs[0].shape for op in uses.get(value, ()) if op.name == "RESHAPE"}
    made = value.producer
    return found | ({made.ins[0].shape} if made is not None and made.name == "RESHAPE" else set())


def _merged(shape: Sequence[int], groups: Groups) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis] for axis in group) for group in groups)


def _parts(region: Sequence[Op], most: int) -> list[_Part]:
    """The region, or as few parts in a row as have ``most`` axes each."""
    found: list[_Part] = []
    for op in region:
        rank = op.outs[0].type.rank
        runs = {run for run in _runs(rank) if _is_one_axis(op, run)}
        shared = runs & found[-1].runs if found else set()
        if any(shared.issuperset(groups) for groups in _divisions(rank, most)):
            found[-1].ops.append(op)
            found[-1].runs = shared
        else:
            found.append(_Part([op], runs))
    return found


def _runs(rank: int) -> list[range]:
    return [range(start, end) for end in range(1, rank + 1) for start in range(end)]


@cache
def _divisions(rank: int, most: int = 99) -> list[Groups]:
    """All ways to part axes into so many runs or fewer."""
    ways = [w for n in range(min(rank, most)) for w in combinations(range(rank - 1, 0, -1), n)]
    return [[range(*ends) for ends in zip((0, *way[::-1]), (*way[::-1], rank))] for way in ways]


def _is_one_axis(op: Op, run: range) -> bool:
    """Whether an operator treats neighbouring axes as one."""
    result, operands = op.outs[0].shape, [v.shape for v in _data(op)]
    if len(run) == 1:
        return True
    live = [i for i in run if any(shape[i] > 1 for shape in (result, *operands))]
    if op.name in BROADCASTS:
        return all(
            all(shape[i] == result[i] for i in live) or all(shape[i] == 1 for i in live)
            for shape in operands
        )
    if op.name in ("SLICE", "PAD", "TILE"):  # of all but the first nothing is taken or added
        return all(operands[0][i] == result[i] for i in live[1:])
    if op.name in UNARY:
        by_channel = op.name == "RESCALE" and op.attrs["per_channel"] and len(result) - 1 in run
        return not by_channel or live in ([], [len(result) - 1])
    axis = int(op.attrs["axis"])
    return axis not in run or (live[:1] == [axis] and (op.name == "CONCAT" or len(live) == 1))


@dataclass(slots=True)
class _Lowered:
    """A graph whose region has merged axes."""

    graph: Graph
    region: Sequence[Op]
    groups: Groups
    env: Env
    allowed: Allowed | None
    new: dict[Value, Value] = field(default_factory=dict)  # tensors of the region, merged
    old: dict[Value, Value] = field(default_factory=dict)  # and in their own shape again
    read: list[tuple[Op, list[Value]]] = field(default_factory=list)  # what others read then

    def made(self) -> tuple[list[Op], list[Value]]:
        b = Builder(self.env, constraints=(self.allowed,) if self.allowed else ())
        members = set(self.region)
        for op in self.graph.ops:
            b.loc = op.loc
            if op in members:
                self._merge(b, op)
            elif any(value in self.new for value in op.ins):
                self._read(b, op)
            else:
                b.graph.ops.append(op)
        b.loc = None
        outputs = [self._whole(b, value) for value in self.graph.outputs]
        for op, ins in self.read:
            op.ins = ins
        return b.graph.ops, outputs

    def _merge(self, b: Builder, op: Op) -> None:
        count = len(_data(op))
        ins = [self._given(b, value) for value in op.ins[:count]]
        more, attrs = self._rest(b, op, count), dict(op.attrs)
        if "axis" in attrs:
            axis = int(attrs["axis"])
            attrs["axis"] = next(k for k, group in enumerate(self.groups) if axis in group)
        result = op.outs[0]
        kind = TensorType(result.dtype, _merged(result.shape, self.groups))
        made = make(op.defn, self.env, (*ins, *more), attrs, [kind], (), op.loc)
        b.add(made)
        (out,) = made.outs
        out.quant, out.limits, self.new[result] = result.quant, result.limits, out

    def _given(self, b: Builder, value: Value) -> Value:
        if value not in self.new:
            shape = _merged(value.shape, self.groups)
            if value.is_const:
                self.new[value] = b.remade(value, lambda a: a.reshape(shape), shape)
            else:
                self.new[value] = b.RESHAPE(value, b.shape(shape))
            self.new[value].quant = value.quant
        return self.new[value]

    def _rest(self, b: Builder, op: Op, count: int) -> Sequence[Value]:
        """The other operands: of moves, numbers for each axis, those of merged ones as one."""
        if op.name not in ("SLICE", "PAD", "TILE"):
            return op.ins[count:]
        given, result = op.ins[0].shape, op.outs[0].shape
        numbers = [sizes(value) for value in op.ins[count:] if value.dtype.name == "shape"]
        if None in numbers:
            raise Unsupported(f"{op.name} by sizes that are not known")
        if op.name == "TILE":
            times = [b // a for a, b in zip(given, result)]
            return [b.shape([math.prod(times[i] for i in group) for group in self.groups])]
        if op.name == "SLICE":
            starts = self._first(numbers[0] or [], given)
            return [b.shape(starts), b.shape(_merged(result, self.groups))]
        around = numbers[0] or []
        before, after = (self._first(around[side::2], given) for side in (0, 1))
        return [b.shape([n for pair in zip(before, after) for n in pair]), op.ins[-1]]

    def _first(self, numbers: Sequence[int], shape: Sequence[int]) -> list[int]:
        """Counts along axes as counts of elements along the merged ones."""
        return [
            sum(numbers[i] * math.prod(shape[j] for j in group if j > i) for i in group)
            for group in self.groups
        ]

    def _read(self, b: Builder, op: Op) -> None:
        """An operator outside of the region reads a tensor of it."""
        first = op.ins[0]
        if op.name == "RESHAPE" and first in self.new:
            self.read.append((op, [self.new[first], *op.ins[1:]]))
        else:
            self.read.append((op, [self._whole(b, value) for value in op.ins]))
        b.graph.ops.append(op)

    def _whole(self, b: Builder, value: Value) -> Value:
        """A tensor in its own shape, as it was called."""
        if value not in self.new or value.is_const or value.producer not in self.region:
            return value
        if value not in self.old:
            again = b.RESHAPE(self.new[value], b.shape(value.shape))
            again.quant, again.name = value.quant, value.name
            self.old[value] = again
        return self.old[value]
