"""MATMUL of int16 row by row, for targets without it.

Elements are multiplied, rounded to int16 and added up, which is what such a target makes of any
product of matrices. A line of the result is a column, which adds up along channels, or a row, which
adds up along another axis: channels are computed lane by lane, so few terms are better elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.data_movement import first, joined, piece
from tosaic.lowering.builder import Lowering
from tosaic.rules._sums import zero_point
from tosaic.spec import dtypes as d


def by_lines(b: Lowering, x: Value, y: Value, bits: int) -> Value:
    """Σ x · y / 2^bits as int32, of int16 [N, H, C] and int8 [N, C, W]; each term fits int16."""
    batch, height, terms = x.shape
    width = y.shape[2]
    t = b.traits
    column = batch * height * _up(terms, t.lanes) + t.op_cycles
    row = t.row_cost * batch * terms * _up(width, t.lanes) + t.op_cycles
    forms: list[Callable[[], Value]] = [
        lambda: _columns(b, x, y, bits),
        lambda: _rows(b, x, y, bits),
    ]
    return first(b, *(forms if column * width <= row * height else forms[::-1]))


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def _short(b: Lowering, x: Value) -> Value:
    """int16 of int8, by a product with ones: a RESCALE would be repeated for each consumer."""
    flat, ones = (1, 1, math.prod(x.shape[:2]), x.shape[2]), np.ones((1, 1, x.shape[2], 1))
    wide = b.layer("DEPTHWISE_CONV2D", b.reshape(x, flat), ones, zero_point(b, x))
    return b.reshape(b.rescale(wide, [1.0], 0, d.I16), x.shape)


def _terms(b: Lowering, x: Value, y: Value, bits: int) -> Value:
    return b.rescale(b.mul(x, y), [2.0**-bits], 0, d.I16)


def _columns(b: Lowering, x: Value, y: Value, bits: int) -> Value:
    transposed, lines = _short(b, b.permute(y, (0, 2, 1))), []
    for i in range(y.shape[2]):
        terms = _terms(b, x, piece(b, transposed, 1, i, i + 1), bits)
        lines.append(b.REDUCE_SUM(b.rescale(terms, [1.0], 0, d.I32), axis=2))
    return joined(b, lines, 2)


def _rows(b: Lowering, x: Value, y: Value, bits: int) -> Value:
    """A sum along an axis that is no channel is a convolution with ones."""
    ones = np.ones((1, *y.shape[1:], 1))
    wide, lines = _short(b, y), []
    for i in range(x.shape[1]):
        factors = b.reshape(piece(b, x, 1, i, i + 1), (*y.shape[:2], 1))
        terms = _terms(b, wide, factors, bits)
        rows = b.reshape(terms, (1, *y.shape))
        sums = b.layer("DEPTHWISE_CONV2D", rows, ones, acc=d.I48)
        lines.append(b.reshape(b.rescale(sums, [1.0], 0, d.I32), (y.shape[0], 1, y.shape[2])))
    return joined(b, lines, 1)
