"""Quotients of quantized values; what is divided by 0 is 0."""

from __future__ import annotations

import math
from itertools import starmap

import torch
from torch import Tensor

from tosaic.errors import Unsupported
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._operands import scale_of
from tosaic.rules._rows import mantissa_inverse, normal
from tosaic.rules._sums import summed, zero_of
from tosaic.spec import dtypes as d


def quotient(b: Lowering, x: Value, y: Value) -> Value:
    """x / y of two int8 or two int16."""
    if x.dtype is y.dtype is d.I8:
        return _of_bytes(b, x, y)
    if x.dtype is y.dtype is d.I16:
        return _of_shorts(b, x, y)
    raise Unsupported("a quotient of integers needs two int8 or two int16")


def _of_bytes(b: Lowering, x: Value, y: Value) -> Value:
    """x · (1/y) with 1/y in steps of 2^-22, which three tables of int8 hold.

    The divisor without its zero point is at most 255, so 1/y has 14 good bits, and the product
    of 8 and 22 bits fits int32.
    """
    steps = torch.arange(-128, 128, dtype=torch.float64) - zero_of(y)
    inverse = (2.0**22 / steps).nan_to_num(posinf=0.0).round().long()
    parts = (
        (inverse >> 16, 16, 0),
        ((inverse >> 8 & 255) - 128, 8, -128),
        ((inverse & 255) - 128, 0, -128),
    )

    def digit(part: Tensor, bits: int, zero: int) -> Value:
        entry = b.with_quant(b.TABLE(y, b.const(part.numpy(), d.I8)), Quant(1.0, zero))
        return b.rescale(entry, [2.0**bits], 0, d.I32)

    whole = summed(b, starmap(digit, parts))
    made = b.mul(b.widened(x), whole)
    return b.with_quant(made, Quant(scale_of(x) / scale_of(y) / 2.0**22))


def _of_shorts(b: Lowering, x: Value, y: Value) -> Value:
    """x · (1/u) · 2^k, where |y| = u · 2^-k and u is in [1, 2): 30 bits whatever y is.

    2^k is a shift, which is chosen so that all that the result can hold has 28 bits; what is
    more is limited before it is shifted to the left, and to what RESCALE takes at the end.
    """
    scale, wide = scale_of(x) / scale_of(y), Fixed.of(b, y).at(1.0)
    sign = wide.within(1)
    s = normal(wide.abs().maximum(1))
    inverse = sign * mantissa_inverse(s, exact=True)  # ±1 / u
    made = Fixed.of(b, x).times(inverse, scale_of(x) * 2.0**-15).at(1.0)  # x / y · 2^(46 - zeros)
    most = 2.0**15 if b.wanted is None else 2.0**16 * b.wanted[0].one_scale / scale
    place = min(max(math.floor(28 - math.log2(most)), 16), 30)
    up = (s.zeros - (46 - place)).maximum(0)
    down = (46 - place - s.zeros).maximum(0)
    limit = Fixed(b, up.constant(1 << 30)) >> up
    made = (made.maximum(-limit).minimum(limit) << up >> down).at(scale / 2.0**place)
    if b.wanted is not None:
        made = made.within(2.0**17 * b.wanted[0].one_scale)
    return made.quantized()
