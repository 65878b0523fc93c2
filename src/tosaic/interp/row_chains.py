"""Chains of row-local operators, a block of rows at a time, so that what they compute stays cached.

An operator is row-local if row i of its result, the elements along the last axis, follows from row
i of its operands: elementwise operators, reductions and cuts along the last axis, reshapes that
keep rows. Softmax and norms are such chains. Their kernels are those of single operators, which
get tensors of the same rank with fewer rows.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tosaic.errors import Unpredictable
from tosaic.interp.fuse import Group
from tosaic.interp.kernel import KERNELS, TORCH, Context, Run, constant
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec.dtypes import I8, I16

# Elements of a block for each thread: few enough for the caches, many beside a kernel's start.
BLOCK = 1 << 18
# The largest value of a chain from which blocks are worth their loop.
LEAST = 1 << 16
# How many operands are data; all others have to be constants.
_DATA = {
    **dict.fromkeys(("RESCALE", "TABLE", "NEGATE", "SLICE", "RESHAPE"), 1),
    **dict.fromkeys(("CLAMP", "CAST", "ABS", "CLZ", "BITWISE_NOT", "LOGICAL_NOT"), 1),
    **dict.fromkeys(("REDUCE_SUM", "REDUCE_MAX", "REDUCE_MIN"), 1),
    **dict.fromkeys(("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "INTDIV"), 2),
    **dict.fromkeys(("ARITHMETIC_RIGHT_SHIFT", "LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT"), 2),
    **dict.fromkeys(("BITWISE_AND", "BITWISE_OR", "BITWISE_XOR"), 2),
    **dict.fromkeys(("LOGICAL_AND", "LOGICAL_OR", "LOGICAL_XOR"), 2),
    **dict.fromkeys(("EQUAL", "GREATER", "GREATER_EQUAL"), 2),
    "SELECT": 3,
}
UNARY = {"RESCALE", "TABLE", "CLAMP", "CAST", "ABS", "NEGATE"}


def rows_of(op: Op) -> int:
    """The number of rows of a row-local operator on integers; 0 for all others."""
    count = _DATA.get(op.name)
    if count is None or len(op.outs) != 1:
        return 0
    out, data = op.outs[0], op.ins[:count]
    if any(v.dtype.is_float or v.dtype not in TORCH or v.type.rank < 2 for v in (out, *data)):
        return 0
    if any(not v.is_const for v in op.ins[count:]) or not all(out.shape):
        return 0
    rows = math.prod(out.shape[:-1])
    return rows if _keeps_rows(op, data, rows) else 0


def _keeps_rows(op: Op, data: Sequence[Value], rows: int) -> bool:
    out, lead = op.outs[0], op.outs[0].shape[:-1]
    if op.name == "RESHAPE":
        return data[0].shape[-1] == out.shape[-1]
    if op.name.startswith("REDUCE") and op.attrs["axis"] != out.type.rank - 1:
        return False
    if op.name in ("SLICE", "REDUCE_SUM", "REDUCE_MAX", "REDUCE_MIN"):
        return data[0].shape[:-1] == lead
    # An operand may have one row for all.
    return all(v.shape[:-1] == lead or math.prod(v.shape[:-1]) == 1 for v in data)


def in_places(graph: Graph, taken: Mapping[Op, Group]) -> list[Group]:
    """All operators in the order of the graph, those in ``taken`` with their groups."""
    order = (taken.get(op, Group("", (op,))) for op in graph.ops)
    return [group for op, group in zip(graph.ops, order) if group.ops[-1] is op]


def row_chains(graph: Graph, taken: Mapping[Op, Group]) -> list[Group]:
    """All operators in an order in which they can run; ``taken`` have groups already.

    A chain has a level: one more than those of the operators that it reads from, of its own rows
    excepted. So no chain can depend on itself by way of others.
    """
    small = all(v.type.size < LEAST for op in graph.ops for v in op.outs)
    if small or any(not op.outs or op.name.startswith("VARIABLE") for op in graph.ops):
        return in_places(graph, taken)  # what has an effect beside its result keeps its place
    if not any(op not in taken and op.outs[0].type.size >= LEAST for op in graph.ops):
        return in_places(graph, taken)
    whole = {op: group.ops for op, group in taken.items() if len(group.ops) > 1}
    rows = {op: 0 if op in taken else rows_of(op) for op in graph.ops}
    level: dict[Op, int] = {}
    union: dict[Op, Op] = {op: op for op in graph.ops}

    def root(op: Op) -> Op:
        while union[op] is not op:
            union[op] = op = union[union[op]]
        return op

    for op in graph.ops:
        if op in whole and op is not whole[op][-1]:
            continue  # with the last of its group
        own = [v.producer for member in whole.get(op, (op,)) for v in member.ins]
        before = {p for p in own if p is not None and p in level}
        near = {p for p in before if rows[op] > 1 and rows[p] == rows[op]}
        level[op] = max([level[p] for p in near] + [level[p] + 1 for p in before - near] + [0])
        for p in near:
            if level[p] == level[op]:
                union[root(p)] = root(op)
    members: dict[Op, list[Op]] = {}
    for op in graph.ops:
        if op in level:
            members.setdefault(root(op), []).append(op)
    found = [_group(ops, taken) for ops in members.values()]
    return _in_order(graph, [g for some in found for g in some])


def _group(ops: list[Op], taken: Mapping[Op, Group]) -> list[Group]:
    if ops[0] in taken:
        return [taken[ops[0]]]
    large = max(v.type.size for op in ops for v in op.outs) >= LEAST
    if len(ops) > 1 and large:
        return [Group("rows", tuple(ops))]
    return [Group("", (op,)) for op in ops]


def _in_order(graph: Graph, found: list[Group]) -> list[Group]:
    """Groups after those that they read from, else by the places of their last operators."""
    place = {op: i for i, op in enumerate(graph.ops)}
    by_op = {op: i for i, group in enumerate(found) for op in group.ops}
    waiting, users = [0] * len(found), [list[int]() for _ in found]
    for i, group in enumerate(found):
        sources = {by_op[p] for op in group.ops for v in _reads(op) if (p := v.producer) in by_op}
        for source in sources - {i}:
            waiting[i] += 1
            users[source].append(i)
    ready = [(place[g.ops[-1]], i) for i, g in enumerate(found) if not waiting[i]]
    heapq.heapify(ready)
    ordered: list[Group] = []
    while ready:
        _, i = heapq.heappop(ready)
        ordered.append(found[i])
        for user in users[i]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (place[found[user].ops[-1]], user))
    return ordered


def _reads(op: Op) -> Iterable[Value]:
    """The operands of an operator, with what its regions read from outside."""
    yield from op.ins
    for region in op.regions:
        for inner in region.ops:
            yield from _reads(inner)


@dataclass(slots=True)
class _Part:
    """A kernel of a chain, the registers that it reads and writes, and those it is the last of."""

    run: Run
    reads: tuple[int, ...]
    write: int
    frees: tuple[int, ...] = ()


class RowChain:
    """A group of row-local operators that runs block by block."""

    def __init__(self, group: Group, context: Context, outs: Sequence[Value]) -> None:
        steps = _tabled(group.ops, set(outs))
        inner = {op.outs[0] for op in group.ops}
        read = [v for op, _ in steps for v in op.ins]
        self._rows = math.prod(outs[0].shape[:-1])
        self._ins = group.ins
        # A constant with as many rows is cut into blocks as well.
        self._cut = [v for v in dict.fromkeys(read) if v.is_const and self._has_rows(v)]
        names = dict.fromkeys((*self._ins, *self._cut, *read, *inner))
        place = {v: i for i, v in enumerate(names)}
        self._first = [constant(v) if v.is_const else None for v in names]
        self._parts = [
            _Part(_kernel(op, ops, context), tuple(place[v] for v in op.ins),
                  place[ops[-1].outs[0]])
            for op, ops in steps
        ]  # fmt: skip
        self._plan_frees({place[v] for v in names if v.is_const} | {place[v] for v in outs})
        self._outs = [(v, place[v]) for v in outs]
        widest = max(v.shape[-1] for op in group.ops for v in op.outs)
        self._step = max(1, BLOCK * torch.get_num_threads() // widest)

    def _has_rows(self, value: Value) -> bool:
        return value.type.rank > 1 and self._rows == math.prod(value.shape[:-1]) > 1

    def _plan_frees(self, kept: set[int]) -> None:
        for index in reversed(range(len(self._parts))):
            part = self._parts[index]
            dead = {*part.reads, part.write} - kept
            kept |= dead
            part.frees = tuple(dead)

    def __call__(self, *ins: Tensor) -> tuple[Tensor, ...]:
        cut = [t for v in self._cut if (t := constant(v)) is not None]
        values = [(v, _flat(t)) if self._has_rows(v) else (v, t)
                  for v, t in zip((*self._ins, *self._cut), (*ins, *cut))]  # fmt: skip
        results: list[Tensor] = []
        for start in range(0, self._rows, self._step):
            stop = min(start + self._step, self._rows)
            made = self._block(values, start, stop)
            if stop - start == self._rows:
                return tuple(t.reshape(v.shape) for t, (v, _) in zip(made, self._outs))
            if not results:
                results = [t.new_empty(v.shape) for t, (v, _) in zip(made, self._outs)]
                flat = [t.view(-1, t.shape[-1]) for t in results]
            for whole, part in zip(flat, made):
                whole[start:stop] = part.reshape(stop - start, -1)
        return tuple(results)

    def _block(self, values: list[tuple[Value, Tensor]], start: int, stop: int) -> list[Tensor]:
        registers = self._first.copy()
        for index, (value, tensor) in enumerate(values):
            if self._has_rows(value):
                shape = (*(1,) * (value.type.rank - 2), stop - start, value.shape[-1])
                tensor = tensor[start:stop].view(shape)
            registers[index] = tensor
        for part in self._parts:
            registers[part.write] = part.run(*[registers[r] for r in part.reads])
            for register in part.frees:
                registers[register] = None
        made = [registers[place] for _, place in self._outs]
        return [t for t in made if t is not None]


def _flat(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1, tensor.shape[-1])


def _tabled(ops: Sequence[Op], outs: set[Value]) -> list[tuple[Op, tuple[Op, ...]]]:
    """Operators in order, each with those behind it that are part of its table.

    A table pays where an int16 TABLE would interpolate, or for several operators in a row.
    """
    uses: dict[Value, list[Op]] = {}
    for op in ops:
        for value in op.ins:
            uses.setdefault(value, []).append(op)
    taken: set[Op] = set()
    steps = []
    for op in ops:
        if op in taken:
            continue
        run = [op]
        while _is_unary(run[0]) and run[-1].outs[0] not in outs:
            users = uses.get(run[-1].outs[0], [])
            if len(users) != 1 or not _is_unary(users[0], first=False):
                break
            run.append(users[0])
        pays = any(o.name == "TABLE" and o.ins[0].dtype is I16 for o in run) or len(run) > 2
        own = tuple(run) if _is_unary(op) and pays else (op,)
        taken.update(own)
        steps.append((op, own))
    return steps


def _is_unary(op: Op, first: bool = True) -> bool:
    """A function of one value, element by element, that is the same for all elements."""
    if op.name not in UNARY or (op.name == "RESCALE" and op.attrs["per_channel"]):
        return False
    size = op.outs[0].type.size
    return not first or (op.ins[0].dtype is I16 and size >= 4 << 16) or (
        op.ins[0].dtype is I8 and size >= LEAST
    )  # fmt: skip


def _kernel(op: Op, ops: Sequence[Op], context: Context) -> Run:
    if len(ops) > 1 or (op.name == "TABLE" and _is_unary(op) and op.ins[0].dtype is I16):
        try:
            return _table(ops, context)
        except Unpredictable:  # for some value, which need not come

            def run(x: Tensor, *_: Tensor) -> Tensor:
                for each, kernel in zip(ops, [KERNELS[o.name](o, context) for o in ops]):
                    x = kernel(x, *(constant(v) for v in each.ins[1:]))
                return x

            return run
    if op.name == "RESHAPE":
        lead = (1,) * (op.outs[0].type.rank - 2)
        return lambda x, _: x.reshape(*lead, -1, x.shape[-1])
    return KERNELS[op.name](op, context)


def tabulate(ops: Sequence[Op], context: Context) -> Tensor:
    """All results of unary operators in a row for an int8 or int16 value, from its lowest on."""
    low, high = ops[0].ins[0].dtype.range
    entries = torch.arange(low, high + 1).to(TORCH[ops[0].ins[0].dtype])[None]
    for op in ops:
        entries = KERNELS[op.name](op, context)(entries, *(constant(v) for v in op.ins[1:]))
    return entries.flatten().contiguous()


def _table(ops: Sequence[Op], context: Context) -> Run:
    low, entries = ops[0].ins[0].dtype.range[0], tabulate(ops, context)

    def look_up(x: Tensor, *_: Tensor) -> Tensor:
        place = x.reshape(-1).to(torch.int32).sub_(low)
        return entries.index_select(0, place).view(x.shape)

    return look_up
