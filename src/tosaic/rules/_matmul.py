"""MATMUL of two computed matrices, of int16 by other operators where the target has none of it.

Few lines are added up one by one. Otherwise an int16 is 256 times its upper byte and its lower
byte, which has no sign: as an int8 it has the zero point -128. Four products of int8 matrices are
added up in int32, in steps of a power of two that keep 30 bits of the largest sum.
"""

from __future__ import annotations

from tosaic.errors import Unsupported
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.data_movement import first
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._byte_products import bytes_of
from tosaic.rules._matmul_rows import by_lines
from tosaic.rules._sums import largest, zero_point
from tosaic.spec import dtypes as d

_LONGEST = 1 << 14  # terms whose products of bytes add up to an int32
_LINES = 128  # which are added up one by one


def products(b: Lowering, x: Value, y: Value, unit: float) -> Fixed:
    """Sums of products of integers [N, H, C] and [N, C, W]; ``unit`` is that of a product.

    The result has int32 or int48, and a multiple of the unit as its own. Both are int8, or the
    first one is int16.
    """

    def whole() -> Value:
        kind = d.I48 if x.dtype is d.I16 else d.I32
        sums = b.MATMUL(x, y, zero_point(b, x), zero_point(b, y), out=kind)
        return Fixed(b, sums, unit).quantized()

    if x.dtype is not d.I16:
        made = whole()
    elif y.dtype is not d.I16:
        made = _by_lines(b, x, y, unit)
    else:
        forms = whole, lambda: _by_lines(b, x, y, unit), lambda: _by_bytes(b, x, y, unit)
        made = first(b, *forms)
    assert made.quant is not None
    return Fixed(b, made, made.quant.one_scale)


def _by_lines(b: Lowering, x: Value, y: Value, unit: float) -> Value:
    if min(x.shape[1], y.shape[2]) > _LINES:
        raise Unsupported(f"a product of int16 matrices of more than {_LINES} rows and columns")
    bits = (largest(y) - 1).bit_length()  # which leave a term 15
    if y.dtype is d.I16:
        bits = max((x.shape[2] * largest(y)).bit_length() - 16, 0)  # which leave a sum 31
    return Fixed(b, by_lines(b, x, y, bits), unit * 2.0**bits).quantized()


def _by_bytes(b: Lowering, x: Value, y: Value, unit: float) -> Value:
    terms = x.shape[2]
    if terms > _LONGEST:
        raise Unsupported(f"a product of int16 matrices over {terms} terms; {_LONGEST} is the most")
    zeros = b.const([0], d.I8), b.const([-128], d.I8)
    rows, columns = bytes_of(b, x), bytes_of(b, y)
    sums = [
        [Fixed(b, b.MATMUL(p, q, m, n, out=d.I32)) for q, n in zip(columns, zeros)]
        for p, m in zip(rows, zeros)
    ]
    (upper, left), (right, lower) = sums
    spare = (terms - 1).bit_length() + 1
    middle = left + right
    middle = middle << 8 - spare if spare < 8 else middle >> spare - 8
    return ((upper << 16 - spare) + middle + (lower >> spare)).at(unit * 2.0**spare).quantized()
