"""Scatter, fill and accumulate rows by constant or computed indices."""

from __future__ import annotations

import math

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Array, Quant, Value
from tosaic.lowering.alternatives import mask as masks
from tosaic.lowering.alternatives.data_movement import first, joined, take
from tosaic.lowering.builder import Lowering
from tosaic.rules._byte_products import counted_rows
from tosaic.rules._indices import counted, hits, int32, known, picked, rows_at
from tosaic.rules._operands import Operand, converted, operands, scale_of
from tosaic.rules._sums import finished
from tosaic.rules.compare import where
from tosaic.spec import dtypes as d


def same_meaning(b: Lowering, x: Value, y: Value) -> tuple[Value, Value]:
    """Two values in one type and, if they are quantized, in the parameters of the result."""
    if x.quant is None and y.quant is None:
        return x, converted(b, y, x.dtype)
    if x.quant == y.quant and x.dtype is y.dtype:
        return x, y
    given = x if x.quant is not None else y
    assert given.quant is not None
    quant, kind = b.wanted or (given.quant, given.dtype)
    return b.requantize(x, quant, kind), b.requantize(y, quant, kind)


def written(b: Lowering, rows: Value, index: Value, new: Value) -> Value:
    """New rows in the places of old ones; of constant indices that repeat, the last counts.

    PyTorch leaves open which of several writes to one place counts, and TOSA forbids them.
    """
    rows, new = same_meaning(b, rows, new)
    numbers = known(index)
    if numbers is not None:
        return _chosen(b, joined(b, [rows, new], 1), _sources(numbers, rows.shape[1]))
    where_to = int32(b, index)

    def plain() -> Value:
        return b.with_quant(b.SCATTER(rows, where_to, new), rows.quant)

    def by_product() -> Value:
        found = hits(b, where_to, rows.shape[1])
        fresh = picked(b, lambda kind: counted(b, found, kind), new)
        return masks.chosen(b, masks.reduced(b, "REDUCE_ANY", found, 2), fresh, rows)

    def as_numbers() -> Value:
        old, fresh = (b.CAST(v, out=d.I8) for v in (rows, new))
        return b.CAST(b.SCATTER(old, where_to, fresh), out=d.BOOL)

    return first(b, plain, as_numbers if rows.dtype is d.BOOL else by_product)


def _sources(index: Array, size: int) -> Array:
    """For each row of the result: itself, or behind all of them the row that is written to it."""
    which = np.tile(np.arange(size), (index.shape[0], 1))
    for line, places in zip(which, index):
        for number, place in enumerate(places):
            line[place] = size + number
    return which


def _chosen(b: Lowering, rows: Value, which: Array) -> Value:
    if (which == which[:1]).all():
        return take(b, rows, 1, [int(i) for i in which[0]])
    return rows_at(b, rows, b.const(which, d.I32))


def filled(b: Lowering, rows: Value, index: Value, value: Operand) -> Value:
    """One number in several places, which may repeat."""
    found = hits(b, index, rows.shape[1])
    numbers = known(found)
    if numbers is None:
        mask = masks.reduced(b, "REDUCE_ANY", found, 2)
    else:
        mask = b.const(numbers.any(2, keepdims=True), d.BOOL)
    return where(b, mask, value, rows)


def added(b: Lowering, rows: Value, index: Value, new: Value, weight: float = 1) -> Value:
    """Rows added to the places of an index, which may repeat: a product with 0 and 1."""
    found, terms = hits(b, index, rows.shape[1]), index.shape[1]
    if rows.quant is None and not rows.dtype.is_float:
        return _added_integers(b, rows, found, new, weight)
    kind = new.dtype
    numbers = known(found)

    def picks(kind: d.DType) -> Value:
        return counted(b, found, kind) if numbers is None else b.const(numbers, kind)

    if new.quant is None:
        zero = b.const([0], kind)
        total = converted(b, b.MATMUL(picks(kind), new, zero, zero, out=d.F32), kind)
        if weight != 1:
            total = b.mul(total, b.number(weight, total))
        return b.ADD(*operands(b, rows, total))
    if rows.quant is None or weight <= 0:
        raise Unsupported(
            "rows are added to quantized ones if these are too, with a weight above 0"
        )
    sums = counted_rows(b, picks, new)
    with b.wanting(None):
        sums = finished(b, b.with_quant(sums, Quant(scale_of(new) * weight)), terms, 17)
    spare = min(10, 29 - new.dtype.bits - math.ceil(math.log2(terms)))
    sums = b.widened(sums, max(spare, 0))
    addend = b.rescale(rows, [scale_of(rows) / scale_of(sums)], 0, d.I32)
    return b.with_quant(b.ADD(addend, sums), sums.quant)


def _added_integers(b: Lowering, rows: Value, found: Value, new: Value, weight: float) -> Value:
    """Plain integers, for which TOSA has no matrix product: chosen and summed up."""
    batch, size, terms = found.shape
    mask = b.reshape(found, (batch, size, terms, 1))
    each = b.reshape(int32(b, new), (batch, 1, terms, new.shape[2]))
    if weight != 1:
        each = b.mul(each, b.number(weight, each))
    total = b.REDUCE_SUM(masks.chosen(b, mask, each, b.number(0, each)), axis=2)
    return converted(b, b.ADD(int32(b, rows), b.reshape(total, rows.shape)), rows.dtype)
