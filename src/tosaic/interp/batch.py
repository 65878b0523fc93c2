"""The same graph for n inputs at once, stacked along the first axis.

A value is batched if it holds the n samples one after the other along its first axis. Most
operators keep samples apart; one that would mix them has no batched form, and the caller runs
the samples one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tosaic.errors import Unsupported
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec.env import everything
from tosaic.spec.ops_elementwise import BROADCASTS


class _Mixes(Exception):
    """An operator mixes the samples of a batch."""


def rebatch(graph: Graph, count: int) -> Graph | None:
    """The graph for ``count`` stacked samples, or None if some operator mixes samples."""
    try:
        return _Rebatcher(graph, count).run()
    except (_Mixes, Unsupported):
        return None


class _Rebatcher:
    def __init__(self, graph: Graph, count: int) -> None:
        self.graph, self.count = graph, count
        env = everything(level="none")
        self.b = Builder(env, Graph(graph.name, version=graph.version))
        self.new: dict[Value, Value] = {}  # batched values only; the others are shared

    def run(self) -> Graph:
        for value in self.graph.inputs:
            kind = value.type
            if not kind.rank:
                raise _Mixes
            self.new[value] = self.b.input(
                kind.dtype, (kind.shape[0] * self.count, *kind.shape[1:]), value.name
            )
        for op in self.graph.ops:
            if any(v in self.new for v in op.ins):
                self.emit(op)
            elif op.regions or op.name.startswith("VARIABLE"):
                raise _Mixes
            else:
                self.b.graph.ops.append(op)
        self.b.output(*(self.batched(v) for v in self.graph.outputs))
        return self.b.graph

    def batched(self, value: Value) -> Value:
        """The value in batched form; one that all samples share is repeated."""
        if value not in self.new:
            if not value.type.rank:
                raise _Mixes
            repeats = self.b.shape((self.count, *(1,) * (value.type.rank - 1)))
            self.new[value] = self.b.TILE(value, repeats)
        return self.new[value]

    def emit(self, op: Op) -> None:
        if op.regions or any(not v.type.rank for v in op.outs) or not op.outs:
            raise _Mixes
        rule = _RULES.get(op.name, _rowwise)
        results = rule(self, op)
        for old, new in zip(op.outs, results):
            new.name, new.quant, new.loc = old.name, old.quant, old.loc
            self.new[old] = new

    def again(self, op: Op, ins: Sequence[Value], **attrs: Any) -> tuple[Value, ...]:
        """Emit the operator on other operands; its results keep their element types."""
        wanted = [v.dtype for v in op.outs]
        return self.b.results(op.name, *ins, out=wanted, loc=op.loc, **{**op.attrs, **attrs})

    def whole_batch(self, op: Op, ins: Sequence[Value]) -> tuple[Value, ...]:
        return self.again(op, [self.new.get(v, v) for v in ins])


Rule = Callable[[_Rebatcher, Op], tuple[Value, ...]]
_RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def _rowwise(r: _Rebatcher, op: Op) -> tuple[Value, ...]:
    """The data operand comes first and has the batch on its first axis, as the result has."""
    if op.ins[0] not in r.new or any(v in r.new for v in op.ins[1:]) or _mixes(op):
        raise _Mixes
    return r.whole_batch(op, op.ins)


def _mixes(op: Op) -> bool:
    """Whether an operator on one tensor does something along the first axis."""
    if op.name == "RESCALE":
        return bool(op.attrs["per_channel"]) and op.ins[0].type.rank < 2
    if op.name == "TRANSPOSE":
        return bool(op.attrs["perms"][0] != 0)
    if op.name == "PAD":
        return any(_sizes(op.ins[1])[:2])
    if op.name == "TILE":
        return _sizes(op.ins[1])[0] != 1
    return op.attrs.get("axis") == 0


@_rule(*BROADCASTS)
def _broadcast(r: _Rebatcher, op: Op) -> tuple[Value, ...]:
    """A shared operand serves all samples if it has one row, else it is repeated."""
    rows = op.outs[0].shape[0]
    ins = []
    for index, value in enumerate(op.ins):
        if op.name == "MUL" and index == 2:
            if value in r.new:  # each sample has a shift of its own
                raise _Mixes
            ins.append(value)
        elif value in r.new:
            if value.shape[0] != rows:
                raise _Mixes
            ins.append(r.new[value])
        else:
            ins.append(value if value.shape[0] == 1 else r.batched(value))
    return r.again(op, ins)


@_rule("MATMUL")
def _matmul(r: _Rebatcher, op: Op) -> tuple[Value, ...]:
    """One right-hand side for all samples: their rows become the rows of one product."""
    a, b = op.ins[:2]
    if a not in r.new or b in r.new or a.shape[0] != 1:
        return _all_batched(r, op)
    if any(v in r.new for v in op.ins[2:]):
        raise _Mixes
    rows = r.count * a.shape[1]
    flat = r.b.RESHAPE(r.new[a], r.b.shape((1, rows, a.shape[2])))
    (product,) = r.again(op, [flat, *op.ins[1:]])
    shape = r.b.shape((r.count, *op.outs[0].shape[1:]))
    return (r.b.RESHAPE(product, shape),)


@_rule("GATHER", "SCATTER", "MATMUL_T", "ROW_GATHER", "FFT2D")
def _all_batched(r: _Rebatcher, op: Op) -> tuple[Value, ...]:
    """Every tensor of rank 2 and more has the batch on its first axis, zero points have none."""
    if any(v in r.new and v.type.rank < 2 for v in op.ins):
        raise _Mixes
    return r.again(op, [r.batched(v) if v.type.rank > 1 else v for v in op.ins])


@_rule("CONCAT")
def _concat(r: _Rebatcher, op: Op) -> tuple[Value, ...]:
    if op.attrs["axis"] == 0:
        raise _Mixes
    return r.again(op, [r.batched(v) for v in op.ins])


def _sizes(value: Value) -> list[int]:
    if value.const is None:
        raise _Mixes
    return [int(n) for n in value.const.array]


@_rule("RESHAPE")
def _reshape(r: _Rebatcher, op: Op) -> tuple[Value, ...]:
    """Samples lie one after the other, so any reshape of each is a reshape of all."""
    rows, *rest = op.outs[0].shape
    return r.again(op, [r.new[op.ins[0]], r.b.shape((rows * r.count, *rest))])


@_rule("SLICE")
def _slice(r: _Rebatcher, op: Op) -> tuple[Value, ...]:
    start, size = _sizes(op.ins[1]), _sizes(op.ins[2])
    if start[0] != 0 or size[0] != op.ins[0].shape[0]:
        raise _Mixes
    return r.again(op, [r.new[op.ins[0]], op.ins[1], r.b.shape((size[0] * r.count, *size[1:]))])


@_rule("DIM", "ASSERT_EQUAL_SHAPE", "CUSTOM", "VARIABLE_WRITE")
def _never(r: _Rebatcher, op: Op) -> tuple[Value, ...]:
    raise _Mixes
