"""Alternatives for maximum, minimum and their index along an axis."""

from __future__ import annotations

import math

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.data_movement import first, piece
from tosaic.lowering.builder import Lowering
from tosaic.spec import dtypes as d


def extreme(b: Lowering, name: str, x: Value, axis: int) -> Value:
    """REDUCE_MAX or REDUCE_MIN; a target may have none along the last axis."""
    last, between = x.type.rank - 1, "MAXIMUM" if name == "REDUCE_MAX" else "MINIMUM"

    def halved() -> Value:
        if axis != last or x.dtype not in (d.I8, d.I16):
            raise Unsupported("halves of rows are compared in int8 and int16")
        return _of_halves(b, between, x)

    def halved_wide() -> Value:
        if x.dtype is not d.I32:
            raise Unsupported("an extreme of int32 alone has no other form than halves")
        return _smaller(b, between, x, axis)

    def transposed() -> Value:
        if axis != last:
            raise Unsupported("the axis is not the last")
        size, lanes = x.shape[last], b.traits.lanes
        rows = b.reshape(x, (x.type.size // size, size))  # matrices turn fastest
        if size >= 2 * lanes and not size % lanes:
            wide = b.reshape(rows, (rows.shape[0], size // lanes, lanes))
            found = extreme(b, name, wide, 1)
            rows = b.reshape(b.with_quant(found, None), (rows.shape[0], lanes))
        found = extreme(b, name, b.permute(rows, (1, 0)), 0)
        return b.reshape(b.with_quant(found, None), (*x.shape[:axis], 1))

    def opposite() -> Value:
        if name != "REDUCE_MIN":
            raise Unsupported("only a smallest element is the opposite of a largest")
        return _opposite(b, extreme(b, "REDUCE_MAX", _opposite(b, x), axis))

    return first(b, lambda: b.op(name, x, axis=axis), halved, opposite, transposed, halved_wide)


def _of_halves(b: Lowering, name: str, x: Value) -> Value:
    """Each element of one half of the rows beside one of the other, until a single one is left.

    That is far less work for vector units than a reduction. The halves of an odd number
    of elements overlap, which changes nothing.
    """
    few = x.type.rank <= b.traits.view_axes
    rows = x if few else b.reshape(x, (x.type.size // x.shape[-1], x.shape[-1]))
    return b.reshape(_smaller(b, name, rows, rows.type.rank - 1), (*x.shape[:-1], 1))


def _smaller(b: Lowering, name: str, x: Value, axis: int) -> Value:
    """Halves of an axis beside one another, until it has a single element; in int32."""
    found = x
    while (size := found.shape[axis]) > 1:
        half = (size + 1) // 2
        ends = (piece(b, found, axis, at, at + half) for at in (0, size - half))
        found = b.levels(b.op(name, *(b.levels(v) for v in ends)), x.dtype)
    return found


def place_of_extreme(b: Lowering, x: Value, axis: int, largest: bool) -> Value:
    """The first of the largest or smallest along an axis, which is then gone; int32."""
    return first(
        b,
        lambda: b.ARGMAX(x if largest else _opposite(b, x), axis=axis),
        lambda: _in_rows(b, x, axis, largest),
        lambda: _counted(b, x, axis, largest),
        lambda: _found(b, x, axis, largest),
    )


def _found(b: Lowering, x: Value, axis: int, largest: bool) -> Value:
    """The smallest number among the places that equal the extreme: for int32, which has any."""
    size, last = x.shape[axis], x.type.rank - 1
    best = extreme(b, "REDUCE_MAX" if largest else "REDUCE_MIN", x, axis)
    places = numbered(b, x, axis, d.I32)
    chosen = b.SELECT(b.EQUAL(x, best), places, b.const(np.full([1] * (last + 1), size), d.I32))
    found = extreme(b, "REDUCE_MIN", chosen, axis)
    return b.reshape(found, (*x.shape[:axis], *x.shape[axis + 1 :]))


def numbered(b: Lowering, x: Value, axis: int, kind: d.DType) -> Value:
    """The numbers of the places along an axis, to be broadcast."""
    shape = [size if i == axis else 1 for i, size in enumerate(x.shape)]
    return b.const(np.arange(x.shape[axis]).reshape(shape), kind)


def _opposite(b: Lowering, x: Value) -> Value:
    """Integers in the opposite order, none of which overflows: −1 − x."""
    if x.dtype.is_float:
        zero = b.const([0], x.dtype)
        return b.NEGATE(x, zero, zero)

    def negated() -> Value:
        if x.dtype is d.I8:  # TOSA negates int8 alone with a zero point
            return b.NEGATE(x, b.const([0], d.I8), b.const([-1], d.I8))
        wide = b.levels(x)
        return b.levels(b.SUB(b.number(-1, wide), wide), x.dtype)

    return first(b, lambda: b.BITWISE_NOT(x), negated)


def _in_rows(b: Lowering, x: Value, axis: int, largest: bool) -> Value:
    """The axis last, in a matrix of rows: the only shape that some targets take."""
    transposed = b.axis_last(x, axis)
    rows = b.reshape(transposed, (math.prod(transposed.shape[:-1]), transposed.shape[-1]))
    found = b.ARGMAX(rows if largest else _opposite(b, rows), axis=1)
    return b.reshape(found, transposed.shape[:-1])


def _counted(b: Lowering, x: Value, axis: int, largest: bool) -> Value:
    """The smallest number among the places that hold the extreme; the others count as most."""
    size, most = x.shape[axis], d.I16.range[1]
    if x.dtype not in (d.I8, d.I16) or size > most:
        raise Unsupported("the place of an extreme is counted in int16")
    best = b.levels(extreme(b, "REDUCE_MAX" if largest else "REDUCE_MIN", x, axis), d.I32)
    here = b.levels(x, d.I32)
    apart = b.SUB(best, here) if largest else b.SUB(here, best)
    other = b.MINIMUM(apart, b.number(1, apart))  # 0 where the extreme is
    places = numbered(b, x, axis, d.I32)
    far = b.mul(other, b.number(most, other))
    number = b.levels(b.MAXIMUM(far, places), d.I16)
    found = b.levels(extreme(b, "REDUCE_MIN", number, axis), d.I32)
    return b.reshape(found, (*x.shape[:axis], *x.shape[axis + 1 :]))
