"""What values can be: the least and the greatest, as far as a few operators back tell."""

from __future__ import annotations

import math

from tosaic.ir.graph import Op, Value
from tosaic.rewrite.match import known, one_number
from tosaic.spec.dtypes import I8

Bounds = tuple[float, float]
DEPTH = 6
_KEEP = {"RESHAPE", "TRANSPOSE", "SLICE", "REVERSE", "TILE", "IDENTITY", "MAX_POOL2D"}
_KEEP |= {"REDUCE_MAX", "REDUCE_MIN"}
_SMALL = 4096


def bounds(value: Value, depth: int = DEPTH) -> Bounds:
    """Numbers that no element is below or above; a NaN may be among them."""
    whole: Bounds = value.dtype.range if value.dtype.is_int else (-math.inf, math.inf)
    op = value.producer
    if value.is_const:
        return _constant(value, whole)
    if op is None or depth == 0:
        return whole
    found = _computed(op, depth)
    return whole if found is None else (max(whole[0], found[0]), min(whole[1], found[1]))


def _constant(value: Value, whole: Bounds) -> Bounds:
    array = known(value) if value.type.size <= _SMALL else None
    if array is None:
        return whole
    low, high = float(array.min()), float(array.max())
    return whole if math.isnan(low) or math.isnan(high) else (low, high)


def _computed(op: Op, depth: int) -> Bounds | None:
    if op.name == "CLAMP":
        low, high = bounds(op.ins[0], depth - 1)
        least, most = op.attrs["min_val"], op.attrs["max_val"]
        return min(max(low, least), most), min(max(high, least), most)
    if op.name in _KEEP:
        return bounds(op.ins[0], depth - 1)
    if op.name == "SIGMOID":
        return 0.0, 1.0
    if op.name == "TABLE" and op.outs[0].dtype is I8:
        return bounds(op.ins[1], 1)
    if op.name in ("CONCAT", "PAD"):
        parts = op.ins if op.name == "CONCAT" else [op.ins[0], op.ins[2]]
        found = [bounds(v, depth // 2) for v in parts[:DEPTH]] if len(parts) <= DEPTH else []
        return (min(b[0] for b in found), max(b[1] for b in found)) if found else None
    if op.name == "RESCALE":
        return _rescaled(op, depth)
    return None


def _rescaled(op: Op, depth: int) -> Bounds | None:
    """A RESCALE never lets a larger value become a smaller one."""
    plain = not (op.attrs["input_unsigned"] or op.attrs["output_unsigned"])
    numbers = [one_number(v) for v in op.ins[1:]]
    if not plain or op.attrs["rounding_mode"] != "SINGLE_ROUND" or None in numbers:
        return None
    multiplier, shift, before, after = (int(n) for n in numbers if n is not None)
    if multiplier < 0 or not 2 <= shift <= 62:
        return None
    low, high = (int(n) for n in bounds(op.ins[0], depth - 1))
    half, (least, most) = 1 << (shift - 1), op.outs[0].dtype.range
    ends = [((n - before) * multiplier + half >> shift) + after for n in (low, high)]
    return max(ends[0], least), min(ends[1], most)
