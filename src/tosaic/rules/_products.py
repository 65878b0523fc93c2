"""Products along an axis in 32-bit fixed point."""

from __future__ import annotations

import math

from tosaic.errors import Unsupported
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.data_movement import piece
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._operands import scale_of
from tosaic.rules._sums import largest, zero_of

_BITS = 30


def factors(b: Lowering, x: Value) -> Fixed:
    """A quantized value without its zero point, moved up to 30 bits as its type allows: exact."""
    up = _BITS - math.ceil(math.log2(largest(x)))
    plain = Fixed(b, b.levels(x, given=zero_of(x)), scale_of(x))
    return (plain * (1 << up)).at(scale_of(x) / 2.0**up)


def unit_of(unit: float, count: int) -> float:
    """What 1 stands for in a product of so many factors of a unit."""
    return unit * (unit * 2.0**_BITS) ** (count - 1)


def multiplied(b: Lowering, x: Value, y: Value) -> Value:
    return b.mul(x, y, _BITS)


def meant(b: Lowering, x: Value, units: tuple[float, ...], axis: int | None, count: int) -> Value:
    """A product with its meaning; Unsupported if what was rounded could be seen in it."""
    wanted = b.wanted[0].scale if b.wanted is not None else 0.0
    step = min(wanted) if isinstance(wanted, tuple) else wanted
    if b.wanted is not None and max(units) * count > step:
        raise Unsupported(
            f"a product of {count} numbers of such a range needs more than 32 bits to be as fine "
            f"as its result"
        )
    quant = Quant(units[0]) if axis is None else Quant(units, 0, axis)
    return b.with_quant(x, quant)


def product(b: Lowering, x: Value, axis: int) -> Value:
    """All along an axis, which stays with one element: halves by halves."""
    while (size := x.shape[axis]) > 1:
        half = size // 2
        y = multiplied(b, piece(b, x, axis, 0, half), piece(b, x, axis, half, 2 * half))
        if size % 2:
            last = piece(b, x, axis, size - 1, size)
            first = multiplied(b, piece(b, y, axis, 0, 1), last)
            rest = [piece(b, y, axis, 1, half)] if half > 1 else []
            y = b.CONCAT(first, *rest, axis=axis) if rest else first
        x = y
    return x
