"""Quotients of quantized values; what is divided by 0 is 0."""

from __future__ import annotations

import math

import torch

from tosaic.errors import Unsupported
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.builder import Lowering
from tosaic.rules._operands import scale_of
from tosaic.rules._rows import mantissa_inverse, normal, product
from tosaic.rules._sums import zero_of
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
    whole = None
    for part, bits in (
        (inverse >> 16, 16),
        ((inverse >> 8 & 255) - 128, 8),
        ((inverse & 255) - 128, 0),
    ):
        digit = b.TABLE(y, b.const(part.numpy(), d.I8))
        digit = b.with_quant(digit, Quant(1.0, 0 if bits == 16 else -128))
        wide = b.rescale(digit, [2.0**bits], 0, d.I32)
        whole = wide if whole is None else b.ADD(whole, wide)
    made = b.MUL(b.widened(x), whole, b.const([0], d.I8))
    return b.with_quant(made, Quant(scale_of(x) / scale_of(y) / 2.0**22))


def _of_shorts(b: Lowering, x: Value, y: Value) -> Value:
    """x · (1/u) · 2^k, where |y| = u · 2^-k and u is in [1, 2): 30 bits whatever y is.

    2^k is a shift, which is chosen so that all that the result can hold has 28 bits; what is
    more is limited before it is shifted to the left.
    """
    scale, wide = scale_of(x) / scale_of(y), b.widened(y)
    one = b.number(1, wide)
    sign = b.MINIMUM(b.MAXIMUM(wide, b.number(-1, wide)), one)
    s = normal(b, b.MAXIMUM(b.ABS(wide), one))
    inverse = product(b, sign, mantissa_inverse(b, s, exact=True))  # ±2^29 / u
    made = product(b, b.widened(x), inverse, 14)  # x / y · 2^(46 - zeros)
    most = 2.0**15 if b.wanted is None else 2.0**16 * b.wanted[0].one_scale / scale
    place = min(max(math.floor(28 - math.log2(most)), 16), 30)
    zero = b.number(0, s.zeros)
    up = b.MAXIMUM(b.SUB(s.zeros, b.number(46 - place, s.zeros)), zero)
    down = b.MAXIMUM(b.SUB(b.number(46 - place, s.zeros), s.zeros), zero)
    limit = b.ARITHMETIC_RIGHT_SHIFT(b.number(1 << 30, up), up, round=True)
    made = b.MINIMUM(b.MAXIMUM(made, b.SUB(zero, limit)), limit)
    made = b.ARITHMETIC_RIGHT_SHIFT(b.LOGICAL_LEFT_SHIFT(made, up), down, round=True)
    return b.with_quant(_limited(b, made, scale, place), Quant(scale / 2.0**place))


def _limited(b: Lowering, made: Value, scale: float, place: int) -> Value:
    """Within what RESCALE takes, which is beyond what a result can show."""
    if b.wanted is None:
        return made
    most = min(2.0**17 * b.wanted[0].one_scale / scale * 2.0**place, 2.0**31 - 1)
    limit = b.number(int(most), made)
    return b.MINIMUM(b.MAXIMUM(made, b.number(-int(most), made)), limit)
