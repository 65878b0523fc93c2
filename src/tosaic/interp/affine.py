"""RESCALE as one multiplication and one addition in floating point, proved for every input.

For one channel the exact result of RESCALE is a step function of its integer input: it never
falls, and it reaches the level k first at some input t(k). `round(v * c + d)` with each
operation rounded never falls either. So the two agree on *all* inputs when they agree at t(k)
and at t(k) - 1 for every level k: some 500 inputs a channel, which we try, with the same
arithmetic as at run time. Where the nearest float32 coefficients fail, neighbours may succeed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tosaic.interp.exact import Interval

# How far around the nearest coefficients to look; measured: more finds hardly more.
SLOPE_ULPS = (0, -1, 1, -2, 2)
OFFSET_FRACTIONS = (0.5, 0.25, 0.75, 0.05, 0.95, -0.3, 1.3, -1.0, 2.0)
MORE_FRACTIONS = tuple(i / 16 for i in range(-8, 25, 2))
HOPELESS = 0.5
# The least room for the offset, in ulps of the largest level: with less hardly any try succeeds.
ROOM = 0.05


@dataclass(frozen=True, slots=True)
class Steps:
    """Where each channel's exact result first reaches each level, inside the known interval.

    `first[c, i]` is the smallest input whose result is at least `level[i]`, cut to
    `[low, high + 1]` of the channel's interval.
    """

    level: Tensor
    first: Tensor
    slope: Tensor
    interval: Interval
    found: Tensor

    def shifted(self, offset: Tensor) -> Steps:
        """The same steps as a function of `v + offset`."""
        first = self.first + offset[:, None]
        return replace(self, first=first, interval=self.interval.shifted(offset))


@dataclass(frozen=True, slots=True)
class Affine:
    """`round(v * slope + offset)`: which channels it is proved for."""

    slope: Tensor
    offset: Tensor
    proved: Tensor


def find_steps(
    exact: Callable[[Tensor], Tensor],
    slope: Tensor,
    zero_point: int,
    levels: tuple[int, int],
    interval: Interval,
) -> Steps:
    """The steps of `exact` (int64 [C, n] to int64 [C, n]) up to the levels low + 1 … high."""
    level = torch.arange(levels[0] + 1, levels[1] + 1)
    low, high = interval.low[:, None], interval.high[:, None]
    guess = (level.double() - 0.5 - zero_point) / slope.double()[:, None]
    near = torch.minimum(torch.maximum(guess.ceil(), low - 1.0), high + 2.0).to(torch.int64)
    below = torch.zeros_like(near)
    for step in range(-2, 3):
        below += exact(near + step) < level
    started = (below > 0) | (near - 2 <= low)
    ended = (below < 5) | (near + 2 >= high)
    first = torch.minimum(torch.maximum(near - 2 + below, low), high + 1)
    return Steps(level, first, slope.double(), interval, (started & ended).all(1))


def _offset_range(steps: Steps, slope: Tensor) -> tuple[Tensor, Tensor]:
    """Which offsets put every step where it belongs, in real arithmetic (float64)."""
    after, before = steps.first.double(), (steps.first - 1).double()
    reached = steps.first <= steps.interval.high[:, None]
    left = before >= steps.interval.low.double()[:, None]
    middle = steps.level.double() - 0.5
    low = torch.where(reached, middle - after * slope[:, None], -torch.inf).amax(1)
    high = torch.where(left, middle - before * slope[:, None], torch.inf).amin(1)
    low = torch.where(low.isinf(), high - 1, low)
    return low, torch.where(high.isinf(), low + 1, high)


def _agrees(steps: Steps, slope: Tensor, offset: Tensor) -> Tensor:
    """Per channel: does float32 arithmetic put every step where it belongs?

    It must do so whether product and sum are rounded apart or as one fused operation: which of
    them a kernel does is nowhere promised. The conversion to float32 is that of the kernels: an
    accumulator beyond 2^24 is rounded.
    """
    reached = steps.first <= steps.interval.high[:, None]
    left = steps.first > steps.interval.low[:, None]
    good = torch.ones_like(steps.found)
    for value, wanted, relevant in ((steps.first, True, reached), (steps.first - 1, False, left)):
        v = value.float()
        apart = ((v * slope[:, None]) + offset[:, None]).round() >= steps.level
        # A float64 holds the product; its sum is off by far less than float32's rounding.
        fused = (v.double() * slope.double()[:, None] + offset.double()[:, None]).float().round()
        together = fused >= steps.level
        good &= (((apart == wanted) & (together == wanted)) | ~relevant).all(1)
    return good


def _select(steps: Steps, rows: Tensor) -> Steps:
    interval = Interval(steps.interval.low[rows], steps.interval.high[rows])
    return Steps(steps.level, steps.first[rows], steps.slope[rows], interval, steps.found[rows])


def fit_float32(steps: Steps) -> Affine:
    """Coefficients for float32, searched channel by channel around the nearest ones.

    Small slopes have many inputs near each step and seldom succeed: if the nearest slopes prove
    few channels, their neighbours are not tried.
    """
    slope = steps.slope.float()
    low, high = _offset_range(steps, slope.double())
    offset = ((low + high) / 2).float()
    proved = torch.zeros_like(steps.found)
    # Rounding errs by half an ulp of the largest product: offsets must have about as much room.
    room = ROOM * (steps.level.abs().max() * 2.0**-23)
    left = (steps.found & (high - low > room)).nonzero().flatten()
    few = max(2, len(left) // 16)
    for ulps in SLOPE_ULPS:
        part = _select(steps, left)
        nearest = part.slope.float()
        ulp = torch.nextafter(nearest, torch.tensor(torch.inf)) - nearest
        tried = nearest + ulps * ulp
        low, high = _offset_range(part, tried.double())
        for fraction in MORE_FRACTIONS if len(left) <= few else OFFSET_FRACTIONS:
            attempt = (low + fraction * (high - low)).float()
            good = _agrees(part, tried, attempt) & ~proved[left]
            rows = left[good]
            slope[rows], offset[rows], proved[rows] = tried[good], attempt[good], True
            if bool(proved[left].all()):
                break
        left = left[~proved[left]]
        if len(left) == 0 or len(left) > HOPELESS * len(proved):
            break
    finite = (slope.abs() * steps.interval.peak + offset.abs()) < 2.0**30
    return Affine(slope, offset, proved & finite)


def fit_float64(steps: Steps) -> Affine:
    """Coefficients for float64, by a margin that covers fused and separate rounding alike."""
    low, high = _offset_range(steps, steps.slope)
    offset = (low + high) / 2
    largest = steps.slope * steps.interval.peak + offset.abs() + 2.0**20
    return Affine(steps.slope, offset, steps.found & ((high - low) / 2 > largest * 2.0**-50))
