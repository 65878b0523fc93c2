"""Nearest and linear interpolation over one and two axes, as TOSA's RESIZE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.data_movement import first, piece, take
from tosaic.lowering.builder import Lowering
from tosaic.rules._mixtures import axes_of, crossed, phased
from tosaic.rules._windows import channels_first, channels_last
from tosaic.spec import dtypes as d

# TOSA's numerators go up to 2^11, and half pixels double them.
_LARGEST = 1 << 10


@dataclass(frozen=True, slots=True)
class Grid:
    """Output place i of an axis lies at (i · step + offset) / unit of the input."""

    unit: int
    step: int
    offset: int

    def border(self, size: int, out: int) -> int:
        return (out - 1) * self.step - (size - 1) * self.unit + self.offset

    def nearest(self, size: int, out: int) -> list[int]:
        places = np.floor_divide(2 * (np.arange(out) * self.step + self.offset) + self.unit,
                                 2 * self.unit)  # fmt: skip
        return [int(i) for i in places.clip(0, size - 1)]


def _ratio(size: int, out: int, factor: float | None) -> Fraction:
    """Output over input; a factor that was given counts, even if the sizes are not in it."""
    if factor:
        return Fraction(factor).limit_denominator(_LARGEST)
    return Fraction(out, size)


def _half_pixels(ratio: Fraction) -> Grid:
    """The centres of output pixels, (i + 1/2) / ratio - 1/2."""
    n, m = ratio.numerator, ratio.denominator
    return Grid(2 * n, 2 * m, m - n)


def _corners(size: int, out: int) -> Grid:
    """The first and the last pixels lie on one another."""
    if size == 1:
        return Grid(out, 1, 0)
    ratio = Fraction(out - 1, size - 1)
    return Grid(ratio.numerator, ratio.denominator, 0)


def _floors(ratio: Fraction) -> Grid:
    """i / ratio rounded down, which is to the nearest of half a pixel less.

    With whole ratios, half pixels give the same, in the form that most devices have.
    """
    n, m = ratio.numerator, ratio.denominator
    return _half_pixels(ratio) if m == 1 else Grid(2 * n, 2 * m, -n)


def floored_places(size: int, out: int, factor: float | None, exact: bool) -> list[int]:
    """The places that PyTorch takes, which it computes in float32."""
    scale = np.float32(1.0 / factor if factor else size / out)
    places = (np.arange(out, dtype=np.float32) + np.float32(0.5 if exact else 0)) * scale
    return [int(i) for i in np.floor(places).clip(0, size - 1)]


def _resize(b: Lowering, x: Value, sizes: Sequence[int], grids: Sequence[Grid], mode: str) -> Value:
    """RESIZE of [N, H, W, C] in the parameters given.

    Bilinear integers come multiplied by both units, their zero point too: dividing is enough.
    """
    scale = b.shape([n for g in grids for n in (g.unit, g.step)])
    border = b.shape([g.border(s, o) for g, s, o in zip(grids, x.shape[1:3], sizes)])
    offset = b.shape([g.offset for g in grids])
    mixed = x.quant is not None and mode == "BILINEAR"
    kind = (d.I48 if x.dtype is d.I16 else d.I32) if mixed else x.dtype
    y = b.RESIZE(x, scale, offset, border, mode=mode, out=kind)
    if mixed:
        y = b.rescale(y, [1.0 / grids[0].unit / grids[1].unit], 0, x.dtype)
    return b.with_quant(y, x.quant)


def sizes_of(
    shape: Sequence[int], output_size: Sequence[int] | None, factors: Sequence[float | None]
) -> list[int]:
    if output_size is not None:
        return [int(n) for n in output_size]
    return [int(s * (f or 1)) for s, f in zip(shape, factors)]


def nearest(
    b: Lowering, self: Value, output_size: Sequence[int] | None,
    factors: Sequence[float | None], axes: int, exact: bool = False,
) -> Value:  # fmt: skip
    """Each output pixel is one of the input: by RESIZE, or picked where it takes others."""
    sizes = sizes_of(self.shape[-axes:], output_size, factors)
    x = channels_last(b, self, axes)
    given, grids, places = x.shape[3 - axes : 3], [Grid(1, 1, 0)] * (2 - axes), []
    for size, out, factor in zip(given, sizes, factors):
        ratio = _ratio(size, out, factor)
        grids.append(_half_pixels(ratio) if exact else _floors(ratio))
        places.append(floored_places(size, out, factor, exact))

    def resized() -> Value:
        if any(g.nearest(*s) != p for g, s, p in zip(grids[-axes:], zip(given, sizes), places)):
            raise Unsupported("PyTorch rounds to other pixels than TOSA")
        return _resize(b, x, [1, *sizes][-2:], grids, "NEAREST_NEIGHBOR")

    def picked() -> Value:
        y = x
        for axis, indices in zip(range(3 - axes, 3), places):
            y = take(b, y, axis, indices)
        return y

    y = x if tuple(sizes) == given else first(b, resized, picked)
    return channels_first(b, y, axes, self.type.rank)


def mixed(
    b: Lowering, self: Value, output_size: Sequence[int] | None,
    factors: Sequence[float | None], axes: int, align_corners: bool,
) -> Value:  # fmt: skip
    """Each output pixel is a mixture of its neighbours; integers are rounded once."""
    sizes = sizes_of(self.shape[-axes:], output_size, factors)
    x, grids = channels_last(b, self, axes), [Grid(1, 1, 0)] * (2 - axes)
    for axis, out, factor in zip(range(3 - axes, 3), sizes, factors):
        if align_corners and out == 1:  # PyTorch takes the first pixel
            x = piece(b, x, axis, 0, 1)
        size = x.shape[axis]
        grids.append(_corners(size, out) if align_corners else _centres(size, out, factor))
    if any(g != Grid(g.unit, g.unit, 0) for g in grids):
        x = _interpolated(b, x, [1, *sizes][-2:], grids)
    return channels_first(b, x, axes, self.type.rank)


def _interpolated(b: Lowering, x: Value, sizes: Sequence[int], grids: Sequence[Grid]) -> Value:
    """Mixtures in the parameters given: by RESIZE, or by convolutions with the same sums."""
    times = [to // size if to % size == 0 else 0 for size, to in zip(x.shape[1:3], sizes)]
    if b.env.has("shape") and all(n == 1 or n == to for n, to in zip(times, sizes)):
        return b.with_quant(b.TILE(x, b.shape([1, *times, 1])), x.quant)  # whatever the sizes are
    height, width = axes_of(x.shape, sizes, grids)
    forms = [lambda: _resize(b, x, sizes, grids, "BILINEAR")]
    if x.quant is not None:
        forms += [lambda: phased(b, x, height, width), lambda: crossed(b, x, height, width)]
    return first(b, *forms)


def _centres(size: int, out: int, factor: float | None) -> Grid:
    ratio = _ratio(size, out, factor)
    if factor and out * abs(1 / ratio - 1 / Fraction(factor)) > 1e-4:
        raise Unsupported(f"TOSA has no fraction close enough to the scale factor {factor}")
    grid = _half_pixels(ratio)
    if grid.offset % 2 == 0:
        return Grid(grid.unit // 2, grid.step // 2, grid.offset // 2)
    return grid


_UP = [
    Sample(((1, 3, 4, 5),), ([8, 10],)),
    Sample(((2, 3, 4, 5),), ([7, 15],)),
    Sample(((1, 2, 8, 9),), ([4, 6],)),
    Sample(((1, 2, 5, 6),), ([5, 7], 1.0, 1.3)),
]
_UP_VEC = [
    Sample(((1, 3, 4, 5),), (None, [2.0, 2.0])),
    Sample(((1, 3, 5, 3),), (None, [1.5, 3.0])),
    Sample(((2, 2, 6, 5),), ([9, 4], None)),
]
_UP1D = [Sample(((1, 3, 6),), ([12],)), Sample(((2, 3, 7),), ([10],))]
_UP1D_VEC = [Sample(((1, 3, 6),), (None, [2.0]))]
_MIX = [
    Sample(((1, 3, 4, 5),), ([8, 10], False)),
    Sample(((1, 3, 4, 5),), ([8, 10], True)),
    Sample(((2, 3, 4, 5),), ([7, 15], False)),
    Sample(((1, 2, 8, 9),), ([5, 1], True)),
    Sample(((1, 2, 8, 1),), ([4, 6], True)),
    Sample(((1, 2, 5, 6),), ([5, 7], False, 1.0, 1.3)),
]
_MIX_VEC = [
    Sample(((1, 3, 4, 5),), (None, False, [2.0, 2.0])),
    Sample(((1, 3, 5, 3),), (None, False, [1.5, 3.0])),
    Sample(((1, 3, 5, 3),), (None, True, [4.0, 2.0])),
    Sample(((1, 2, 3, 4),), (None, False, [8.0, 8.0])),
    Sample(((2, 2, 6, 5),), ([9, 4], False, None)),
]
_MIX1D = [Sample(((1, 3, 6),), ([12], False)), Sample(((2, 3, 7),), ([10], True))]
_MIX1D_VEC = [Sample(((1, 3, 6),), (None, False, [2.0]))]
Sizes = Sequence[int] | None
Factors = Sequence[float] | None


def upsampling(
    name: str, axes: int, resize: Callable[..., Value], samples: Sequence[Sample],
    listed: Sequence[Sample], policy: str = "SHARED",
) -> None:  # fmt: skip
    """Rules for both overloads of an operator: factors one by one, or a list of them."""
    names = ["scales"] if axes == 1 else [f"scales_{axis}" for axis in "dhw"[-axes:]]

    @rule(f"aten.{name}.default", policy=policy, samples=samples)
    def one_by_one(b: Lowering, self: Value, output_size: Sizes, **others: Any) -> Value:
        factors = [others.pop(name, None) for name in names]
        return resize(b, self, output_size, factors, **others)

    @rule(f"aten.{name}.vec", policy=policy, samples=listed)
    def in_a_list(
        b: Lowering, input: Value, output_size: Sizes, scale_factors: Factors, **others: Any
    ) -> Value:
        return resize(b, input, output_size, scale_factors or [None] * axes, **others)


_exactly = partial(nearest, axes=2, exact=True)
upsampling("upsample_nearest2d", 2, partial(nearest, axes=2), _UP, _UP_VEC)
upsampling("_upsample_nearest_exact2d", 2, _exactly, _UP, _UP_VEC)
upsampling("upsample_nearest1d", 1, partial(nearest, axes=1), _UP1D, _UP1D_VEC)
upsampling("_upsample_nearest_exact1d", 1, partial(nearest, axes=1, exact=True), _UP1D, _UP1D_VEC)
upsampling("upsample_bilinear2d", 2, partial(mixed, axes=2), _MIX, _MIX_VEC)
upsampling("upsample_linear1d", 1, partial(mixed, axes=1), _MIX1D, _MIX1D_VEC)
