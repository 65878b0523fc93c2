"""Simplifies arithmetic: drops neutral operands, merges CLAMP, RESCALE, MUL and TABLE in a row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tosaic.errors import TosaicError
from tosaic.ir.build import make
from tosaic.ir.graph import Array, Op, Value
from tosaic.rewrite.fold_constants import evaluate
from tosaic.rewrite.match import Matcher, known, numbers, one_number, rewrite
from tosaic.rewrite.value_bounds import ends
from tosaic.spec.dtypes import F32, I8, I16, I32

_SMALL = 1 << 16  # the numbers of larger constants are not looked at
_FEW_BITS = (I8, I16)


def _all_are(value: Value, number: float) -> bool:
    array = known(value) if value.type.size <= _SMALL else None
    return array is not None and bool((array == number).all())


@rewrite("ADD", "SUB", "MUL")
def drop_neutral(m: Matcher, op: Op) -> Value | None:
    """x + 0, x - 0 and x · 1."""
    neutral = 1 if op.name == "MUL" else 0
    if op.name == "MUL" and one_number(op.ins[2]) != 0:
        return None
    for value, other in ((op.ins[0], op.ins[1]), (op.ins[1], op.ins[0])):
        if value.type == op.outs[0].type and _all_are(other, neutral):
            return value
        if op.name == "SUB":
            break
    return None


@rewrite("MUL")
def merge_factors(m: Matcher, op: Op) -> Value | None:
    """(x · c) · d of floats as x · (c · d), where that product is as precise."""
    outer = _factor(op)
    before = None if outer is None else m.made_by(outer[0], "MUL")
    if outer is None or before is None or not m.only(outer[0]):
        return None
    inner = _factor(before)
    if inner is None or not op.outs[0].dtype.is_float:
        return None
    shape = np.broadcast_shapes(inner[1].shape, outer[1].shape)
    if math.prod(shape) > max(inner[1].type.size, outer[1].type.size):
        return None
    product = numbers(inner[1], exact=True) * numbers(outer[1], exact=True)
    if not _is_tame(product, op.outs[0]):
        return None
    factor = m.b.const(product, op.outs[0].dtype)
    return m.b.MUL(inner[0], factor, op.ins[2])


@rewrite("MUL")
def move_factor(m: Matcher, op: Op) -> Value | None:
    """x · (y · c) as (x · y) · c, for a product behind it to take c in."""
    if op.outs[0].dtype is not F32 or any(v.is_const for v in op.ins[:2]):
        return None
    for x, y in ((op.ins[0], op.ins[1]), (op.ins[1], op.ins[0])):
        inner = m.made_by(y, "MUL")
        pair = _factor(inner) if inner is not None and m.only(y) else None
        number = None if pair is None else one_number(pair[1])
        if pair is not None and number is not None and 1e-3 < abs(number) < 1e3:
            factor = m.b.const(np.full((1,) * op.outs[0].type.rank, number), F32)
            return m.b.MUL(m.b.MUL(x, pair[0], op.ins[2]), factor, op.ins[2])
    return None


@rewrite("MUL")
def narrow_product(m: Matcher, op: Op) -> Value | None:
    """Integers without a zero point are multiplied as they are, not made wider before."""
    wide = [m.made_by(v, "RESCALE") for v in op.ins[:2]]
    narrow = [w.ins[0] for w in wide if w is not None and only_widens(w)]
    if len(narrow) < 2 or narrow[0].dtype is not narrow[1].dtype or one_number(op.ins[2]) != 0:
        return None
    return m.b.MUL(*narrow, op.ins[2], out=I32)


def only_widens(op: Op, zero: int | None = 0) -> bool:
    """Whether a RESCALE to int32 gives every number as it is, or less any zero point if None."""
    if op.ins[0].dtype not in _FEW_BITS or op.outs[0].dtype is not I32 or not _is_plain(op):
        return False
    multiplier, shift = _fraction(op)
    is_zero = zero is None or one_number(op.ins[3]) == zero
    return multiplier == 1 << shift and is_zero and one_number(op.ins[4]) == 0


def _factor(op: Op) -> tuple[Value, Value] | None:
    """A value and the constant that multiplies it."""
    for x, c in ((op.ins[0], op.ins[1]), (op.ins[1], op.ins[0])):
        if c.is_const and not x.is_const and c.type.size <= _SMALL:
            return x, c
    return None


def _is_tame(given: Array, like: Value) -> bool:
    """Whether numbers are neither too large nor too small for all the digits of a type."""
    size = np.abs(given)
    least, most = (2.0**-14, 2.0**15) if like.dtype.name == "f16" else (2.0**-120, 2.0**120)
    return bool(((size == 0) | ((size >= least) & (size <= most))).all())


@rewrite("CLAMP")
def drop_clamp(m: Matcher, op: Op) -> Value | None:
    """Limits that the values before it keep anyway."""
    x = op.ins[0]
    if x.dtype.is_float and op.attrs["nan_mode"] != "PROPAGATE":
        return None
    low, high = ends(m, x)
    return x if low >= op.attrs["min_val"] and high <= op.attrs["max_val"] else None


@rewrite("MAXIMUM", "MINIMUM")
def drop_extreme(m: Matcher, op: Op) -> Value | None:
    """Limits of int32 that the values before them keep anyway."""
    if not op.outs[0].dtype.is_int:
        return None
    for x, limit in (op.ins, op.ins[::-1]):
        if x.type != op.outs[0].type or not limit.is_const:
            continue
        (low, high), (least, most) = ends(m, x), ends(m, limit)
        if low >= most if op.name == "MAXIMUM" else high <= least:
            return x
    return None


@rewrite("CLAMP")
def merge_clamps(m: Matcher, op: Op) -> Value | None:
    before = m.made_by(op.ins[0], "CLAMP")
    if before is None or before.attrs["nan_mode"] != op.attrs["nan_mode"]:
        return None
    low, high = op.attrs["min_val"], op.attrs["max_val"]
    ends = [min(max(before.attrs[end], low), high) for end in ("min_val", "max_val")]
    attrs = {**op.attrs, "min_val": ends[0], "max_val": ends[1]}
    return m.b.CLAMP(before.ins[0], **attrs)


def _domain(value: Value) -> Array:
    low, high = value.dtype.range
    return np.arange(low, high + 1).astype(value.dtype.array)


def _images(m: Matcher, ops: Sequence[Op]) -> Array | None:
    """What operators in a row make of every value that there is; None if not all are defined."""
    image = _domain(ops[0].ins[0])
    try:
        for op in ops:
            x = m.b.const(image, op.ins[0].dtype)
            wanted = [op.outs[0].dtype]
            image = evaluate(make(op.defn, m.b.env, [x, *op.ins[1:]], dict(op.attrs), wanted,
                                    (), None))  # fmt: skip
    except TosaicError:
        return None
    return image


def _is_plain(op: Op) -> bool:
    """Whether an operator is one function of one signed value, the same everywhere."""
    if op.name == "RESCALE":
        flags = ("per_channel", "input_unsigned", "output_unsigned")
        exact = op.attrs["rounding_mode"] != "INEXACT_ROUND"
        return exact and all(v.is_const for v in op.ins[1:]) and not any(op.attrs[f] for f in flags)
    return op.name == "CLAMP" or all(v.is_const for v in op.ins[1:])


_FUNCTIONS = ("TABLE", "RESCALE", "CLAMP", "NEGATE")


@rewrite(*_FUNCTIONS)
def compose_tables(m: Matcher, op: Op) -> Value | None:
    """A table and another function of one int8 value before or behind it as one table."""
    before = m.made_by(op.ins[0], *_FUNCTIONS)
    if before is None or "TABLE" not in (op.name, before.name) or not m.only(op.ins[0]):
        return None
    if any(v.dtype is not I8 for v in (before.ins[0], op.ins[0], op.outs[0])):
        return None
    if not (_is_plain(op) and _is_plain(before)):
        return None
    entries = _images(m, (before, op))
    if entries is None:
        return None
    return m.b.TABLE(before.ins[0], m.b.const(entries, I8))


@rewrite("RESCALE", "TABLE")
def drop_unit(m: Matcher, op: Op) -> Value | None:
    """A RESCALE or a table that gives every value back that there can be: pixels over 255."""
    x = op.ins[0]
    if x.dtype is not op.outs[0].dtype or x.dtype not in _FEW_BITS or not _is_plain(op):
        return None
    domain, image, (low, high) = _domain(x), _images(m, (op,)), ends(m, x)
    seen = (domain >= low) & (domain <= high)
    return x if image is not None and np.array_equal(image[seen], domain[seen]) else None


@rewrite("RESCALE")
def merge_rescales(m: Matcher, op: Op) -> Value | None:
    """Two in a row as one, where every value there is becomes the same by it."""
    before = m.made_by(op.ins[0], "RESCALE")
    if before is None or before.ins[0].dtype not in _FEW_BITS or not m.only(op.ins[0]):
        return None
    if not (_is_plain(op) and _is_plain(before)) or _is_alike(m, before, op):
        return None
    wanted = _images(m, (before, op))
    if wanted is None:
        return None
    first, second = _fraction(before), _fraction(op)
    bits = max((first[0] * second[0]).bit_length() - 31, 0)
    multiplier, shift = first[0] * second[0], first[1] + second[1] - bits
    multiplier = multiplier + (1 << bits >> 1) >> bits
    while multiplier.bit_length() > 31 or shift > 62:
        multiplier, shift = multiplier >> 1, shift - 1
    if shift < 2:
        return None
    merged = m.b.RESCALE(
        before.ins[0], m.b.const([multiplier], I32), m.b.const([shift], I8), before.ins[3],
        op.ins[4], scale32=True, rounding_mode="SINGLE_ROUND", per_channel=False,
        out=op.outs[0].dtype,
    )  # fmt: skip
    made = merged.producer
    assert made is not None
    image = _images(m, (made,))
    return merged if image is not None and np.array_equal(image, wanted) else None


def _is_alike(m: Matcher, before: Op, op: Op) -> bool:
    """Whether int8 was made int16 for an operator whose other operand is of that type."""
    if (before.ins[0].dtype, op.ins[0].dtype, op.outs[0].dtype) != (I8, I16, I32):
        return False
    for reader in m.readers(op.outs[0]):
        if reader.name in ("ADD", "SUB", "MUL"):
            others = [m.made_by(v, "RESCALE") for v in reader.ins[:2] if v is not op.outs[0]]
            if any(made is not None and made.ins[0].dtype is I16 for made in others):
                return True
    return False


def _fraction(op: Op) -> tuple[int, int]:
    """Multiplier and shift of a RESCALE."""
    multiplier, shift = (int(numbers(v).item()) for v in op.ins[1:3])
    return multiplier, shift
