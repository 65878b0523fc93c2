"""Sinks CAST of 8-bit floats below data movement, and into the operators that read them as such."""

from __future__ import annotations

import numpy as np

from tosaic.ir.graph import Op, Value
from tosaic.rewrite.match import Matcher, known, one_number, rewrite
from tosaic.spec.dtypes import F8E4M3, MOST_E4M3, DType


def _narrow(m: Matcher, value: Value) -> Value | None:
    """The 8-bit floats that a value was cast from."""
    cast = m.made_by(value, "CAST")
    return cast.ins[0] if cast is not None and cast.ins[0].dtype.is_float8 else None


def _rounded(m: Matcher, value: Value, kind: DType) -> Value | None:
    """A constant in a type of 8 bits, if that has all of its numbers."""
    array = known(value)
    if array is None:
        return None
    narrow = array.astype(kind.array)
    same = np.array_equal(narrow.astype(array.dtype), array)
    return m.b.const(narrow, kind) if same else None


@rewrite("RESHAPE", "TRANSPOSE", "SLICE", "REVERSE", "TILE", "GATHER")
def cast_later(m: Matcher, op: Op) -> Value | None:
    """Bytes are moved, and cast behind."""
    x = _narrow(m, op.ins[0])
    if x is None or not m.only(op.ins[0]):
        return None
    return m.b.CAST(m.b.op(op.name, x, *op.ins[1:], **op.attrs), out=op.outs[0].dtype)


@rewrite("CAST")
def cast_back(m: Matcher, op: Op) -> Value | None:
    """The same 8-bit floats again, maybe limited between to what all of them are within."""
    kind, limit = op.outs[0].dtype, m.made_by(op.ins[0], "CLAMP")
    wide = op.ins[0]
    if limit is not None and kind is F8E4M3 and limit.attrs["nan_mode"] == "PROPAGATE":
        ends = -limit.attrs["min_val"], limit.attrs["max_val"]
        wide = limit.ins[0] if min(ends) >= MOST_E4M3 else wide
    x = _narrow(m, wide)
    return x if x is not None and x.dtype is kind else None


@rewrite("MAX_POOL2D", "ARGMAX")
def compare_narrow(m: Matcher, op: Op) -> Value | None:
    """The largest of 8-bit floats is one of them."""
    x, kind = _narrow(m, op.ins[0]), op.outs[0].dtype
    if x is None:
        return None
    if op.name == "ARGMAX":
        return m.b.ARGMAX(x, out=kind, **op.attrs)
    return m.b.CAST(m.b.MAX_POOL2D(x, **op.attrs), out=kind)


@rewrite("MATMUL", "CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D")
def multiply_narrow(m: Matcher, op: Op) -> Value | None:
    """Products of 8-bit floats are exact in the accumulator; zero points are 0 of their types."""
    found = [_narrow(m, v) for v in op.ins[:2]]
    kinds = [v.dtype for v in found if v is not None]
    if not kinds or not all(one_number(v) == 0 for v in op.ins[-2:]):
        return None
    pairs = zip(op.ins[:2], found)
    narrow = [own if own is not None else _rounded(m, v, kinds[0]) for v, own in pairs]
    x, y = narrow
    if x is None or y is None:
        return None
    if op.name not in ("MATMUL", "CONV2D") and x.dtype is not y.dtype:
        return None  # the reference model has no others of two types
    zeros = [m.b.const([0], v.dtype) for v in (x, y)]
    return m.b.op(op.name, x, y, *op.ins[2:-2], *zeros, **op.attrs, out=op.outs[0].dtype)
