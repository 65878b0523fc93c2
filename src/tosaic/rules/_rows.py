"""Reciprocal, logarithm and inverse root of an int32 per row, in any integer profile.

The first two start from the same seed: S is shifted to u in [1, 2), an int8 table gives c near
1/u, and the miss 1 − u·c, which is below 0.006, is computed exactly. TOSA's MUL of int32 has a
product of 64 bits and a rounding shift, so nothing is lost on the way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tosaic.ir.graph import Value
from tosaic.lowering.builder import Lowering, multiplier_and_shift
from tosaic.spec import dtypes as d

PAIR = 32640 * 128  # the largest entry of a pair table whose nodes all fit int16
_STEPS = np.arange(-128, 128)
_LEVEL = round(2.0**29 / 508)  # 1/u is in [1/2, 1]: 3/4 and a seed of ±127 steps
_SEEDS = np.clip(np.round((1 / (1.5 + _STEPS / 256) - 0.75) * 508), -127, 127)
_LOGS = -np.log((_SEEDS * _LEVEL + 0.75 * 2.0**29) / 2.0**29)  # −ln c
_LOG_STEP = 0.7 / 65535  # what the 16 bits of such a logarithm count
_ROOT_STEPS = 255 / (15 / 16)  # of an int8 for u from 1/16 to 1, about their middle
_ROOTS = np.round((1 / np.sqrt(np.maximum(17 / 32 + _STEPS / _ROOT_STEPS, 1 / 16)) - 2.5) * 256 / 3)
_ROOTS = np.clip(_ROOTS, -128, 127)  # 1/√u is in [1, 4]: 2.5 and a seed of 3/256 steps


def scaled(b: Lowering, x: Value, factor: float) -> Value:
    """int32 times a real factor; only the result has to fit."""
    multiplier, shift = multiplier_and_shift(factor, 31)
    return product(b, x, b.number(multiplier, x), shift)


def product(b: Lowering, x: Value, y: Value, shift: int = 0) -> Value:
    """x · y / 2^shift, rounded once."""
    return b.MUL(x, y, b.const([shift], d.I8))


def tabled(b: Lowering, index: Value, levels: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Value:
    """int32 of 16 bits for each of 256 indices: a table for the upper byte, one for the lower."""
    bytes_ = (b.TABLE(index, b.const(byte - 128, d.I8)) for byte in divmod(levels, 256))
    upper, lower = (b.levels(v, given=-128) for v in bytes_)
    # A RESCALE by 256 beside one by 1 in a sum is what a device computes wrongly.
    return b.ADD(product(b, upper, b.number(256, upper)), lower)


def paired(b: Lowering, steps: Value, scale: float) -> Value:
    """exp for −255 to 0 steps: one step beyond each even node a line is met at its 1/128."""
    entries = np.round(PAIR * np.exp(scale * np.arange(-255, 1))).astype(np.int64)
    nodes = np.zeros(513, np.int64)
    nodes[0:512:2] = entries >> 7
    nodes[1:512:2] = nodes[0:512:2] + (entries & 127)
    nodes[512] = nodes[511]
    far = b.ADD(product(b, steps, b.number(256, steps)), b.number(255 * 256 - 32767, steps))
    return b.TABLE(b.rescale(far, [1.0], 0, d.I16), b.const(nodes, d.I16))


@dataclass(frozen=True, slots=True)
class Normal:
    """S = u · 2^(31 − zeros), what is known of 1/u, and how far off that is."""

    u: Value  # in [1, 2), times 2^30
    zeros: Value  # before the highest bit of S
    index: Value  # the upper bits of u, an int8
    seed: Value  # c, times 2^29
    missed: Value  # 1 − u · c, times 2^30


def _mantissa(b: Lowering, total: Value) -> tuple[Value, Value]:
    """u in [1, 2), times 2^30, of an int32 of at least 1, and the zeros before its highest bit."""
    zeros = b.CLZ(total)
    return b.LOGICAL_LEFT_SHIFT(total, b.SUB(zeros, b.number(1, zeros))), zeros


def normal(b: Lowering, total: Value) -> Normal:
    """An int32 of at least 1 as a mantissa and an exponent."""
    u, zeros = _mantissa(b, total)
    above = b.SUB(u, b.number(3 << 29, u))
    index = b.rescale(above, [2.0**-22], 0, d.I8)
    steps = b.rescale(b.TABLE(index, b.const(_SEEDS, d.I8)), [1.0], 0, d.I32)
    seed = b.ADD(product(b, steps, b.number(_LEVEL, steps)), b.number(3 << 27, steps))
    return Normal(u, zeros, index, seed, _missed(b, u, seed))


def _missed(b: Lowering, u: Value, inverse: Value) -> Value:
    return b.SUB(b.number(1 << 30, u), product(b, u, inverse, 29))


def mantissa_inverse(b: Lowering, s: Normal, exact: bool) -> Value:
    """2^29 / u. One of Newton's steps leaves less than 2^-14; a second, if exact, 2^-27."""
    inverse = b.ADD(s.seed, product(b, s.seed, s.missed, 30))
    if exact:
        inverse = b.ADD(inverse, product(b, inverse, _missed(b, s.u, inverse), 30))
    return inverse


