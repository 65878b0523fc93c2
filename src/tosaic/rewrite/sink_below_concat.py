"""Sinks a function that all operands of a CONCAT have below it: one operator instead of several.

Convolutions side by side end in RESCALEs of their own channels: joined along the channels, their
accumulators take one RESCALE with the multipliers of all.
"""

from __future__ import annotations

import numpy as np

from tosaic.ir.graph import Array, Op, Value
from tosaic.rewrite.match import Matcher, form, known

_FUNCTIONS = (
    "RESCALE", "CLAMP", "TABLE", "CAST", "ABS", "BITWISE_NOT", "CEIL", "CLZ", "COS", "ERF", "EXP",
    "FLOOR", "LOG", "LOGICAL_NOT", "NEGATE", "RECIPROCAL", "RSQRT", "SIGMOID", "SIN", "TANH",
)  # fmt: skip


@form("CONCAT")
def apply_once(m: Matcher, op: Op) -> Value | None:
    """f(a) beside f(b) as f of a beside b, unless f is part of what makes a and b."""
    if m.traits.fuses_epilogue:
        return None
    found = [m.made_by(value, *_FUNCTIONS) for value in op.ins]
    makers = [maker for maker in found if maker is not None and m.only(maker.outs[0])]
    if len(makers) < max(2, len(op.ins)) or any(not _is_alike(makers[0], o) for o in makers[1:]):
        return None
    others = [_joined(makers, position, op) for position in range(1, len(makers[0].ins))]
    kept = [value for value in others if value is not None]
    if len(kept) < len(others):
        return None
    whole = m.b.CONCAT(*(maker.ins[0] for maker in makers), **op.attrs)
    constants = [m.b.const(array, value.dtype) for array, value in zip(kept, makers[0].ins[1:])]
    attrs = {**makers[0].attrs}
    if makers[0].name == "RESCALE":
        attrs["per_channel"] = constants[0].type.size > 1
    return m.b.op(makers[0].name, whole, *constants, out=op.outs[0].dtype, **attrs)


def _is_alike(one: Op, other: Op) -> bool:
    """Whether two operators are one function of values of one type, up to factors of channels."""
    given = [{k: v for k, v in o.attrs.items() if k != "per_channel"} for o in (one, other)]
    types = [(o.name, o.ins[0].dtype, o.ins[0].type.rank) for o in (one, other)]
    return given[0] == given[1] and types[0] == types[1]


def _joined(makers: list[Op], position: int, concat: Op) -> Array | None:
    """The constant that serves all operators: theirs if it is one, or those of all channels."""
    arrays = [known(maker.ins[position]) for maker in makers]
    constants = [array for array in arrays if array is not None]
    if len(constants) < len(arrays):
        return None
    is_factor = makers[0].name == "RESCALE" and position < 3
    last = concat.attrs["axis"] == concat.outs[0].type.rank - 1
    if not is_factor or not last:
        same = all(np.array_equal(constants[0], other) for other in constants[1:])
        return constants[0] if same else None
    parts = [np.broadcast_to(c.reshape(-1), v.shape[-1:]) for c, v in zip(constants, concat.ins)]
    whole: Array = np.concatenate(parts)
    return whole
