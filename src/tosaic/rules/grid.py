"""Pixels at computed places."""

from __future__ import annotations

from tosaic.errors import Unsupported
from tosaic.front.lower import Lowering
from tosaic.front.moves import piece
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
from tosaic.rules._indices import int32, rows_at
from tosaic.rules._operands import minus, plus, times
from tosaic.rules.functions import round as rounded

_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1
_WHY = "places of pixels in 8 bits are too coarse for an image"
_SAMPLES = [
    Sample(((1, 3, 5, 6), (1, 4, 3, 2)), (0, 0, False), domain=(-1.2, 1.2)),
    Sample(((2, 2, 5, 6), (2, 4, 3, 2)), (0, 0, True), domain=(-1.2, 1.2)),
    Sample(((1, 3, 5, 6), (1, 4, 3, 2)), (0, 1, False), domain=(-1.4, 1.4)),
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
      integers=(), why=_WHY)  # fmt: skip
def grid_sampler(
    b: Lowering, input: Value, grid: Value, interpolation_mode: int, padding_mode: int,
    align_corners: bool,
) -> Value:  # fmt: skip
    """Gathered neighbours times how near they are; those outside count as 0 or as the border."""
    if input.quant is not None or grid.quant is not None:
        raise Unsupported(f"grid_sample is lowered in float only: {_WHY}")
    if input.type.rank != 4 or interpolation_mode > _NEAREST or padding_mode > _BORDER:
        raise Unsupported(
            "grid_sample is lowered for images, bilinear or nearest, with zeros or the border"
        )
    batch, channels, *sizes = input.shape
    rows = b.reshape(b.permute(input, (0, 2, 3, 1)), (batch, sizes[0] * sizes[1], channels))
    axes = []
    for axis, size in ((1, sizes[0]), (0, sizes[1])):  # a grid has x before y
        place = _places(b, grid, axis, size, align_corners)
        if padding_mode == _BORDER:
            place = b.CLAMP(place, min_val=0.0, max_val=float(size - 1))
        axes.append(_neighbours(b, place, size, interpolation_mode, padding_mode))
    total: Value | None = None
    for row, height in axes[0]:
        for column, width in axes[1]:
            index = int32(b, plus(b, times(b, row, float(sizes[1])), column))
            share = times(b, height, width)
            term = times(b, rows_at(b, rows, index), b.reshape(share, (*share.shape, 1)))
            total = term if total is None else plus(b, total, term)
    assert total is not None
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
