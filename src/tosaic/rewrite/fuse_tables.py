"""Fuses elementwise operators on one int8 value into a TABLE of 256 entries.

So are `x * sigmoid(x)` and `where(x > limit, x, 0)`, however many operators they are made of.
"""

from __future__ import annotations

import numpy as np

from tosaic.errors import TosaicError
from tosaic.ir.build import make
from tosaic.ir.graph import Array, Op, Value
from tosaic.rewrite.fold_constants import evaluate
from tosaic.rewrite.match import Matcher, rewrite
from tosaic.spec.dtypes import I8

_ENDS = ("RESCALE", "TABLE", "CLAMP", "SELECT", "MAXIMUM", "MINIMUM", "CAST")
_WITHIN = (
    *_ENDS, "ADD", "SUB", "MUL", "ABS", "NEGATE", "GREATER", "GREATER_EQUAL", "EQUAL",
    "LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT", "LOGICAL_XOR", "BITWISE_AND", "BITWISE_OR",
    "ARITHMETIC_RIGHT_SHIFT", "IDENTITY",
)  # fmt: skip
_MOST = 32  # operators


@rewrite(*_ENDS)
def tabulate(m: Matcher, op: Op) -> Value | None:
    """A table for several operators of which some take two functions of the same value."""
    source = _source(m, op) if op.outs[0].dtype is I8 and op.outs[0].shape else None
    if source is None:
        return None
    shape = (1,) * (source.type.rank - 1) + (256,)
    images = {source: np.arange(-128, 128).astype(np.int8).reshape(shape)}
    try:
        entries = _image(m, op.outs[0], images)
    except TosaicError:
        return None
    return m.b.TABLE(source, m.b.const(entries.reshape(-1), I8))


def _source(m: Matcher, end: Op) -> Value | None:
    """The one value that an operator is a function of, beyond a place where two meet."""
    region, front, is_joined = [end], _operands(end), False
    while _is_elementwise(region[-1]) and len(region) < _MOST:
        is_joined = is_joined or len(_operands(region[-1])) > 1
        if is_joined and len(front) == 1 and front[0].dtype is I8:
            return front[0]
        value = next((v for v in front if _is_inner(m, v, region)), None)
        if value is None or value.producer is None:
            return None
        region.append(value.producer)
        front = [v for v in front if v is not value]
        front += [v for v in _operands(value.producer) if v not in front]
    return None


def _operands(op: Op) -> list[Value]:
    """The values that an operator reads; a constant that is only rescaled is none."""
    return list(dict.fromkeys(v for v in op.ins if not (v.is_const or _is_number(v))))


def _is_number(value: Value) -> bool:
    made = value.producer
    return value.type.size == 1 and made is not None and all(v.is_const for v in made.ins)


def _is_inner(m: Matcher, value: Value, region: list[Op]) -> bool:
    """Whether only the region reads a value, and an operator makes it."""
    made = value.producer
    if made is None or made not in m.place or m.results[value]:
        return False
    return all(reader in region for reader in m.readers(value))


def _is_elementwise(op: Op) -> bool:
    """Whether each element of a result comes from those in its place, by the same rule."""
    if op.name not in _WITHIN or op.outs[0].dtype.is_float or op.attrs.get("per_channel"):
        return False
    if op.attrs.get("rounding_mode") == "INEXACT_ROUND":
        return False
    images = _operands(op)
    scalars = op.ins[:1] if op.name == "TABLE" else op.ins
    if any(v.type.size != 1 for v in scalars if v.is_const):
        return False
    return bool(images) and all(v.shape == op.outs[0].shape for v in images)


def _image(m: Matcher, value: Value, images: dict[Value, Array]) -> Array:
    """What a value is for each of the 256 that its source may be."""
    op = value.producer
    if value not in images and op is not None:
        ins = [v if v.is_const else m.b.const(_image(m, v, images), v.dtype) for v in op.ins]
        wanted = [op.outs[0].dtype]
        images[value] = evaluate(make(op.defn, m.b.env, ins, dict(op.attrs), wanted, (), None))
    return images[value]
