"""Interpolation over three axes, and cubic over two."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tosaic.front.registry import Sample
from tosaic.ir.graph import Array, Quant, Value
from tosaic.lowering.alternatives.data_movement import take
from tosaic.lowering.builder import Lowering
from tosaic.rules._operands import scale_of
from tosaic.rules._sums import summed
from tosaic.rules.resize import Sizes, floored_places, mixed, nearest, sizes_of, upsampling
from tosaic.spec import dtypes as d

_BITS = 14  # of cubic weights in integers: an int16 value times one fits int32 four times


def _nearest3d(
    b: Lowering, x: Value, output_size: Sizes, factors: Sequence[float | None], exact: bool = False
) -> Value:
    """Planes as TOSA resizes them, then picks of these."""
    sizes = sizes_of(x.shape[-3:], output_size, factors)
    batch, channels, depth = x.shape[:3]
    planes = b.reshape(x, (batch, channels * depth, *x.shape[3:]))
    wide = nearest(b, planes, sizes[1:], factors[1:], 2, exact)
    deep = b.reshape(wide, (batch, channels, depth, *sizes[1:]))
    return take(b, deep, 2, floored_places(depth, sizes[0], factors[0], exact))


def _trilinear(
    b: Lowering, x: Value, output_size: Sizes, factors: Sequence[float | None], align_corners: bool
) -> Value:
    """Planes, then lines through them: integers are rounded twice."""
    sizes = sizes_of(x.shape[-3:], output_size, factors)
    batch, channels, depth = x.shape[:3]
    planes = b.reshape(x, (batch, channels * depth, *x.shape[3:]))
    wide = mixed(b, planes, sizes[1:], factors[1:], 2, align_corners)
    lines = b.reshape(wide, (batch, channels, depth, sizes[1] * sizes[2]))
    deep = mixed(b, lines, [sizes[0], lines.shape[3]], [factors[0], None], 2, align_corners)
    return b.reshape(deep, (batch, channels, *sizes))


_NEAR = [Sample(((1, 2, 3, 4, 5),), ([6, 8, 10],)), Sample(((2, 2, 4, 3, 5),), ([5, 7, 4],))]
_NEAR_VEC = [Sample(((1, 2, 3, 4, 5),), (None, [2.0, 2.0, 3.0]))]
_MIX = [
    Sample(((1, 2, 3, 4, 5),), ([6, 8, 10], False)),
    Sample(((1, 2, 3, 4, 5),), ([5, 7, 9], True)),
    Sample(((2, 2, 4, 3, 5),), ([5, 7, 4], False)),
]
_MIX_VEC = [Sample(((1, 2, 3, 4, 5),), (None, False, [2.0, 2.0, 2.0]))]


upsampling("upsample_nearest3d", 3, _nearest3d, _NEAR, _NEAR_VEC)
upsampling("_upsample_nearest_exact3d", 3, partial(_nearest3d, exact=True), _NEAR, _NEAR_VEC)
upsampling("upsample_trilinear3d", 3, _trilinear, _MIX, _MIX_VEC)


def _taps(size: int, out: int, factor: float | None, align: bool) -> tuple[Array, Array]:
    """Four places for each output of an axis, and their weights: Keys' cubic with a = -0.75."""
    if align:
        centres = np.arange(out) * ((size - 1) / (out - 1) if out > 1 else 0.0)
    else:
        centres = (np.arange(out) + 0.5) * (1.0 / factor if factor else size / out) - 0.5
    below = np.floor(centres)
    part, a = centres - below, -0.75

    def near(t: Array) -> Array:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t: Array) -> Array:
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    weights = np.stack([far(part + 1), near(part), near(1 - part), far(2 - part)])
    places = (below + np.arange(-1, 3).reshape(4, 1)).astype(int)
    return places.clip(0, size - 1), weights


def _mixture(b: Lowering, x: Value, axis: int, places: Array, weights: Array) -> Value:
    """Weighted sums of elements along an axis."""

    def term(where: Array, share: Array) -> Value:
        line = take(b, x, axis, [int(i) for i in where])
        shape = [len(share) if i == axis else 1 for i in range(x.type.rank)]
        factor = b.const(np.reshape(share, shape), x.dtype)
        return b.mul(b.with_quant(line, None), factor)

    return summed(b, map(term, places, weights))


def _cubic(
    b: Lowering, x: Value, output_size: Sizes, factors: Sequence[float | None], align_corners: bool
) -> Value:
    """One axis after the other; integers keep 16 bits in between."""
    sizes = sizes_of(x.shape[-2:], output_size, factors)
    spare = 7 if x.dtype is d.I8 else 0  # weights add up to 1.375 at most: no sum leaves int32
    y = x if x.quant is None else b.widened(x, spare)
    for axis, out, factor in zip((2, 3), sizes, factors):
        places, weights = _taps(x.shape[axis], out, factor, align_corners)
        if x.quant is None:
            y = _mixture(b, y, axis, places, weights)
            continue
        scale = scale_of(y) / 2.0**_BITS
        y = b.with_quant(_mixture(b, y, axis, places, np.round(weights * 2.0**_BITS)), Quant(scale))
        if axis == 2:
            y = b.widened(y, -_BITS)
    return y


# Four weights of 14 bits, each right to 2^-15, times int16: 4 steps at most along each axis.
_CUBIC = [
    Sample(((1, 3, 4, 5),), ([8, 10], False), steps16=4),
    Sample(((2, 2, 4, 5),), ([7, 9], True), steps16=4),
    Sample(((1, 2, 8, 9),), ([5, 6], False), steps16=4),
]
_CUBIC_VEC = [
    Sample(((1, 3, 4, 5),), (None, False, [2.0, 2.0]), steps16=4),
    Sample(((1, 2, 6, 5),), (None, False, [1.5, 0.6]), steps16=4),
]
upsampling("upsample_bicubic2d", 2, _cubic, _CUBIC, _CUBIC_VEC, policy="FREE")
