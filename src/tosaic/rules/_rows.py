"""Reciprocal, logarithm and inverse root of an int32 per row, in any integer profile.

The first two start from the same seed: S is shifted to u in [1, 2), an int8 table gives c near
1/u, and the miss 1 − u·c, which is below 0.006, is computed exactly. TOSA's MUL of int32 has a
product of 64 bits and a rounding shift, so nothing is lost on the way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tosaic.ir.graph import Array
from tosaic.lowering.fixed_point import Fixed
from tosaic.spec.dtypes import I8, I16, I32

PAIR = 32640 * 128  # the largest entry of a pair table whose nodes all fit int16
_STEPS = np.arange(-128, 128)
_LEVEL = round(2.0**29 / 508)  # 1/u is in [1/2, 1]: 3/4 and a seed of ±127 steps
_SEEDS = np.clip(np.round((1 / (1.5 + _STEPS / 256) - 0.75) * 508), -127, 127)
_LOGS = -np.log((_SEEDS * _LEVEL + 0.75 * 2.0**29) / 2.0**29)  # −ln c
_LOG_STEP = 0.7 / 65535  # what the 16 bits of such a logarithm count
_ROOT_STEPS = 255 / (15 / 16)  # of an int8 for u from 1/16 to 1, about their middle
_ROOTS = np.round((1 / np.sqrt(np.maximum(17 / 32 + _STEPS / _ROOT_STEPS, 1 / 16)) - 2.5) * 256 / 3)
_ROOTS = np.clip(_ROOTS, -128, 127)  # 1/√u is in [1, 4]: 2.5 and a seed of 3/256 steps


def tabled(index: Fixed, levels: Array) -> Fixed:
    """int32 of 16 bits for each of 256 indices: a table for the upper byte, one for the lower."""
    b = index.b
    bytes_ = (index.table(byte - 128, I8).value for byte in divmod(levels, 256))
    upper, lower = (Fixed(b, b.levels(v, given=-128)) for v in bytes_)
    # A RESCALE by 256 beside one by 1 in a sum is what a device computes wrongly.
    return upper * 256 + lower


def paired(steps: Fixed, scale: float) -> Fixed:
    """exp for −255 to 0 steps: one step beyond each even node a line is met at its 1/128."""
    entries = np.round(PAIR * np.exp(scale * np.arange(-255, 1))).astype(np.int64)
    nodes = np.zeros(513, np.int64)
    nodes[0:512:2] = entries >> 7
    nodes[1:512:2] = nodes[0:512:2] + (entries & 127)
    nodes[512] = nodes[511]
    return (steps.at(1.0) * 256 + (255 * 256 - 32767)).to(I16).table(nodes, I16).at(1 / PAIR)


@dataclass(frozen=True, slots=True)
class Normal:
    """S = u · 2^(31 − zeros), what is known of 1/u, and how far off that is."""

    u: Fixed  # in [1, 2)
    zeros: Fixed  # before the highest bit of S
    index: Fixed  # the upper bits of u, an int8
    seed: Fixed  # c
    missed: Fixed  # 1 − u · c


def _mantissa(total: Fixed) -> tuple[Fixed, Fixed]:
    """u in [1, 2) of an int32 of at least 1, and the zeros before its highest bit."""
    zeros = total.zeros()
    return (total << zeros - 1).at(2.0**-30), zeros


def normal(total: Fixed) -> Normal:
    """An int32 of at least 1 as a mantissa and an exponent."""
    u, zeros = _mantissa(total)
    index = (u - 1.5).to(I8, 2.0**-8)
    seed = (index.table(_SEEDS, I8).to(I32) * _LEVEL).at(2.0**-29) + 0.75
    return Normal(u, zeros, index, seed, _missed(u, seed))


def _missed(u: Fixed, inverse: Fixed) -> Fixed:
    return 1.0 - u.times(inverse, u.unit)


def mantissa_inverse(s: Normal, exact: bool) -> Fixed:
    """1/u. One of Newton's steps leaves less than 2^-14; a second, if exact, 2^-27."""
    inverse = s.seed + s.seed.times(s.missed, s.seed.unit)
    if exact:
        inverse += inverse.times(_missed(s.u, inverse), inverse.unit)
    return inverse


def reciprocal(total: Fixed, bits: int, exact: bool) -> Fixed:
    """1/S, in 2^(28 + bits) of what S counts, for S of at least 2^(bits − 1)."""
    s = normal(total)
    inverse = mantissa_inverse(s, exact) >> 32 - bits - s.zeros
    return inverse.at(2.0 ** -(28 + bits) / total.unit)


def logarithm(total: Fixed, bits: int, unit: float) -> Fixed:
    """ln S in a unit, for S of at least 2^(bits − 1); off by 2·10^-5 and a unit."""
    s = normal(total)
    levels = np.clip(np.round(_LOGS / _LOG_STEP), 0, 65535).astype(np.int64)
    mantissa = tabled(s.index, levels).at(_LOG_STEP).scaled(unit) - s.missed.scaled(unit)
    exponent = (32 - bits - s.zeros).at(math.log(2.0)).scaled(unit)
    return mantissa + (exponent + ((bits - 1) * math.log(2.0) + math.log(total.unit)))


def short_logarithm(total: Fixed, bits: int, unit: float) -> Fixed:
    """ln S in a unit in which it fits int16, for S of at least 2^(bits − 1)."""
    u, zeros = _mantissa(total)
    nodes = np.log1p(np.arange(513) / 512) + (bits - 1) * math.log(2.0) + math.log(total.unit)
    index = (u - 1.5).to(I16, 2.0**-16)
    mantissa = index.table(np.round(nodes / unit), I16).at(unit / 128).to(I16, unit).to(I32)
    exponent = (32 - bits - zeros).at(math.log(2.0)).to(I16, unit).to(I32)
    return (mantissa + exponent).to(I16)


def inverse_root(u: Fixed) -> Fixed:
    """1/√u, times 2^28, for u from 1/16 to 1, given times 2^31; off by less than 2^-22.

    The int8 seed is within 2.5 %; a step of Newton's, r + r·(1 − u·r²)/2, squares that.
    """
    index = (u - 17 / 32).to(I8, 1 / _ROOT_STEPS)
    root = (index.table(_ROOTS, I8).to(I32) * (3 << 20)).at(2.0**-28) + 2.5
    for _ in range(2):
        square = root.times(root, 2.0**-26)  # at most 16.8
        missed = 1.0 - u.times(square, 2.0**-30)
        root += root.times(missed.at(missed.unit / 2), root.unit)
    return root
