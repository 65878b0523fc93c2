"""MATMUL of int16 line by line, for targets without it.

Elements are multiplied, scaled and added up along channels, which is what such a target makes of
any product of matrices. A line of the result is a column, or a row of the transposed result.
"""

from __future__ import annotations

import math

import numpy as np

from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.data_movement import joined, piece
from tosaic.lowering.builder import Lowering
from tosaic.rules._sums import zero_point
from tosaic.spec import dtypes as d


def by_lines(b: Lowering, x: Value, y: Value, bits: int) -> Value:
    """Σ x · y / 2^bits as int32, of int16 [N, H, C] and any [N, C, W].

    Terms have 16 bits where ``y`` has 8, which is faster, and 32 elsewhere; the sums fit int32.
    """
    columns, kind = _short(b, b.permute(y, (0, 2, 1))), d.I16 if y.dtype is d.I8 else d.I32
    if columns.shape[1] <= x.shape[1]:
        return _summed(b, x, columns, bits, kind)
    return b.permute(_summed(b, columns, x, bits, kind), (0, 2, 1))


def _short(b: Lowering, x: Value) -> Value:
    """As int16, by a product with ones: a RESCALE would be repeated for each consumer."""
    if x.dtype is d.I16:
        return x
    flat, ones = (1, 1, math.prod(x.shape[:2]), x.shape[2]), np.ones((1, 1, x.shape[2], 1))
    wide = b.layer("DEPTHWISE_CONV2D", b.reshape(x, flat), ones, zero_point(b, x))
    return b.reshape(b.rescale(wide, [1.0], 0, d.I16), x.shape)


def _summed(b: Lowering, x: Value, lines: Value, bits: int, kind: d.DType) -> Value:
    """Products of [N, H, C] with each line of [N, W, C], added up: [N, H, W]."""
    sums = []
    for i in range(lines.shape[1]):
        terms = b.rescale(b.mul(x, piece(b, lines, 1, i, i + 1)), [2.0**-bits], 0, kind)
        wide = terms if kind is d.I32 else b.rescale(terms, [1.0], 0, d.I32)
        sums.append(b.REDUCE_SUM(wide, axis=2))
    return joined(b, sums, 2)
