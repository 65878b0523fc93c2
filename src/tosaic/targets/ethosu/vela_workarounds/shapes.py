"""Forms that Vela 5.2 compiles wrongly and that another, equal form replaces at no cost.

Most are about one tensor that is read in several shapes. tests/npu/test_simulator_shapes.py has
each of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec import dtypes as d
from tosaic.spec.dtypes import TensorType
from tosaic.spec.env import Env
from tosaic.targets.ethosu.constraints import constant_factor, is_shifted_far

_FUSED = {"CONV2D", "DEPTHWISE_CONV2D", "CONV3D", "TRANSPOSE_CONV2D", "MATMUL", "REDUCE_SUM", "ADD",
          "SUB", "MUL"}  # fmt: skip
_BINARY = {"ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "LOGICAL_LEFT_SHIFT",
           "ARITHMETIC_RIGHT_SHIFT"}  # fmt: skip


def shape_first(graph: Graph) -> None:
    """Move a RESHAPE in front of the RESCALE to 32 bits that it follows, where the shape is lost.

    Such a RESCALE becomes part of the operator behind the RESHAPE, which then reads the operand of
    the RESCALE in whatever shape another consumer of that operand has.
    """
    uses, ops, dropped = graph.uses(), list[Op](), set[Op]()
    for op in graph.ops:
        made = op.ins[0].producer if keeps_order(op) else None
        if (
            made is None
            or not _is_widening(made)
            or op.ins[0] in graph.outputs
            or not _loses_shape(op, made, uses)
        ):
            ops.append(op)
            continue
        if len(uses[made.outs[0]]) == 1:
            dropped.add(made)
        shaped = Value(TensorType(made.ins[0].dtype, op.outs[0].shape), quant=made.ins[0].quant)
        ops.append(Op(op.defn, [made.ins[0], *op.ins[1:]], [shaped], op.attrs, loc=op.loc))
        ops.append(Op(made.defn, [shaped, *made.ins[1:]], op.outs, made.attrs, loc=made.loc))
    graph.ops = [op for op in ops if op not in dropped]


def _is_widening(op: Op) -> bool:
    if op.name != "RESCALE" or op.attrs["per_channel"]:
        return False
    return op.ins[0].dtype in (d.I8, d.I16) and op.outs[0].dtype is d.I32


def _loses_shape(shape: Op, rescale: Op, uses: Mapping[Value, Sequence[Op]]) -> bool:
    """Whether the value is repeated behind the RESHAPE, or a RESCALE by itself makes it."""
    value = shape.outs[0]
    for reader in uses.get(value, ()):
        if reader.name in _BINARY and value.shape != reader.outs[0].shape:
            return True
    first = maker(rescale.ins[0])
    if first is None or first.name != "RESCALE":
        return False
    sums = maker(first.ins[0])
    return len(uses[first.ins[0]]) > 1 or sums is None or sums.name not in _FUSED


def flattened(given: Sequence[Op], env: Env) -> list[Op]:
    """Compute with a first operand of one element at rank 4 what has a higher rank.

    At a higher rank U55 and U65 read that operand as if it had the shape of the second.
    """
    ops: list[Op] = []
    for op in given:
        if op.name not in _BINARY or op.ins[0].type.size > 1 or op.outs[0].type.rank < 5:
            ops.append(op)
            continue
        b, (result,) = Builder(env), op.outs
        pair = [b.RESHAPE(v, b.shape(_of_rank_4(v.shape))) for v in op.ins[:2]]
        low = Value(TensorType(result.dtype, _of_rank_4(result.shape)), quant=result.quant)
        b.graph.ops.append(Op(op.defn, [*pair, *op.ins[2:]], [low], op.attrs))
        high = b.RESHAPE(low, b.shape(result.shape)).producer
        assert high is not None
        high.outs, result.producer = [result], high
        for made in b.graph.ops:
            made.loc = op.loc
        ops += b.graph.ops
    return ops


def _of_rank_4(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (math.prod(shape[:-3]), *shape[-3:])


def read_apart(given: Sequence[Op]) -> list[Op]:
    """A RESHAPE for each operand of an operator that reads a tensor twice in another shape.

    Vela lets what made the tensor write it in that shape, and forgets it for the second operand.
    """
    twins: dict[Op, list[Op]] = {}  # by who reads them
    for op in given:
        places: dict[Value, dict[tuple[Op, int], None]] = {}
        for position, value in enumerate(op.ins):
            reader = op
            if value.producer is not None and value.producer.name == "RESCALE":
                reader, position, value = value.producer, 0, value.producer.ins[0]
            if value.producer is not None and keeps_order(value.producer):
                places.setdefault(value, {})[reader, position] = None
        for value, found in places.items():
            for reader, position in list(found)[1:]:
                twin = twin_of(value)
                twins.setdefault(reader, []).append(twin)
                reader.ins[position] = twin.outs[0]
    return [each for op in given for each in (*twins.get(op, ()), op)]


def rounded_once(op: Op, env: Env) -> Op:
    """A RESCALE for a product with a constant whose shift is so long that it rounds twice."""
    found = constant_factor(op) if op.name == "MUL" and is_shifted_far(op) else None
    if found is None:
        return op
    b, zero, (value, factor) = Builder(env), np.zeros(1), found
    b.RESCALE(
        value, b.const([factor], d.I32), op.ins[2], b.const(zero, d.I32), b.const(zero, d.I32),
        out=d.I32, scale32=True, rounding_mode="SINGLE_ROUND", per_channel=False,
    )  # fmt: skip
    (made,) = b.graph.ops
    made.outs, made.loc = op.outs, op.loc
    made.outs[0].producer = made
    return made


def twin_of(value: Value) -> Op:
    """The operator that makes a value, once more."""
    made = value.producer
    assert made is not None
    other = Value(value.type, quant=value.quant, loc=value.loc)
    return Op(made.defn, list(made.ins), [other], made.attrs, loc=made.loc)


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
