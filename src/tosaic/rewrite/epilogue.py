"""Epilogues: the elementwise functions of an accumulator that fuse with the product before them."""

from __future__ import annotations

import numpy as np

from tosaic.ir.graph import Array, Op, Value
from tosaic.rewrite.match import Matcher, form, known, one_number, rewrite
from tosaic.spec.dtypes import I8

FUNCTIONS = ("RESCALE", "CLAMP", "TABLE")


def chain(m: Matcher, op: Op, *products: str) -> list[Op] | None:
    """The product that an operator ends the chain of, and all operators up to that one.

    None where the next operator belongs to it, too, or somebody else reads what is between.
    """
    found = [op]
    while found[-1].name not in products:
        value = found[-1].ins[0]
        before = m.made_by(value, *FUNCTIONS, *products) if m.only(value) else None
        if before is None or not all(v.is_const for v in found[-1].ins[1:]):
            return None
        found.append(before)
    behind = next(m.readers(op.outs[0])) if m.only(op.outs[0]) else op
    goes_on = behind is not op and behind.name in FUNCTIONS and behind.ins[0] is op.outs[0]
    return None if goes_on else found[::-1]


@form("TABLE", "CLAMP", "RESCALE")
def reshape_later(m: Matcher, op: Op) -> Value | None:
    """A function of sums next to them: behind a RESHAPE it is an operation of its own."""
    reshape = m.made_by(op.ins[0], "RESHAPE") if m.only(op.ins[0]) else None
    if reshape is None or not m.only(reshape.ins[0]) or op.attrs.get("per_channel"):
        return None
    value = m.b.op(op.name, reshape.ins[0], *op.ins[1:], out=op.outs[0].dtype, **op.attrs)
    return m.b.RESHAPE(value, reshape.ins[1])


@rewrite("MATMUL")
def weigh(m: Matcher, op: Op) -> Value | None:
    """A constant matrix times another as a layer: rows that are added up in known places.

    A target without products of matrices computes each element of the result by itself, but for
    a constant on the right.
    """
    matrix, x, its_zero, zero = op.ins
    array, own, kind = known(matrix), one_number(its_zero), op.outs[0].dtype
    if m.traits.matmul != "elementwise" or array is None or own is None:
        return None
    weights = array[0].astype(np.int32) - int(own)
    if (array != array[:1]).any() or abs(weights).max() > I8.range[1] or not kind.is_int:
        return None
    (rows, depth), (batch, _, columns) = weights.shape, x.shape
    reshaped = m.b.RESHAPE(
        m.b.TRANSPOSE(x, perms=(0, 2, 1)), m.b.shape((1, 1, batch * columns, depth))
    )
    bias = m.b.const([0] * rows, kind)
    made = m.b.layer("CONV2D", reshaped, weights.reshape(rows, 1, 1, depth), zero, bias, kind)
    shaped = m.b.RESHAPE(made, m.b.shape((batch, columns, rows)))
    return m.b.TRANSPOSE(shaped, perms=(0, 2, 1))


def again(m: Matcher, value: Value, functions: list[Op], channels: Array) -> Value:
    """The same functions of sums of which each channel is one of those that there were."""
    for op in functions:
        more = op.ins[1:]
        if op.attrs.get("per_channel"):
            more = [taken(m, v, channels) for v in more[:2]] + more[2:]
        value = m.b.op(op.name, value, *more, out=op.outs[0].dtype, loc=op.loc, **op.attrs)
    return value


def taken(m: Matcher, value: Value, channels: Array) -> Value:
    """The elements of a constant for some channels; one number serves all."""
    if value.type.size == 1 or np.array_equal(channels, np.arange(value.shape[0])):
        return value
    return m.b.remade(value, lambda a: a[channels], (len(channels),))


def repeated(count: int, times: int) -> Array:
    """All channels several times in a row."""
    return np.tile(np.arange(count), times)


def product_of(m: Matcher, product: Op, source: Value, channels: Array) -> Value:
    """The product for some of its output channels, in that order."""
    weight = product.operand("weight")
    if product.name == "CONV2D":
        shape: tuple[int, ...] = (len(channels), *weight.shape[1:])
        kernel = m.b.remade(weight, lambda a: a[channels], shape)
    else:
        rows, columns, _, _ = weight.shape
        shape = (rows, columns, len(channels), 1)
        kernel = m.b.remade(
            weight, lambda a: a.reshape(rows, columns, -1)[..., channels, None], shape
        )
    bias = taken(m, product.operand("bias"), channels)
    return m.b.op(
        product.name, source, kernel, bias, *product.ins[3:], out=product.outs[0].dtype,
        loc=product.loc, **product.attrs,
    )  # fmt: skip
