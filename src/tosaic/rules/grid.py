"""grid_sample: pixels at computed positions."""

from __future__ import annotations

from functools import reduce
from itertools import product

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.data_movement import piece
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._indices import int32, rows_at
from tosaic.rules._integer_floor import floor, nearest
from tosaic.rules._operands import minus, plus, scale_of, times
from tosaic.rules._sums import largest, summed
from tosaic.rules.functions import round as rounded
from tosaic.spec import dtypes as d

_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1
_FRACTION, _SHARE = 16, 15  # bits of a place below a pixel, and of a share in a mean
_Neighbours = tuple[tuple[Value, Value], ...]  # a row and its share, a column and its own
_SAMPLES = [
    Sample(((1, 3, 5, 6), (1, 4, 3, 2)), (0, 0, False), domain=(-1.2, 1.2), steps16=4),
    Sample(((2, 2, 5, 6), (2, 4, 3, 2)), (0, 0, True), domain=(-1.2, 1.2), steps16=4),
    Sample(((1, 3, 5, 6), (1, 4, 3, 2)), (0, 1, False), domain=(-1.4, 1.4), steps16=4),
    Sample(((1, 2, 9, 70), (1, 5, 6, 2)), (0, 1, True), domain=(-1.1, 1.1), steps16=4),
    Sample(((1, 3, 5, 6), (1, 4, 3, 2)), (1, 0, False), domain=(-1.2, 1.2)),
    Sample(((1, 3, 5, 6), (1, 4, 3, 2)), (1, 1, True), domain=(-1.2, 1.2)),
]


def _places(b: Lowering, grid: Value, axis: int, size: int, align_corners: bool) -> Value:
    """Coordinates from -1 to 1 as pixels, [N, places]."""
    line = piece(b, grid, 3, axis, axis + 1)
    line = b.reshape(line, (grid.shape[0], grid.shape[1] * grid.shape[2]))
    if align_corners:
        return times(b, plus(b, line, 1.0), (size - 1) / 2)
    return plus(b, times(b, plus(b, line, 1.0), size / 2), -0.5)


def _inside(b: Lowering, place: Value, size: int) -> Value:
    """1 where a whole place is one of the axis, else 0."""
    zero, last = b.number(0.0, place), b.number(float(size - 1), place)
    within = b.LOGICAL_AND(b.GREATER_EQUAL(place, zero), b.GREATER_EQUAL(last, place))
    return b.SELECT(within, b.number(1.0, place), zero)


@rule("aten.grid_sampler_2d.default", "aten.grid_sampler.default", samples=_SAMPLES,
      wide=("grid",))  # fmt: skip
def grid_sampler(
    b: Lowering, input: Value, grid: Value, interpolation_mode: int, padding_mode: int,
    align_corners: bool,
) -> Value:  # fmt: skip
    """Gathered neighbours times how near they are; those outside count as 0 or as the border."""
    if input.type.rank != 4 or interpolation_mode > _NEAREST or padding_mode > _BORDER:
        raise Unsupported(
            "grid_sample is lowered for images, bilinear or nearest, with zeros or the border"
        )
    if (input.quant is None) is not (grid.quant is None):
        raise Unsupported("of an image and its grid one is quantized, the other is not")
    if input.quant is not None:
        return _in_integers(b, input, grid, interpolation_mode, padding_mode, align_corners)
    batch, channels, *sizes = input.shape
    rows = b.reshape(b.permute(input, (0, 2, 3, 1)), (batch, sizes[0] * sizes[1], channels))
    axes = []
    for axis, size in ((1, sizes[0]), (0, sizes[1])):  # a grid has x before y
        place = _places(b, grid, axis, size, align_corners)
        if padding_mode == _BORDER:
            place = b.CLAMP(place, min_val=0.0, max_val=float(size - 1))
        axes.append(_neighbours(b, place, size, interpolation_mode, padding_mode))

    def term(neighbours: _Neighbours) -> Value:
        (row, height), (column, width) = neighbours
        index = int32(b, plus(b, times(b, row, float(sizes[1])), column))
        share = times(b, height, width)
        return times(b, rows_at(b, rows, index), b.reshape(share, (*share.shape, 1)))

    total = summed(b, map(term, product(*axes)))
    found = b.reshape(total, (batch, *grid.shape[1:3], channels))
    return b.permute(found, (0, 3, 1, 2))


