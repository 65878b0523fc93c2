"""Bounds of a value: interval analysis for integers, a few operators back for floats."""

from __future__ import annotations

import math

from tosaic.ir.graph import Value
from tosaic.rewrite.match import Matcher, known

Ends = tuple[float, float]
_DEPTH = 6
_KEEP = {"RESHAPE", "TRANSPOSE", "SLICE", "REVERSE", "TILE", "IDENTITY", "MAX_POOL2D"}
_KEEP |= {"REDUCE_MAX", "REDUCE_MIN"}
_SMALL = 4096


def ends(m: Matcher, value: Value) -> Ends:
    """Numbers that no element is below or above; a NaN may be among them."""
    return m.intervals.of(value).ends if value.dtype.is_int else _float_ends(value, _DEPTH)


def _float_ends(value: Value, depth: int) -> Ends:
    op = value.producer
    if value.is_const:
        array = known(value) if value.type.size <= _SMALL else None
        if array is not None and array.size and not math.isnan(float(array.max())):
            return float(array.min()), float(array.max())
    if op is None or value.is_const or depth == 0:
        return -math.inf, math.inf
    if op.name == "CLAMP":
        least, most = op.attrs["min_val"], op.attrs["max_val"]
        low, high = _float_ends(op.ins[0], depth - 1)
        return min(max(low, least), most), min(max(high, least), most)
    if op.name in _KEEP:
        return _float_ends(op.ins[0], depth - 1)
    if op.name in ("CONCAT", "PAD") and len(op.ins) <= _DEPTH:
        parts = op.ins if op.name == "CONCAT" else [op.ins[0], op.ins[2]]
        found = [_float_ends(v, depth // 2) for v in parts]
        return min(low for low, _ in found), max(high for _, high in found)
    return (0.0, 1.0) if op.name == "SIGMOID" else (-math.inf, math.inf)
