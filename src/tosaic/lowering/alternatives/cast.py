"""Casts between real numbers and integers in a graph, equal to PyTorch's quantize and dequantize.

Both are the same in every bit as PyTorch's own in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tosaic.ir.graph import Array, Quant, Value
from tosaic.spec import dtypes as d

if TYPE_CHECKING:
    from tosaic.lowering.builder import Lowering


def to_integers(b: Lowering, x: Value, quant: Quant, out: d.DType) -> Value:
    """Real numbers as the nearest integers, ties to even; what does not fit saturates."""
    scale, zero = quant.one_scale, quant.one_zero
    if x.dtype is not d.F32:
        x = b.CAST(x, out=d.F32)
    steps = b.mul(x, b.number(float(np.float32(1.0 / scale)), x))
    if zero == 0:
        return b.with_quant(b.CAST(steps, out=out), quant)
    # A sum with the zero point would round twice: it is added when the numbers are whole.
    if out is d.I8:  # of which int16 holds every sum, and both steps saturate
        return b.with_quant(b.levels(b.CAST(steps, out=d.I16), out, zero=zero), quant)
    low, high = out.range
    near = b.CLAMP(steps, min_val=float(low - zero), max_val=float(high - zero))
    whole = b.CAST(near, out=d.I32)
    return b.with_quant(b.levels(whole, out, zero=zero), quant)


def to_real(b: Lowering, x: Value) -> Value:
    """Integers as what they mean; a constant when it is made."""
    quant = x.quant
    if quant is None or x.dtype.is_float:
        return x
    if x.is_const:
        return b.remade(x, lambda a: _real(a, quant), kind=d.F32)
    y = b.CAST(x, out=d.F32)
    if np.any(quant.zero_point):
        y = b.SUB(y, _along(b, quant.zero_point, quant.axis, y))
    return b.mul(y, _along(b, quant.scale, quant.axis, y))


def float_cast(b: Lowering, x: Value, kind: d.DType) -> Value:
    """The same numbers in another type, as PyTorch casts; 8-bit floats by way of float32."""
    if x.dtype is kind:
        return x
    for narrow, other in ((x.dtype, kind), (kind, x.dtype)):
        if narrow.is_float8 and (other.is_float8 or not other.is_float):
            return float_cast(b, float_cast(b, x, d.F32), kind)
    if kind is d.F8E4M3:  # PyTorch saturates where TOSA, without infinities, has NaN
        x = b.CLAMP(x, min_val=-d.MOST_E4M3, max_val=d.MOST_E4M3)
    return b.CAST(x, out=kind)


def _along(b: Lowering, numbers: Any, axis: int | None, like: Value) -> Value:
    """One number, or one for each channel, to be broadcast."""
    shape = [-1 if index == axis else 1 for index in range(like.type.rank)]
    return b.const(np.asarray(numbers, np.float32).reshape(shape), like.dtype)


def _real(integers: Array, quant: Quant) -> Array:
    shape = [-1 if index == quant.axis else 1 for index in range(integers.ndim)]
    scale, zero = (np.asarray(n, np.float32) for n in (quant.scale, quant.zero_point))
    zero = zero.reshape(shape) if zero.ndim else zero
    real: Array = (integers.astype(np.float32) - zero) * scale.reshape(shape)
    return real