def reciprocal(b: Lowering, s: Normal, bits: int, exact: bool) -> Value:
    """2^(28 + bits) / S for S of at least 2^(bits − 1)."""
    inverse = mantissa_inverse(b, s, exact)
    down = b.SUB(b.number(32 - bits, s.zeros), s.zeros)
    return b.ARITHMETIC_RIGHT_SHIFT(inverse, down, round=True)


def logarithm(b: Lowering, s: Normal, bits: int, minus: float, unit: float) -> Value:
    """ln S − minus in a unit, for S of at least 2^(bits − 1); off by 2·10^-5 and a unit."""
    levels = np.clip(np.round(_LOGS / _LOG_STEP), 0, 65535).astype(np.int64)
    mantissa = b.SUB(scaled(b, tabled(b, s.index, levels), _LOG_STEP / unit),
                     scaled(b, s.missed, 2.0**-30 / unit))  # fmt: skip
    above = b.SUB(b.number(32 - bits, s.zeros), s.zeros)
    offset = round(((bits - 1) * math.log(2.0) - minus) / unit)
    exponent = b.ADD(scaled(b, above, math.log(2.0) / unit), b.number(offset, above))
    return b.ADD(mantissa, exponent)


def short_logarithm(b: Lowering, total: Value, bits: int, minus: float, unit: float) -> Value:
    """ln S − minus in a unit in which it fits int16, for S of at least 2^(bits − 1)."""
    u, zeros = _mantissa(b, total)
    index = b.rescale(b.SUB(u, b.number(3 << 29, u)), [2.0**-14], 0, d.I16)
    nodes = np.log1p(np.arange(513) / 512) + (bits - 1) * math.log(2.0) - minus
    wide = b.TABLE(index, b.const(np.round(nodes / unit), d.I16))  # with 7 more bits
    mantissa = b.levels(b.rescale(wide, [1 / 128], 0, d.I16))
    above = b.SUB(b.number(32 - bits, zeros), zeros)
    exponent = b.levels(b.rescale(above, [math.log(2.0) / unit], 0, d.I16))
    return b.levels(b.ADD(mantissa, exponent), d.I16)


def inverse_root(b: Lowering, u: Value) -> Value:
    """2^28 / √u for u from 1/16 to 1, given times 2^31; off by less than 2^-22.

    The int8 seed is within 2.5 %; a step of Newton's, r + r·(1 − u·r²)/2, squares that.
    """
    index = b.rescale(b.SUB(u, b.number(17 << 26, u)), [_ROOT_STEPS / 2.0**31], 0, d.I8)
    steps = b.rescale(b.TABLE(index, b.const(_ROOTS, d.I8)), [1.0], 0, d.I32)
    root = b.ADD(product(b, steps, b.number(3 << 20, steps)), b.number(5 << 27, steps))
    for _ in range(2):
        square = product(b, root, root, 30)  # at most 16.8, times 2^26
        missed = b.SUB(b.number(1 << 30, u), product(b, u, square, 27))
        root = b.ADD(root, product(b, root, missed, 31))
    return root