def _neighbours(
    b: Lowering, place: Value, size: int, mode: int, padding: int
) -> list[tuple[Value, Value]]:
    """Whole places beside a real one, kept inside, and the share of each."""
    if mode == _NEAREST:
        whole = rounded(b, place)
        both = [(whole, b.number(1.0, place))]
    else:
        below = b.FLOOR(place)
        part = minus(b, place, below)
        both = [(below, minus(b, 1.0, part)), (plus(b, below, 1.0), part)]
    made = []
    for whole, share in both:
        kept = b.CLAMP(whole, min_val=0.0, max_val=float(size - 1))
        made.append(
            (kept, times(b, share, _inside(b, whole, size)) if padding == _ZEROS else share)
        )
    return made


def _in_integers(
    b: Lowering, input: Value, grid: Value, mode: int, padding: int, align_corners: bool
) -> Value:
    """The same with places of 16 bits below a pixel and shares of 15; what is added is exact."""
    batch, channels, *sizes = input.shape
    if max(sizes) >= 1 << 12:
        raise Unsupported("grid_sample of integers is lowered for images of up to 4095 pixels")
    rows = b.reshape(b.permute(input, (0, 2, 3, 1)), (batch, sizes[0] * sizes[1], channels))
    axes = []
    for axis, size in ((1, sizes[0]), (0, sizes[1])):
        half = (size - 1 if align_corners else size) / 2
        line = b.reshape(piece(b, grid, 3, axis, axis + 1), (batch, grid.type.size // batch // 2))
        place = b.rescale(line, [scale_of(grid) * half * 2**_FRACTION], 0, d.I32)
        fine = Fixed(b, place, 2.0**-_FRACTION) + (size - 1) / 2
        fine = _kept(fine, size - 1) if padding == _BORDER else fine
        axes.append(_integer_neighbours(fine, size, mode, padding))

    def term(neighbours: tuple[tuple[Fixed, Fixed], ...]) -> Fixed:
        (row, height), (column, width) = neighbours
        index = row * sizes[1] + column
        share = height.times(width, height.unit)
        pixel = Fixed.of(b, rows_at(b, rows, index.value))
        return pixel * share.map(lambda v: b.reshape(v, (*v.shape, 1)))

    # Shares are 1 together but for their roundings.
    most = largest(input) * scale_of(input) * (1 + 2.0 ** (1 - _SHARE))
    total = reduce(lambda x, y: (x + y).proved(-most, most), map(term, product(*axes)))
    found = b.reshape(b.requantized(total.quantized()), (batch, *grid.shape[1:3], channels))
    return b.permute(found, (0, 3, 1, 2))


def _kept(x: Fixed, most: float) -> Fixed:
    return x.maximum(0).minimum(most)


def _integer_neighbours(
    place: Fixed, size: int, mode: int, padding: int
) -> list[tuple[Fixed, Fixed]]:
    """Whole places beside one with a fraction, kept inside, and the share of each."""
    if mode == _NEAREST:
        one = place.at(2.0**-_SHARE)
        both = [(nearest(place), one.map(lambda _: one.constant(1)))]
    else:
        below = floor(place)
        part = place - (below * (1 << _FRACTION)).at(place.unit)
        part = part.proved(0, 1 - place.unit).at(2.0**-_SHARE) >> _FRACTION - _SHARE
        both = [(below, 1 - part), (below + 1, part)]
    made = []
    for whole, share in both:
        if padding == _ZEROS:  # 1 from the first pixel on, and 1 up to the last
            share *= _kept(whole + 1, 1) * _kept(size - whole, 1)
        made.append((_kept(whole, size - 1), share))
    return made
