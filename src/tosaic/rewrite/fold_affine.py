"""Folds per-channel factors and terms into the weights and biases of float products.

So does the batch norm that comes behind a convolution, or before one without padding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tosaic.ir.graph import Array, Op, Value
from tosaic.rewrite.match import Matcher, numbers, rewrite
from tosaic.spec.dtypes import F32

CONVOLUTIONS = ("CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D")


def _operand(op: Op) -> tuple[Value, Value] | None:
    """A value and the constant beside it, one number for each channel or one for all."""
    for x, c in ((op.ins[0], op.ins[1]), (op.ins[1], op.ins[0])):
        if c.is_const and not x.is_const and x.type == op.outs[0].type:
            return (x, c) if c.type.size == (c.shape[-1] if c.shape else 1) else None
        if op.name == "SUB":
            break
    return None


def _source(m: Matcher, x: Value, *names: str) -> tuple[Op, list[Value]] | None:
    """The product that x is, perhaps in another shape with the same channels, for x alone."""
    shapes: list[Value] = []
    while m.only(x) and (reshape := m.made_by(x, "RESHAPE")) is not None:
        if not x.shape or reshape.ins[0].shape[-1:] != x.shape[-1:]:
            return None
        shapes.append(x)
        x = reshape.ins[0]
    op = m.made_by(x, *names) if m.only(x) else None
    return None if op is None or x.dtype is not F32 else (op, shapes)


def _behind(m: Matcher, op: Op, *names: str) -> tuple[Op, list[Value], Array] | None:
    """The product whose channels an operator scales or shifts, its shapes since, and by what."""
    pair = _operand(op) if op.outs[0].dtype is F32 else None
    found = _source(m, pair[0], *names) if pair is not None else None
    return None if pair is None or found is None else (*found, numbers(pair[1]).reshape(-1))


def _shaped(m: Matcher, value: Value, shapes: list[Value]) -> Value:
    return m.b.RESHAPE(value, m.b.shape(shapes[0].shape)) if shapes else value


def _made(m: Matcher, like: Value, make: Callable[[], Array]) -> Value:
    """A constant of that type, computed in float64 when it is needed."""
    return m.b.const(make, like.dtype, shape=like.shape)


def _is_tame(factor: Array) -> bool:
    """Whether weights times these numbers stay within the range of float32 by any measure."""
    size = np.abs(factor)
    return bool((np.isfinite(size) & ((size == 0) | (size > 1e-15)) & (size < 1e15)).all())


@rewrite("MUL")
def scale_weights(m: Matcher, op: Op) -> Value | None:
    """A factor behind a convolution, in its weights and its bias."""
    found = _behind(m, op, *CONVOLUTIONS)
    if found is None:
        return None
    conv, shapes, factor = found
    weight, bias = conv.operand("weight"), conv.operand("bias")
    if not (weight.is_const and bias.is_const) or not _is_tame(factor):
        return None
    along = _along_output(conv, weight, factor)
    new_weight = _made(m, weight, lambda: numbers(weight) * along)
    new_bias = m.b.const(numbers(bias) * factor, bias.dtype)
    made = m.b.op(conv.name, conv.ins[0], new_weight, new_bias, *conv.ins[3:], **conv.attrs)
    return _shaped(m, made, shapes)


def _along_output(conv: Op, weight: Value, factor: Array) -> Array:
    """Numbers of output channels as they lie in the weights."""
    if len(factor) == 1:
        return factor
    if conv.name == "DEPTHWISE_CONV2D":
        return factor.reshape(weight.shape[2:])
    return factor.reshape(-1, *(1,) * (weight.type.rank - 1))


@rewrite("ADD", "SUB")
def shift_bias(m: Matcher, op: Op) -> Value | None:
    """A term behind a convolution, in its bias."""
    found = _behind(m, op, *CONVOLUTIONS)
    if found is None:
        return None
    conv, shapes, term = found
    bias, sign = conv.operand("bias"), 1 if op.name == "ADD" else -1
    if not bias.is_const or not np.isfinite(term).all():
        return None
    new_bias = m.b.const(numbers(bias) + sign * term, bias.dtype)
    made = m.b.op(conv.name, conv.ins[0], conv.ins[1], new_bias, *conv.ins[3:], **conv.attrs)
    return _shaped(m, made, shapes)


def _along_input(conv: Op, factor: Array) -> Array:
    """Numbers of input channels as they lie in the weights."""
    return factor.reshape(-1, 1) if conv.name == "DEPTHWISE_CONV2D" else factor


def _before(m: Matcher, op: Op, *names: str) -> tuple[Value, Array, Op] | None:
    """What an operator before a convolution reads, and its numbers for each input channel."""
    inner = m.made_by(op.ins[0], *names)
    if inner is None or op.ins[0].dtype is not F32 or not m.only(op.ins[0]):
        return None
    pair, constant = _operand(inner), op.operand("weight").is_const and op.operand("bias").is_const
    return (pair[0], numbers(pair[1]).reshape(-1), inner) if pair and constant else None


@rewrite(*CONVOLUTIONS)
def scale_inputs(m: Matcher, op: Op) -> Value | None:
    """A factor before a convolution, in its weights: what it pads with is 0 either way."""
    found = _before(m, op, "MUL")
    if found is None or not _is_tame(found[1]):
        return None
    along, weight = _along_input(op, found[1]), op.operand("weight")
    new_weight = _made(m, weight, lambda: numbers(weight) * along)
    return m.b.op(op.name, found[0], new_weight, *op.ins[2:], **op.attrs)


@rewrite("CONV2D", "CONV3D", "DEPTHWISE_CONV2D")
def shift_inputs(m: Matcher, op: Op) -> Value | None:
    """A term before a convolution that does not pad, in its bias."""
    found = None if any(op.attrs["pad"]) else _before(m, op, "ADD", "SUB")
    if found is None or not np.isfinite(found[1]).all():
        return None
    x, term, inner = found
    weight, bias = numbers(op.operand("weight")), op.operand("bias")
    sums = weight * _along_input(op, term if inner.name == "ADD" else -term)
    depthwise = op.name == "DEPTHWISE_CONV2D"
    more = sums.sum((0, 1)).reshape(-1) if depthwise else sums.reshape(len(sums), -1).sum(1)
    new_bias = m.b.const(numbers(bias) + more, bias.dtype)
    return m.b.op(op.name, x, op.ins[1], new_bias, *op.ins[3:], **op.attrs)


@rewrite("MUL")
def scale_matrix(m: Matcher, op: Op) -> Value | None:
    """A factor behind a product with a constant matrix, in the matrix."""
    found = _behind(m, op, "MATMUL")
    if found is None:
        return None
    product, shapes, factor = found
    matrix = product.ins[1]
    if not matrix.is_const or matrix.dtype is not F32 or not _is_tame(factor):
        return None
    new = _made(m, matrix, lambda: numbers(matrix) * factor)
    made = m.b.MATMUL(product.ins[0], new, *product.ins[2:], out=F32)
    return _shaped(m, made, shapes)
