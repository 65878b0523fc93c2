"""Matrix products of int16, also on targets that multiply matrices of int8 only.

x = 256 · high + low, with a byte each; a byte product has sums of 32 bits, so four of them make any
product, in a unit in which it fits 32 bits, and two make one with 0 and 1, exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.data_movement import first
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._sums import accumulator, zero_point
from tosaic.spec import dtypes as d

_MOST_TERMS = 1 << 15
_LOWEST = -128  # the zero point of a lower byte


def short_products(b: Lowering, x: Value, y: Value) -> Fixed:
    """Σ x · y of int16 [N, H, C] and [N, C, W]: 48 bits, or 32 rounded, in a unit of their own."""
    terms, zero = x.shape[-1], b.const([0], d.I16)
    spare = (terms - 1).bit_length()

    def by_bytes() -> Value:
        if terms > _MOST_TERMS:
            raise Unsupported(f"sums of {terms} products of int16 are not made of bytes")
        (x_high, x_low), (y_high, y_low) = bytes_of(b, x), bytes_of(b, y)
        upper = _product(b, x_high, y_high, 0, 0)
        mixed = _product(b, x_high, y_low, 0, _LOWEST) + _product(b, x_low, y_high, _LOWEST, 0)
        lower = _product(b, x_low, y_low, _LOWEST, _LOWEST)
        if spare > 8:  # the lower sums are rounded where they join the others
            rest = mixed + (lower >> 8) >> spare - 8
        else:
            rest = (mixed << 8 - spare) + (lower >> spare)
        return ((upper << 16 - spare) + rest).value

    made = first(b, lambda: b.MATMUL(x, y, zero, zero, out=d.I48), by_bytes)
    return Fixed(b, made, 1.0 if made.dtype is d.I48 else 2.0**spare)


def counted_rows(b: Lowering, picks: Callable[[d.DType], Value], rows: Value) -> Value:
    """Sums of rows, each as often as ``picks`` says, which are 0 and 1 of a type."""

    def plain() -> Value:
        none = b.const([0], rows.dtype)
        return b.MATMUL(picks(rows.dtype), rows, none, zero_point(b, rows), out=accumulator(rows))

    def by_bytes() -> Value:
        if rows.dtype is not d.I16:
            raise Unsupported("only int16 is multiplied byte by byte")
        which, (high, low) = picks(d.I8), bytes_of(b, rows)
        return ((_product(b, which, high, 0, 0) << 8) + _product(b, which, low, 0, _LOWEST)).value

    return first(b, plain, by_bytes)


def bytes_of(b: Lowering, x: Value) -> tuple[Value, Value]:
    """int16 as its upper bytes, and the lower ones less 128."""
    if x.is_const:
        return (
            b.remade(x, lambda a: a.astype(np.int32) >> 8, kind=d.I8),
            b.remade(x, lambda a: (a.astype(np.int32) & 255) + _LOWEST, kind=d.I8),
        )
    high, low = Fixed(b, b.rescale(x, [1.0], 0, d.I32)).floored(8)
    return high.to(d.I8).value, b.rescale(low.value, [1.0], _LOWEST, d.I8)


def _product(b: Lowering, x: Value, y: Value, *zeros: int) -> Fixed:
    return Fixed(b, b.MATMUL(x, y, *(b.const([zero], d.I8) for zero in zeros), out=d.I32))
