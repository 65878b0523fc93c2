"""Interpolation over three axes, and cubic over two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.front.lower import Lowering
from tosaic.front.moves import take
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Array, Quant, Value
from tosaic.rules._operands import scale_of
from tosaic.rules.resize import Factors, Sizes, floored_places, mixed, nearest, sizes_of
from tosaic.spec import dtypes as d

_BITS = 14  # of cubic weights in integers: an int16 value times one fits int32 four times


def _nearest3d(
    b: Lowering, x: Value, output_size: Sizes, factors: Sequence[float | None], exact: bool
) -> Value:
    """Planes as TOSA resizes them, then picks of these."""
    sizes = sizes_of(x.shape[-3:], output_size, factors)
    batch, channels, depth = x.shape[:3]
    planes = b.reshape(x, (batch, channels * depth, *x.shape[3:]))
    wide = nearest(b, planes, sizes[1:], factors[1:], 2, exact)
    deep = b.reshape(wide, (batch, channels, depth, *sizes[1:]))
    return take(b, deep, 2, floored_places(depth, sizes[0], factors[0], exact))


def _trilinear(
    b: Lowering, x: Value, output_size: Sizes, factors: Sequence[float | None], align: bool
) -> Value:
    """Planes, then lines through them: integers are rounded twice."""
    sizes = sizes_of(x.shape[-3:], output_size, factors)
    batch, channels, depth = x.shape[:3]
    planes = b.reshape(x, (batch, channels * depth, *x.shape[3:]))
    wide = mixed(b, planes, sizes[1:], factors[1:], 2, align)
    lines = b.reshape(wide, (batch, channels, depth, sizes[1] * sizes[2]))
    places = lines.shape[3]
    deep = mixed(b, lines, [sizes[0], places], [factors[0], None], 2, align and places > 1)
    return b.reshape(deep, (batch, channels, *sizes))


_NEAR = [Sample(((1, 2, 3, 4, 5),), ([6, 8, 10],)), Sample(((2, 2, 4, 3, 5),), ([5, 7, 4],))]
_NEAR_VEC = [Sample(((1, 2, 3, 4, 5),), (None, [2.0, 2.0, 3.0]))]
_MIX = [
    Sample(((1, 2, 3, 4, 5),), ([6, 8, 10], False)),
    Sample(((1, 2, 3, 4, 5),), ([5, 7, 9], True)),
    Sample(((2, 2, 4, 3, 5),), ([5, 7, 4], False)),
]
_MIX_VEC = [Sample(((1, 2, 3, 4, 5),), (None, False, [2.0, 2.0, 2.0]))]


@rule("aten.upsample_nearest3d.default", policy="SHARED", samples=_NEAR)
def upsample_nearest3d(
    b: Lowering, self: Value, output_size: Sizes, scales_d: float | None = None,
    scales_h: float | None = None, scales_w: float | None = None,
) -> Value:  # fmt: skip
    return _nearest3d(b, self, output_size, [scales_d, scales_h, scales_w], False)


@rule("aten._upsample_nearest_exact3d.default", policy="SHARED", samples=_NEAR)
def upsample_nearest_exact3d(
    b: Lowering, self: Value, output_size: Sizes, scales_d: float | None = None,
    scales_h: float | None = None, scales_w: float | None = None,
) -> Value:  # fmt: skip
    return _nearest3d(b, self, output_size, [scales_d, scales_h, scales_w], True)


@rule("aten.upsample_nearest3d.vec", policy="SHARED", samples=_NEAR_VEC)
def upsample_nearest3d_vec(
    b: Lowering, input: Value, output_size: Sizes, scale_factors: Factors
) -> Value:
    return _nearest3d(b, input, output_size, scale_factors or [None] * 3, False)


@rule("aten._upsample_nearest_exact3d.vec", policy="SHARED", samples=_NEAR_VEC)
def upsample_nearest_exact3d_vec(
    b: Lowering, input: Value, output_size: Sizes, scale_factors: Factors
) -> Value:
    return _nearest3d(b, input, output_size, scale_factors or [None] * 3, True)


@rule("aten.upsample_trilinear3d.default", policy="SHARED", samples=_MIX)
def upsample_trilinear3d(
    b: Lowering, self: Value, output_size: Sizes, align_corners: bool,
    scales_d: float | None = None, scales_h: float | None = None, scales_w: float | None = None,
) -> Value:  # fmt: skip
    return _trilinear(b, self, output_size, [scales_d, scales_h, scales_w], align_corners)


@rule("aten.upsample_trilinear3d.vec", policy="SHARED", samples=_MIX_VEC)
def upsample_trilinear3d_vec(
    b: Lowering, input: Value, output_size: Sizes, align_corners: bool, scale_factors: Factors
) -> Value:
    return _trilinear(b, input, output_size, scale_factors or [None] * 3, align_corners)


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
    kind = x.dtype
    total: Value | None = None
    for where, share in zip(places, weights):
        line = take(b, x, axis, [int(i) for i in where])
        shape = [len(share) if i == axis else 1 for i in range(x.type.rank)]
        factor = b.const(np.reshape(share, shape), kind)
        term = b.MUL(b.marked(line, None), factor, b.const([0], d.I8))
        total = term if total is None else b.ADD(total, term)
    assert total is not None
    return total


def _cubic(
    b: Lowering, x: Value, output_size: Sizes, factors: Sequence[float | None], align: bool
) -> Value:
    """One axis after the other; integers keep 16 bits in between."""
    sizes = sizes_of(x.shape[-2:], output_size, factors)
    spare = 7 if x.dtype is d.I8 else 0  # weights add up to 1.375 at most: no sum leaves int32
    y = x if x.quant is None else b.widened(x, spare)
    for axis, out, factor in zip((2, 3), sizes, factors):
        places, weights = _taps(x.shape[axis], out, factor, align)
        if x.quant is None:
            y = _mixture(b, y, axis, places, weights)
            continue
        scale = scale_of(y) / 2.0**_BITS
        y = b.marked(_mixture(b, y, axis, places, np.round(weights * 2.0**_BITS)), Quant(scale))
        if axis == 2:
            y = b.widened(y, -_BITS)
    return y


# Four weights of 14 bits, each right to 2^-15, times int16: 4 steps at most along each axis.
_CUBIC = [
    Sample(((1, 3, 4, 5),), ([8, 10], False), steps16=4),
    Sample(((2, 2, 4, 5),), ([7, 9], True), steps16=4),
    Sample(((1, 2, 8, 9),), ([5, 6], False), steps16=4),
]


@rule("aten.upsample_bicubic2d.default", samples=_CUBIC)
def upsample_bicubic2d(
    b: Lowering, self: Value, output_size: Sizes, align_corners: bool,
    scales_h: float | None = None, scales_w: float | None = None,
) -> Value:  # fmt: skip
    return _cubic(b, self, output_size, [scales_h, scales_w], align_corners)


@rule(
    "aten.upsample_bicubic2d.vec",
    samples=[
        Sample(((1, 3, 4, 5),), (None, False, [2.0, 2.0]), steps16=4),
        Sample(((1, 2, 6, 5),), (None, False, [1.5, 0.6]), steps16=4),
    ],
)
def upsample_bicubic2d_vec(
    b: Lowering, input: Value, output_size: Sizes, align_corners: bool, scale_factors: Factors
) -> Value:
    return _cubic(b, input, output_size, scale_factors or [None] * 2, align_corners)
