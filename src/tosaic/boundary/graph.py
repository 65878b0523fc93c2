"""The boundary of a TOSA graph: drops unread inputs, transposes to memory order, converts uint8.

Within a graph there is int8 alone. A byte of 0 to 255 is stored as int8, and the RESCALE that
reads or makes it has the flag that says so; its zero points differ by 128.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import fx

from tosaic.boundary.memory_order import Order, order_of
from tosaic.boundary.qparams import is_unsigned
from tosaic.ir.build import Builder, Constraint
from tosaic.ir.graph import Graph, Op, Quant, Unsigned, Value
from tosaic.rewrite.layout import inverse
from tosaic.spec import OPS
from tosaic.spec.dtypes import I8, I16, TensorType
from tosaic.spec.env import Env

_HALF = 128
_NARROW = (I8, I16)


class Ends(Protocol):
    """A graph, the nodes that it takes and gives, and how these lie in memory."""

    graph: Graph | None
    inputs: list[fx.Node]
    outputs: list[fx.Node]
    input_orders: list[Order]
    output_orders: list[Order]


def lay_out(piece: Ends) -> None:
    """Turn the inputs and outputs of a graph whose tensors lie channels-last in PyTorch."""
    if piece.graph is None:
        return
    piece.input_orders = [order_of(n) for n in piece.inputs]
    piece.output_orders = [order_of(n) for n in piece.outputs]
    for index, order in enumerate(piece.input_orders):
        if order is not None:
            permute_input(piece.graph, index, order)
    for index, order in enumerate(piece.output_orders):
        if order is not None:
            permute_output(piece.graph, index, order)


def take_unsigned(piece: Ends, env: Env, constraints: Sequence[Constraint]) -> None:
    """Make uint8 of the inputs and outputs that are uint8 in PyTorch; within, all stays int8."""
    if piece.graph is None:
        return
    b = Builder(env, piece.graph, constraints)
    for index, node in enumerate(piece.inputs):
        if is_unsigned(node):
            unsigned_input(b, index)
    for index, node in enumerate(piece.outputs):
        if is_unsigned(node):
            unsigned_output(b, index)


def drop_unread(piece: Ends) -> None:
    """Forget inputs that nothing in a graph reads, such as operands of which only the shape counts.

    A device's compiler may leave them out of its program, so the graph must not have them either.
    """
    graph = piece.graph
    if graph is None:
        return
    read = {value for op in graph.walk() for value in op.ins}.union(graph.outputs)
    kept = [index for index, value in enumerate(graph.inputs) if value in read]
    graph.inputs = [graph.inputs[index] for index in kept]
    piece.inputs = [piece.inputs[index] for index in kept]
    piece.input_orders = [piece.input_orders[index] for index in kept]


def unsigned_input(b: Builder, index: int) -> None:
    """Take an input of int8 as uint8: by the RESCALE that alone reads it, or by one more."""
    graph = b.graph
    old = graph.inputs[index]
    graph.inputs[index] = new = _outside(old)
    readers = [op for op in graph.ops if old in op.ins]
    alone = len(readers) == 1 and old not in graph.outputs
    if alone and _is_step(readers[0]) and readers[0].ins[0] is old:
        _set_unsigned(b, readers[0], "input")
        readers[0].ins[0] = new
        return
    zero = _zero(old.quant)
    made = b.levels(new, I8, _stored(zero + _HALF), zero, input_unsigned=True)
    made.quant, made.loc = old.quant, old.loc
    (op,) = graph.ops[-1:]
    del graph.ops[-1]
    graph.ops.insert(0, op)
    for reader in readers:
        reader.ins = [made if value is old else value for value in reader.ins]
    graph.outputs = [made if value is old else value for value in graph.outputs]


def unsigned_output(b: Builder, index: int) -> None:
    """Give an output of int8 as uint8: by the RESCALE that makes it for no other, or by one."""
    graph = b.graph
    old = graph.outputs[index]
    alone = graph.outputs.count(old) == 1 and not any(old in op.ins for op in graph.ops)
    new, maker = _outside(old), old.producer
    if alone and maker is not None and _is_step(maker):
        _set_unsigned(b, maker, "output")
        old.name, old.quant = new.name, new.quant
        return
    if alone and maker is not None and maker.name == "IDENTITY":  # a copy, which this is as well
        graph.ops.remove(maker)
        old = maker.ins[0]
    # Behind a zero point of 0 a compiler may make one RESCALE of two and lose half of the range;
    # any two zero points that differ by 128 do the same.
    zero = _zero(old.quant) or -_HALF
    made = b.levels(old, I8, zero, _stored(zero + _HALF), output_unsigned=True)
    made.name, made.quant, made.loc = new.name, new.quant, new.loc
    old.name = "" if alone or graph.outputs.count(old) == 1 else old.name
    graph.outputs[index] = made


def _outside(value: Value) -> Value:
    """A tensor at the boundary that means the same."""
    quant = value.quant
    assert quant is not None
    quant = Unsigned(quant.scale, _zero(quant) + _HALF)
    return Value(TensorType(I8, value.shape), value.name, quant=quant, loc=value.loc)


def _zero(quant: Quant | None) -> int:
    assert quant is not None
    assert isinstance(quant.zero_point, int)  # one for all channels
    return quant.zero_point


def _is_step(op: Op) -> bool:
    """Whether it is a RESCALE that may have a flag: TOSA has none beside int32 and int48."""
    plain = op.name == "RESCALE" and not (op.attrs["input_unsigned"] or op.attrs["output_unsigned"])
    return plain and op.ins[0].dtype in _NARROW and op.outs[0].dtype in _NARROW and all(
        value.is_const for value in op.ins[1:]
    )  # fmt: skip


def _set_unsigned(b: Builder, op: Op, side: str) -> None:
    position = 3 if side == "input" else 4
    (zero,) = op.ins[position].const.array.tolist()  # type: ignore[union-attr]
    op.ins[position] = b.const([_stored(zero + _HALF)], I8)
    op.attrs = {**op.attrs, f"{side}_unsigned": True}


def _stored(number: int) -> int:
    """A number of 0 to 255, or of −128 to 127, as the int8 that has its bits."""
    return (number + _HALF) % 256 - _HALF


def permute_input(graph: Graph, index: int, order: Sequence[int]) -> None:
    """Take an input with its axes in that order; a TRANSPOSE gives what it was."""
    old, order = graph.inputs[index], tuple(order)
    kind = TensorType(old.dtype, tuple(old.shape[axis] for axis in order))
    graph.inputs[index] = new = Value(kind, old.name, None, old.quant, old.loc, old.limits)
    old.name = ""
    graph.ops.insert(0, Op(OPS["TRANSPOSE"], [new], [old], {"perms": inverse(order)}))


def permute_output(graph: Graph, index: int, order: Sequence[int]) -> None:
    """Give an output with its axes in that order."""
    old, order = graph.outputs[index], tuple(order)
    kind = TensorType(old.dtype, tuple(old.shape[axis] for axis in order))
    new = Value(kind, old.name, quant=old.quant, loc=old.loc)
    graph.ops.append(Op(OPS["TRANSPOSE"], [old], [new], {"perms": order}))
    graph.outputs[index], old.name = new, ""
