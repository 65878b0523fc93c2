"""int16 values as bytes, for targets that multiply matrices of int8 only.

x = 256 · high + low; sums of products of bytes have 32 bits, so two of them make a product with 0
and 1, exactly.
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

_LOWEST = -128  # the zero point of a lower byte


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
    high, low = Fixed(b, b.rescale(x, [1.0], 0, d.I32)).split_down(8)
    return high.to(d.I8).value, b.rescale(low.value, [1.0], _LOWEST, d.I8)


def _product(b: Lowering, x: Value, y: Value, *zeros: int) -> Fixed:
    return Fixed(b, b.MATMUL(x, y, *(b.const([zero], d.I8) for zero in zeros), out=d.I32))
