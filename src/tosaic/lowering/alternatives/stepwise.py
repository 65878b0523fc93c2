"""Piecewise constant functions of an int16 value, and any function from int8 to int16, exactly.

A TABLE of int16 has lines between its 513 entries, so it has no jumps, but at each multiple of 128
it has an entry of its own. A function with one jump at most in each 128 inputs is given by three
numbers for each of these segments: its first result, where the jump is, and how high it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from tosaic.errors import Unsupported
from tosaic.ir.graph import Array, Quant, Value
from tosaic.lowering.alternatives.lut import reals
from tosaic.lowering.builder import Lowering
from tosaic.spec import dtypes as d

_SEGMENT = 128  # inputs between two entries of a table
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """For each segment its first result, the place of its jump (128 if there is none) and the
    height of it, all without the zero point of the results."""

    first: Array
    place: Array
    height: Array


def stepwise(b: Lowering, x: Value, function: Function) -> Value:
    """A function in the parameters that are wanted; Unsupported where it has too many jumps."""
    if x.quant is None or b.wanted is None:
        raise Unsupported("a function of integers needs to know what its results become")
    quant, out = b.wanted
    if x.dtype is d.I8:
        return _from_bytes(b, x, x.quant, function, quant, out)
    found = segments(function, x.quant, quant, out)
    if x.dtype is not d.I16 or found is None:
        raise Unsupported("a function of int16 with several jumps in 128 inputs has no table")
    wide, size = b.levels(x), b.number
    half, bits = _SEGMENT // 2, _SEGMENT.bit_length() - 1
    lower = b.SUB(wide, size(half, wide))  # then a rounding shift rounds down
    index = b.ARITHMETIC_RIGHT_SHIFT(lower, size(bits, wide), round=True)
    start = b.mul(index, size(_SEGMENT, wide))
    node, inside = b.levels(start, d.I16), b.SUB(wide, start)
    past = b.SUB(inside, b.SUB(_looked_up(b, node, found.place), size(1, wide)))
    behind = b.MINIMUM(b.MAXIMUM(past, size(0, wide)), size(1, wide))
    heights = np.unique(found.height[found.place < _SEGMENT])
    height = _looked_up(b, node, found.height) if len(heights) > 1 else size(
        int(heights[0]) if len(heights) else 0, wide
    )  # fmt: skip
    jump = b.mul(behind, height)
    total = b.ADD(_looked_up(b, node, found.first), jump)
    return b.with_quant(b.levels(total, out, zero=quant.one_zero), quant)


@lru_cache(64)
def segments(function: Function, given: Quant, wanted: Quant, out: d.DType) -> Segments | None:
    """A function of all int16 in segments; None if it is no function of single jumps."""
    levels = _levels(function, np.arange(*_I16), given, wanted, out).reshape(-1, _SEGMENT)
    changes = np.diff(levels, axis=1) != 0
    first, height = levels[:, 0], levels[:, -1] - levels[:, 0]
    steep = max(int(np.abs(np.diff(v)).max()) for v in (first, height)) > d.I16.range[1]
    if changes.sum(1).max() > 1 or steep or np.abs(levels).max() > d.I16.range[1]:
        return None
    place = np.where(changes.any(1), changes.argmax(1) + 1, _SEGMENT)
    return Segments(first, place, height)


_I8, _I16 = ((kind.range[0], kind.range[1] + 1) for kind in (d.I8, d.I16))


def _levels(function: Function, codes: Array, given: Quant, wanted: Quant, out: d.DType) -> Array:
    """The results for integers, without the zero point of theirs; what is no number is 0."""
    real = function(reals(torch.from_numpy(codes), given))
    steps = (real.double() / wanted.one_scale).nan_to_num(nan=0.0).round().numpy()
    low, high = (end - wanted.one_zero for end in out.range)
    levels: Array = np.clip(steps, low, high).astype(np.int64)
    return levels


def _looked_up(b: Lowering, node: Value, entries: Array) -> Value:
    """The entry of each segment, as int32, for inputs that are the first of one."""
    made = b.TABLE(node, b.const(np.append(entries, entries[-1]), d.I16))
    return b.levels(b.rescale(made, [1 / _SEGMENT], 0, d.I16))


def _from_bytes(
    b: Lowering, x: Value, given: Quant, function: Function, quant: Quant, out: d.DType
) -> Value:
    """128 times an int8 without its zero point is the place of an entry; int32 by its bytes."""
    if out is d.I32:
        return b.with_quant(
            _by_bytes(b, x, _levels(function, np.arange(*_I8), given, quant, out)), quant
        )
    places = np.arange(-256, 257) + given.one_zero
    entries = _levels(function, places, given, quant, out)
    if out is not d.I16 or np.abs(np.diff(entries)).max() > d.I16.range[1]:
        raise Unsupported("a table from int8 to int16 has no room for the slope of this function")
    node = b.rescale(x, [float(_SEGMENT)], 0, d.I16)
    made = b.TABLE(node, b.const(entries, d.I16))
    return b.with_quant(b.rescale(made, [1 / _SEGMENT], 0, d.I16), quant)


def _by_bytes(b: Lowering, x: Value, entries: Array) -> Value:
    """Integers of up to 24 bits: a table for each byte."""
    total, left, unit = None, entries, 1
    while total is None or left.any():
        low = (left + 128) % 256 - 128
        if unit > 1 << 16:
            raise Unsupported("a function of int8 has results of more than 24 bits")
        part = b.levels(b.TABLE(x, b.const(low, d.I8)))
        if unit > 1:
            part = b.mul(part, b.number(unit, part))
        total = part if total is None else b.ADD(total, part)
        left, unit = (left - low) // 256, unit * 256
    return total
