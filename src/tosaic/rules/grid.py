"""grid_sample: pixels at computed positions."""

from __future__ import annotations

from functools import reduce
from itertools import product

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.data_movement import piece
from tosaic.lowering.builder import Lowering
from tosaic.rules._indices import int32, rows_at
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
        place = b.ADD(place, b.number((size - 1) << (_FRACTION - 1), place))
        if padding == _BORDER:
            place = _kept(b, place, (size - 1) << _FRACTION)
        axes.append(_integer_neighbours(b, place, size, mode, padding))
    shift = b.const([0], d.I8)

    def term(neighbours: _Neighbours) -> Value:
        (row, height), (column, width) = neighbours
        index = b.ADD(b.MUL(row, b.number(sizes[1], row), shift), column)
        share = b.MUL(height, width, b.const([_SHARE], d.I8))
        pixel = b.widened(rows_at(b, rows, index))
        return b.MUL(pixel, b.reshape(share, (*share.shape, 1)), shift)

    most = largest(input) * ((1 << _SHARE) + 2.0)  # shares are 1 together but for their roundings
    total = reduce(
        lambda x, y: b.proved(b.ADD(x, y), -most, most), map(term, product(*axes))
    )  # fmt: skip
    b.with_quant(total, Quant(scale_of(input) / 2**_SHARE))
    return b.permute(
        b.reshape(b.requantized(total), (batch, *grid.shape[1:3], channels)), (0, 3, 1, 2)
    )


def _kept(b: Lowering, x: Value, most: int) -> Value:
    return b.MINIMUM(b.MAXIMUM(x, b.number(0, x)), b.number(most, x))


def _integer_neighbours(
    b: Lowering, place: Value, size: int, mode: int, padding: int
) -> list[tuple[Value, Value]]:
    """Whole places beside one with a fraction, kept inside, and the share of each."""
    one, shift = 1 << _SHARE, b.const([0], d.I8)
    if mode == _NEAREST:
        both = [(_nearest(b, place), b.number(one, place))]
    else:
        below = _floor(b, place)
        part = b.SUB(place, b.MUL(below, b.number(1 << _FRACTION, below), shift))
        b.proved(part, 0, (1 << _FRACTION) - 1)
        part = b.ARITHMETIC_RIGHT_SHIFT(part, b.number(_FRACTION - _SHARE, part), round=True)
        both = [(below, b.SUB(b.number(one, part), part)), (b.ADD(below, b.number(1, below)), part)]
    made = []
    for whole, share in both:
        if padding == _ZEROS:
            after = _kept(b, b.ADD(whole, b.number(1, whole)), 1)  # 1 from the first pixel on
            before = _kept(b, b.SUB(b.number(size, whole), whole), 1)
            share = b.MUL(share, b.MUL(after, before, shift), shift)
        made.append((_kept(b, whole, size - 1), share))
    return made


def _floor(b: Lowering, place: Value) -> Value:
    """By a rounding shift, which every target has."""
    lower = b.SUB(place, b.number(1 << (_FRACTION - 1), place))
    return b.ARITHMETIC_RIGHT_SHIFT(lower, b.number(_FRACTION, place), round=True)


def _nearest(b: Lowering, place: Value) -> Value:
    """The nearest whole place; of two that are as near the even one."""
    shift = b.const([0], d.I8)
    upper = b.ARITHMETIC_RIGHT_SHIFT(place, b.number(_FRACTION, place), round=True)
    above = b.SUB(b.MUL(upper, b.number(1 << _FRACTION, upper), shift), place)
    is_tie = _kept(b, b.SUB(above, b.number((1 << (_FRACTION - 1)) - 1, above)), 1)
    twice = b.ARITHMETIC_RIGHT_SHIFT(
        b.SUB(upper, b.number(1, upper)), b.number(1, upper), round=True
    )
    is_odd = b.SUB(upper, b.MUL(twice, b.number(2, twice), shift))
    return b.SUB(upper, b.MUL(is_tie, is_odd, shift))
