"""Moves MAX_POOL2D before monotone functions, which then process fewer elements.

So the functions between an image and a MAX_POOL2D have only what the pool leaves to compute, and
the larger of two images is taken of what the pool leaves of each.
"""

from __future__ import annotations

from tosaic.ir.graph import Op, Value
from tosaic.rewrite.match import Matcher, form, known, numbers
from tosaic.spec.dtypes import I8, I32, I48

_ROUNDED = ("SINGLE_ROUND", "DOUBLE_ROUND")
_RIDERS = ("CLAMP", "TABLE")


@form("MAX_POOL2D")
def pool_first(m: Matcher, op: Op) -> Value | None:
    """Functions of a pooled image in the place of a pool of functions of it."""
    return _through(m, op, op.ins[0], {}) if op.ins[0].dtype.is_int else None


def _pooled(m: Matcher, pool: Op, value: Value, found: dict[Value, Value | None]) -> Value | None:
    """The pool of a value, as early as possible; None if it has no type that pools take."""
    if value not in found:
        made = _through(m, pool, value, found)
        if made is None and value.dtype is pool.ins[0].dtype:
            made = m.b.op(pool.name, value, **pool.attrs)
        found[value] = made
    return found[value]


def _through(m: Matcher, pool: Op, value: Value, found: dict[Value, Value | None]) -> Value | None:
    """What makes a value, of pooled operands."""
    op = value.producer if m.only(value) else None
    if op is None or op not in m.place or value.shape != pool.ins[0].shape:
        return None
    images = [v for v in op.ins if not v.is_const]
    if any(v.shape != value.shape for v in images) or not _grows(op, len(images)):
        return None
    ins = [v if v.is_const else _pooled(m, pool, v, found) for v in op.ins]
    small = [v for v in ins if v is not None]
    if len(small) < len(ins) or _is_free(m, op, small[0]):
        return None
    return m.b.op(op.name, *small, out=op.outs[0].dtype, loc=op.loc, **op.attrs)


def _is_free(m: Matcher, op: Op, pooled: Value) -> bool:
    """Whether a function costs nothing next to sums, and the pool goes past nothing else."""
    is_next = pooled.producer is not None and pooled.producer.name == "MAX_POOL2D"
    made = op.ins[0].producer
    ends_sums = made is not None and made.name == "RESCALE" and made.ins[0].dtype in (I32, I48)
    return is_next and op.name in _RIDERS and m.traits.fuses_epilogue and ends_sums


def _grows(op: Op, images: int) -> bool:
    """Whether the result of an operator never falls as an element grows, place by place."""
    if op.name == "MAXIMUM" and images > 1:
        return True
    if op.name in ("CLAMP", "IDENTITY", "MAXIMUM", "MINIMUM"):
        return images == 1 and all(set(v.shape[:-1]) <= {1} for v in op.ins if v.is_const)
    if op.name == "RESCALE":
        unsigned = op.attrs["input_unsigned"] or op.attrs["output_unsigned"]
        return op.attrs["rounding_mode"] in _ROUNDED and not unsigned and _none_below(op.ins[1])
    if op.name == "TABLE":
        table = known(op.ins[1]) if op.ins[0].dtype is I8 else None
        return table is not None and bool((table[1:] >= table[:-1]).all())
    return op.name == "DEPTHWISE_CONV2D" and _is_scaling(op)


def _none_below(value: Value, limit: float = 0) -> bool:
    return value.is_const and bool((numbers(value) >= limit).all())


def _is_scaling(op: Op) -> bool:
    """A depthwise convolution that multiplies each element by a number, none below 0."""
    weight, zero = op.operand("weight"), op.operand("weight_zp")
    if weight.shape[:2] != (1, 1) or weight.shape[3] != 1 or not all(
        v.is_const for v in op.ins[1:]
    ):  # fmt: skip
        return False
    if any(op.attrs["pad"]) or op.attrs["stride"] != (1, 1):
        return False
    return _none_below(weight, float(numbers(zero).reshape(-1)[0]))
