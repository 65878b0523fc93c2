"""Permutes weights instead of activations where a TRANSPOSE only reorders channels.

So it is with `flatten` before a linear layer and `unflatten` behind one, which are reshapes once
the layers next to them have their channels last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.ir.graph import Array, Op, Value
from tosaic.rewrite.match import Matcher, rewrite

_SAME = (
    "RESCALE", "CLAMP", "TABLE", "ERF", "SIGMOID", "TANH", "ABS", "CEIL", "EXP", "FLOOR", "LOG",
    "RECIPROCAL", "RSQRT", "SIN", "COS", "CAST", "NEGATE", "IDENTITY",
)  # fmt: skip


def _order(shape: Sequence[int], perms: Sequence[int], channels: int) -> Array | None:
    """Where each of the last ``channels`` elements of a transposition was before it.

    None unless the transposition moves elements within such runs only.
    """
    axis, size = len(shape), 1
    while size < channels and axis:
        axis -= 1
        size *= shape[axis]
    moved = [p for p in perms if p < axis and shape[p] != 1]
    inner = [p - axis for p in perms if p >= axis]
    outer_first = [p for p in perms if shape[p] != 1]
    if size != channels or moved != sorted(moved) or outer_first[: len(moved)] != moved:
        return None
    return np.arange(channels).reshape(shape[axis:]).transpose(inner).reshape(-1)


def _indexed(m: Matcher, value: Value, axis: int, order: Array) -> Value:
    """A constant with one axis in another order, when it is made."""
    if value.shape[axis] == 1:
        return value
    return m.b.remade(value, lambda a: np.take(a, order, axis))


@rewrite("CONV2D", "CONV3D", "TRANSPOSE_CONV2D", "MATMUL")
def order_inputs(m: Matcher, op: Op) -> Value | None:
    """Channels in the order that they are in before a transposition."""
    reshape = m.made_by(op.ins[0], "RESHAPE")
    transposed = m.made_by(reshape.ins[0], "TRANSPOSE") if reshape is not None else None
    weight = op.ins[1]
    if reshape is None or transposed is None or not weight.is_const:
        return None
    source, shape = transposed.ins[0], op.ins[0].shape
    order = _order(source.shape, transposed.attrs["perms"], shape[-1])
    if order is None:
        return None
    axis = 1 if op.name == "MATMUL" else weight.type.rank - 1
    weights = _indexed(m, weight, axis, np.argsort(order))
    flat = m.b.RESHAPE(source, reshape.ins[1])
    return m.b.op(op.name, flat, weights, *op.ins[2:], out=op.outs[0].dtype, **op.attrs)


@rewrite("TRANSPOSE")
def order_outputs(m: Matcher, op: Op) -> Value | None:
    """Channels of a product in the order that a transposition wants them in."""
    reshape = m.made_by(op.ins[0], "RESHAPE")
    if reshape is None or not m.only(op.ins[0]) or not reshape.ins[0].shape:
        return None
    chain = _chain(m, reshape.ins[0])
    order = _order(op.ins[0].shape, op.attrs["perms"], reshape.ins[0].shape[-1])
    if chain is None or order is None:
        return None
    conv, *others = chain
    axis = 2 if conv.name == "MATMUL" else 0
    ins = [conv.ins[0], _indexed(m, conv.ins[1], axis, order), *conv.ins[2:]]
    if conv.name != "MATMUL":
        ins[2] = _indexed(m, ins[2], 0, order)
    value = m.b.op(conv.name, *ins, out=conv.outs[0].dtype, **conv.attrs)
    for other in others:
        more = other.ins[1:]
        if other.attrs.get("per_channel"):
            more = [_indexed(m, v, 0, order) for v in more[:2]] + more[2:]
        value = m.b.op(other.name, value, *more, out=other.outs[0].dtype, **other.attrs)
    return m.b.RESHAPE(value, m.b.shape(op.outs[0].shape))


def _chain(m: Matcher, value: Value) -> list[Op] | None:
    """A product with constant weights and the functions of each value behind it."""
    found: list[Op] = []
    while m.only(value):
        op = m.made_by(value, *_SAME, "CONV2D", "MATMUL")
        if op is None or not all(v.is_const for v in op.ins[1:]):
            return None
        found.append(op)
        if op.name in ("CONV2D", "MATMUL"):
            return found[::-1]
        value = op.ins[0]
    return None


@rewrite("TRANSPOSE")
def transpose_narrow(m: Matcher, op: Op) -> Value | None:
    """Integers are moved before they become wider: what widens them is fused into its consumer."""
    wide = m.made_by(op.ins[0], "RESCALE", "CAST")
    if wide is None or not m.only(op.ins[0]) or wide.attrs.get("per_channel"):
        return None
    if not wide.ins[0].dtype.is_int or wide.ins[0].dtype.bits >= wide.outs[0].dtype.bits:
        return None
    transposed = m.b.TRANSPOSE(wide.ins[0], **op.attrs)
    return m.b.op(wide.name, transposed, *wide.ins[1:], out=op.outs[0].dtype, **wide.attrs)
