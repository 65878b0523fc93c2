"""Rows whose remedy is another form of the same operators, at no cost.

Most are about one tensor that is read in several shapes, or constants that share an encoding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tosaic.ir.build import Builder
from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.spec import dtypes as d
from tosaic.spec.dtypes import TensorType
from tosaic.spec.env import Env
from tosaic.targets.ethosu.constraints import constant_factor, is_shifted_far
from tosaic.targets.ethosu.vela_workarounds.rows import (
    LARGE,
    OLDER,
    Form,
    Uses,
    keeps_order,
    maker,
    readers_of,
    source,
    twin_of,
)

_FUSED = {"CONV2D", "DEPTHWISE_CONV2D", "CONV3D", "TRANSPOSE_CONV2D", "MATMUL", "REDUCE_SUM", "ADD",
          "SUB", "MUL"}  # fmt: skip
_BINARY = {"ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "LOGICAL_LEFT_SHIFT",
           "ARITHMETIC_RIGHT_SHIFT"}  # fmt: skip
_OTHERS = {"ABS", "NEGATE", "CLZ", "SELECT", "GREATER", "GREATER_EQUAL", "EQUAL", "INTDIV",
           "BITWISE_AND", "BITWISE_OR", "BITWISE_XOR", "BITWISE_NOT"}  # fmt: skip
_ROWS = {"CONV2D": 1, "DEPTHWISE_CONV2D": 0, "CONV3D": 2}  # the axis of the kernel's rows


def _reshape_first(graph: Graph, env: Env) -> None:
    """Move a RESHAPE in front of the RESCALE to 32 bits that it follows."""
    uses, ops, dropped = graph.uses(), list[Op](), set[Op]()
    for op in graph.ops:
        made = op.ins[0].producer if keeps_order(op) else None
        if made is None or op.ins[0] in graph.outputs or not _loses_shape(op, made, uses):
            ops.append(op)
            continue
        if len(uses[made.outs[0]]) == 1:
            dropped.add(made)
        shaped = Value(TensorType(made.ins[0].dtype, op.outs[0].shape), quant=made.ins[0].quant)
        ops.append(Op(op.defn, [made.ins[0], *op.ins[1:]], [shaped], op.attrs, loc=op.loc))
        ops.append(Op(made.defn, [shaped, *made.ins[1:]], op.outs, made.attrs, loc=made.loc))
    graph.ops = [op for op in ops if op not in dropped]


def _loses_shape(shape: Op, rescale: Op, uses: Uses) -> bool:
    """Whether a widened value is broadcast behind the RESHAPE, or a RESCALE by itself makes it."""
    if rescale.name != "RESCALE" or rescale.attrs["per_channel"]:
        return False
    if rescale.ins[0].dtype not in (d.I8, d.I16) or rescale.outs[0].dtype is not d.I32:
        return False
    value = shape.outs[0]
    for reader in uses.get(value, ()):
        if reader.name in _BINARY and value.shape != reader.outs[0].shape:
            return True
    first = maker(rescale.ins[0])
    return first is not None and first.name == "RESCALE" and _is_alone(first, uses)


def _is_alone(rescale: Op, uses: Uses) -> bool:
    """Whether Vela does not fuse a RESCALE with what makes its operand."""
    return len(uses[rescale.ins[0]]) > 1 or source(rescale.ins[0]) not in _FUSED


def _lower_rank(graph: Graph, env: Env) -> None:
    """Compute at rank 4 what has a first operand of one element and a higher rank."""
    ops: list[Op] = []
    for op in graph.ops:
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
    graph.ops = ops


def _of_rank_4(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (math.prod(shape[:-3]), *shape[-3:])


def _reshape_each_operand(graph: Graph, env: Env) -> None:
    """A RESHAPE for each operand of an operator that reads a reshaped tensor twice."""
    twins: dict[Op, list[Op]] = {}  # by who reads them
    for op in graph.ops:
        places: dict[Value, dict[tuple[Op, int], None]] = {}
        for position, value in enumerate(op.ins):
            reader = op
            for name in ("RESCALE", "SLICE"):
                if value.producer is not None and value.producer.name == name:
                    reader, position, value = value.producer, 0, value.producer.ins[0]
            if value.producer is not None and keeps_order(value.producer):
                places.setdefault(value, {})[reader, position] = None
        for found in places.values():
            for reader, position in list(found)[1:]:
                twins.setdefault(reader, []).append(_with_twin(reader, position))
    graph.ops = [each for op in graph.ops for each in (*twins.get(op, ()), op)]


def _with_twin(reader: Op, position: int) -> Op:
    """Give an operator a RESHAPE of its own for an operand."""
    twin = twin_of(reader.ins[position])
    reader.ins[position] = twin.outs[0]
    return twin


def _reshape_each_use(graph: Graph, env: Env) -> None:
    """A RESHAPE, and SLICE, for each elementwise use of a rescaled tensor in another shape."""
    uses, ops, seen = readers_of(graph), list[Op](), set(graph.outputs)
    for op in graph.ops:
        for position, value in enumerate(op.ins):
            made = value.producer
            shaped = made.ins[0] if made is not None and made.name == "SLICE" else value
            if shaped.producer is None or not keeps_order(shaped.producer):
                continue
            rescale = maker(shaped)
            if rescale is None or rescale.name != "RESCALE" or not _is_elementwise(op, uses):
                continue
            if value in seen and rescale.ins[0].dtype in (d.I8, d.I16):
                twin = _with_twin(op, position)
                ops += [twin] if shaped is value else [_with_twin(twin, 0), twin]
            seen.add(value)
        ops.append(op)
    graph.ops = ops


def _is_elementwise(op: Op, uses: Uses) -> bool:
    """Whether an operator computes each element by itself, or is a RESCALE for one that does."""
    if op.name != "RESCALE":
        return op.name in _BINARY or op.name in _OTHERS
    return any(reader.name != "RESCALE" and _is_elementwise(reader, uses)
               for reader in uses.get(op.outs[0], ()))  # fmt: skip


def _round_once(graph: Graph, env: Env) -> None:
    """A RESCALE for a product with a constant whose shift is so long that it rounds twice."""
    for place, op in enumerate(graph.ops):
        found = constant_factor(op) if op.name == "MUL" and is_shifted_far(op) else None
        if found is None:
            continue
        b, zero, (value, factor) = Builder(env), np.zeros(1), found
        b.RESCALE(
            value, b.const([factor], d.I32), op.ins[2], b.const(zero, d.I32), b.const(zero, d.I32),
            out=d.I32, scale32=True, rounding_mode="SINGLE_ROUND", per_channel=False,
        )  # fmt: skip
        (made,) = b.graph.ops
        made.outs, made.loc = op.outs, op.loc
        made.outs[0].producer = graph.ops[place] = made


def _accumulate_for_each_reader(graph: Graph, env: Env) -> None:
    """An operator of its own for each consumer of sums of 48 bits."""
    uses, ops, seen = graph.uses(), list[Op](), set[Value]()
    for op in graph.ops:
        sums = op.ins[0] if op.ins else None
        if sums is not None and sums.dtype is d.I48 and len(uses[sums]) > 1:
            if sums in seen:
                ops.append(_with_twin(op, 0))
            seen.add(sums)
        ops.append(op)
    graph.ops = ops


def _shift_before_reverse(graph: Graph, env: Env) -> None:
    """A shift by nothing between a convolution or MATMUL and a REVERSE of its channels."""
    ops: list[Op] = []
    for op in graph.ops:
        if op.name == "REVERSE" and _turns_channels(op):
            b, value = Builder(env), op.ins[0]
            nothing = b.const(np.zeros((1,) * value.type.rank), value.dtype)
            op.ins[0] = b.ARITHMETIC_RIGHT_SHIFT(value, nothing, round=False)
            op.ins[0].quant = value.quant
            for made in b.graph.ops:
                made.loc = op.loc
            ops += b.graph.ops
        ops.append(op)
    graph.ops = ops


def _turns_channels(reverse: Op) -> bool:
    made = maker(reverse.ins[0])
    while made is not None and made.name in ("RESCALE", "CLAMP", "TABLE"):
        made = maker(made.ins[0])
    behind = reverse.ins[0].shape[reverse.attrs["axis"] + 1 :]
    return made is not None and made.name in ("CONV2D", "MATMUL") and all(n == 1 for n in behind)


def _rewrite_equal_weights(graph: Graph, env: Env) -> None:
    """Write weights otherwise whose bytes an earlier convolution has with another bias."""
    known: dict[tuple[bytes, tuple[int, ...]], tuple[bytes, int]] = {}
    ops = [o for o in graph.walk() if o.name in _ROWS and all(v.is_const for v in o.ins[1:3])]
    starts = {(o.ins[1].type.size, _array(o.ins[1]).reshape(-1)[:64].tobytes()) for o in ops}
    if len(starts) == len(ops):
        return  # all differ already
    for op in ops:
        for step, rows in _spellings(op):
            array, zero = _written(op, step, rows), _zero(op) + step
            meaning = _array(op.ins[2]).tobytes(), zero
            key = array.tobytes(), tuple(n for n in array.shape if n > 1)
            if known.setdefault(key, meaning) == meaning:
                if step or rows:
                    _write(op, array, zero, rows, env)
                break


def _spellings(op: Op) -> Iterator[tuple[int, int]]:
    """Steps of the zero point for which there is room, then rows of zeros below the kernel."""
    yield 0, 0
    if op.ins[1].dtype is d.I8:
        array, zero, (low, high) = _array(op.ins[1]), _zero(op), d.I8.range
        least, most = min(int(array.min()), zero), max(int(array.max()), zero)
        yield from ((step, 0) for step in range(low - least, high - most + 1) if step)
    yield from ((0, rows) for rows in range(1, 64))


def _written(op: Op, step: int, rows: int) -> Array:
    array = _array(op.ins[1])
    if not rows:
        moved: Array = array + np.asarray(step, array.dtype)
        return moved
    more = [(0, rows if n == _ROWS[op.name] else 0) for n in range(array.ndim)]
    return np.pad(array, more, constant_values=_zero(op))


def _write(op: Op, array: Array, zero: int, rows: int, env: Env) -> None:
    """Give an operator other weights; rows of zeros multiply padding."""
    b = Builder(env)
    op.ins[1] = b.const(array, op.ins[1].dtype)
    op.ins[4] = b.const([zero], op.ins[4].dtype)
    *front, top, bottom, left, right = op.attrs["pad"]
    bottom += rows * op.attrs["dilation"][-2]
    op.attrs = {**op.attrs, "pad": (*front, top, bottom, left, right)}


def _zero(op: Op) -> int:
    return int(_array(op.ins[4])[0])


def _array(value: Value) -> Array:
    assert value.const is not None
    return value.const.array


# In this order, before operands are copied.
SHAPES = (
    Form("A RESCALE to 32 bits is fused with the operator behind a RESHAPE, which then reads the "
         "operand in the shape that another consumer gave it.",
         _reshape_first, test="test_a_value_that_two_consumers_read_in_two_shapes"),
    Form("Above rank 4 a first operand of one element is read in the second's shape.",
         _lower_rank, products=OLDER, test="test_a_first_operand_of_one_element_at_rank_5"),
    Form("What makes a reshaped tensor writes it in that shape, which is forgotten for the second "
         "operand of an operator that reads it twice.", _reshape_each_operand,
         test="test_a_tensor_that_an_operator_reads_twice_in_another_shape_has_a_reshape_for_each"),
    Form("It is forgotten for all elementwise uses but the first where a RESCALE makes the tensor.",
         _reshape_each_use, test="test_a_rescaled_tensor_that_two_consumers_read_in_another_shape"),
    Form("A MUL by a constant with a shift above 31 rounds twice.",
         _round_once, test="test_a_product_with_a_constant_and_a_long_shift_rounds_once"),
    Form("Sums of 48 bits have room where one RESCALE reads them, and no other.",
         _accumulate_for_each_reader, products=OLDER,
         test="test_sums_of_48_bits_that_two_read_are_made_for_each"),
    Form("No block suits a REVERSE of channels that is fused with a convolution or MATMUL, which "
         "ends the process.", _shift_before_reverse, products=LARGE,
         test="test_channels_that_are_turned_round_are_not_fused_with_their_product"),
)  # fmt: skip
# Of the whole graph, regions included, after all else.
WEIGHTS = (
    Form("Weights and biases are encoded once for all convolutions with equal bytes of weights, "
         "equal scales, strides and dilations, whatever their biases and zero points.",
         _rewrite_equal_weights,
         test="test_equal_weights_with_other_biases_are_written_otherwise"),
)  # fmt: skip
