"""Workarounds of faults in Vela: what a row of the table is, and what matchers ask about a graph.

A fault is a form that Vela 5.2 compiles to a stream with other results than the graph's, or crashes
on. The remedy is exact, so a later Vela at most loses a little by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec import OPS
from tosaic.spec import dtypes as d
from tosaic.spec.env import Env

Uses = Mapping[Value, Sequence[Op]]
OLDER, NEWER, SMALL = ("u55", "u65"), ("u85",), ("u55-32", "u55-64")
LARGE = ("u85-1024", "u85-2048")
EVERY = (*OLDER, *NEWER)
COPIED = {d.I8, d.I16, d.I32, d.BOOL}
SHIFTS = ("LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT")


@dataclass(frozen=True, slots=True)
class Use:
    """An operand of an operator, and the consumers of every value."""

    op: Op
    position: int
    uses: Uses

    @property
    def value(self) -> Value:
        return self.op.ins[self.position]

    @property
    def made(self) -> Op | None:
        """What makes the operand, whatever shape it is given after that."""
        return maker(self.value)

    @property
    def readers(self) -> Sequence[Op]:
        """The consumers of the operator's result."""
        return self.uses.get(self.op.outs[0], ())


@dataclass(frozen=True, slots=True)
class Row:
    """A fault of Vela in one sentence, where it occurs, and the name of its test.

    A fault that is ``rare`` shows in few of the graphs of its form: there alone the remedy, which
    costs cycles, is taken, once the stream is found to be wrong.
    """

    fault: str
    test: str = field(kw_only=True)
    products: tuple[str, ...] = field(default=EVERY, kw_only=True)
    vela: str = field(default="5.2.0", kw_only=True)
    rare: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Operand(Row):
    """The remedy is a copy of an operand of ``ops`` that one of ``source`` makes."""

    ops: str
    source: str = ""
    when: Callable[[Use], bool] = lambda use: True

    def matches(self, use: Use) -> bool:
        if self.source and ((made := use.made) is None or made.name not in self.source.split()):
            return False
        return self.when(use)


@dataclass(frozen=True, slots=True)
class Output(Row):
    """The remedy is a copy of an output of the graph."""

    when: Callable[[Value, Graph, Uses], bool]


@dataclass(frozen=True, slots=True)
class Form(Row):
    """The remedy is another form of the operators: other shapes, other constants."""

    rewrite: Callable[[Graph, Env], None]


def copy_of(value: Value, env: Env) -> tuple[Value, Op]:
    """A CLAMP that limits nothing, a sum with 0, a value or itself: Vela keeps all of them."""
    b = Builder(env)
    if value.dtype is d.BOOL:
        made: Value = b.LOGICAL_OR(value, value)
    elif value.dtype is d.I32:
        made = b.ADD(value, b.const(np.zeros((1,) * value.type.rank), d.I32))
    elif source(value) in SHIFTS:  # which Vela fuses with a CLAMP
        nothing = b.const(np.zeros((1,) * value.type.rank), value.dtype)
        made = b.ARITHMETIC_RIGHT_SHIFT(value, nothing, round=False)
    else:
        low, high = value.dtype.range
        made = b.CLAMP(value, min_val=low, max_val=high)
    made.quant = value.quant
    (op,) = b.graph.ops
    op.loc = value.producer.loc if value.producer else None
    return made, op


def copy_output(graph: Graph, value: Value, env: Env) -> Value:
    """A copy at the end of a graph that takes over the name of an output."""
    made, op = copy_of(value, env)
    made.name, value.name = value.name, f"{value.name}_inside"
    graph.ops.append(op)
    return made


def twin_of(value: Value) -> Op:
    """The operator that makes a value, once more."""
    made = value.producer
    assert made is not None
    other = Value(value.type, quant=value.quant, loc=value.loc)
    return Op(made.defn, list(made.ins), [other], made.attrs, loc=made.loc)


def readers_of(graph: Graph) -> dict[Value, list[Op]]:
    """The consumers of each value, with an operator for each output, which fuses with nothing."""
    uses = graph.uses()
    for value in graph.outputs:
        uses.setdefault(value, []).append(Op(OPS["IDENTITY"], [value], [Value(value.type)], {}))
    return uses


def keeps_order(op: Op) -> bool:
    """A RESHAPE, or a TRANSPOSE that moves axes of one element alone."""
    if op.name != "TRANSPOSE":
        return op.name == "RESHAPE"
    moved = [axis for axis in op.attrs["perms"] if op.ins[0].shape[axis] > 1]
    return moved == sorted(moved)


def maker(value: Value) -> Op | None:
    """The operator that a value is made by, whatever shape it is given after that."""
    while value.producer is not None and keeps_order(value.producer):
        value = value.producer.ins[0]
    return value.producer


def source(value: Value) -> str:
    made = maker(value)
    return made.name if made is not None else ""


def fused_into(value: Value) -> Iterator[Op]:
    """The operators that Vela may fuse a RESCALE of the value into: those of a CONCAT or PAD, too.

    A RESCALE by 1 is left out, so those before it as well.
    """
    made = maker(value)
    if made is None:
        return
    if made.name in ("CONCAT", "PAD"):
        for part in made.ins if made.name == "CONCAT" else made.ins[:1]:
            yield from fused_into(part)
        return
    yield made
    if factor(made.outs[0]) == 1:
        yield from fused_into(made.ins[0])


def number(value: Value) -> int:
    assert value.const is not None
    return int(value.const.array.reshape(-1)[0])


def factor(value: Value) -> float | None:
    """By how much a RESCALE with one scale multiplies; None if something else made the value."""
    made = value.producer
    if made is None or made.name != "RESCALE" or made.attrs["per_channel"]:
        return None
    multiplier, shift = (v.const for v in made.ins[1:3])
    assert multiplier is not None
    assert shift is not None
    return int(multiplier.array[0]) / 2.0 ** int(shift.array[0])


def is_fused_forward(op: Op, uses: Uses) -> bool:
    """Whether U55 and U65 fuse a RESCALE to 32 bits with the operator that reads it."""
    readers = uses.get(op.outs[0], ())
    if len(readers) != 1 or op.ins[0].dtype is d.I32:
        return False
    (reader,) = readers
    operands = reader.ins[:2]
    if any(len(uses.get(v, ())) != 1 for v in operands):
        return False
    if all(v.shape != reader.outs[0].shape for v in operands):
        return False  # both are broadcast
    factors = [factor(v) for v in operands]
    kinds = {v.producer.ins[0].dtype for v in operands if v.producer is not None}
    if len(factors) != 2 or None in factors or len(kinds) > 1:
        return False
    low, high = sorted(f or 0.0 for f in factors)
    if reader.name in ("ADD", "SUB"):
        most = 2.0**19 if op.ins[0].dtype is d.I8 else 2.0**14
        return low < high == most or (low == high < 1 << 15 and low.is_integer())
    if reader.name in ("MAXIMUM", "MINIMUM"):
        after = uses.get(reader.outs[0], ())
        if len(after) != 1 or factor(after[0].outs[0]) != 1:
            return False
    return reader.name in ("MUL", "MAXIMUM", "MINIMUM") and low == high == 1
