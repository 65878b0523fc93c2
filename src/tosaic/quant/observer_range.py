"""The quantization range of least error, from a histogram and the consumers of a value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tosaic.ir.graph import Array
from tosaic.quant.statistics import Statistics

Reader = Callable[[Tensor], Tensor]
# Ends that are tried, as shares of the extremes: 16 in each octave. Those beside each other differ
# so much in their cost that the last bits of what was observed seldom decide.
_SHARES = 2.0 ** (-np.arange(113) / 16)
_NODES = 513  # of a table of int16
# Decibels that its lines are off below the results, after many inputs, and what these are less
# for one: what saturates after few is worse.
_DRAWN, _FEW, _LEAST = 76.0, 28.0, 56.0
_ROOMS = 2.0 ** np.arange(3, 0, -0.25)
_HALF_STEP = 1 / 512  # of the span: half of a step of int8


@dataclass(frozen=True, slots=True)
class _Passed:
    """What a reader makes of values: results, and how it passes a change of a step on."""

    reader: Reader | None
    results: Array
    slopes: Array
    margin: float  # what an end of the range may move by: a jump of the reader must not be there

    def of(self, values: Array) -> Array:
        return values if self.reader is None else _read(self.reader, values)


@dataclass(frozen=True, slots=True)
class Expected:
    """The values that are expected: those that were seen, times ``room``, within ``bounds``."""

    seen: Statistics
    room: float = 1.0
    bounds: tuple[float, float] = (-math.inf, math.inf)

    @classmethod
    def of(cls, seen: Statistics, room: float, bounds: tuple[float, float]) -> Expected:
        """Within bounds, but for what was seen: there is no room between both."""
        (low, high), (least, most) = seen.ends, bounds
        within = min(low, least), max(high, most)
        return cls(seen) if within == (low, high) else cls(seen, room, within)

    @property
    def ends(self) -> tuple[float, float]:
        low, high = (self._at(end) for end in self.seen.ends)
        return low, high

    @property
    def span(self) -> float:
        return self._at(self.seen.high) - self._at(self.seen.low)

    @property
    def centres(self) -> Array:
        if self.room == 1:
            return self.seen.centres
        made: Array = np.clip(self.seen.centres * self.room, *self.bounds)
        return made

    def cuts(self, end: float) -> Array:
        """The ends of ranges that are tried, from the widest on, each between two bins."""
        width = self.seen.width * self.room
        made = np.minimum(np.rint(abs(end) * _SHARES / width) * width, abs(end))
        return np.append(math.copysign(1.0, end) * made, 0.0)

    def _at(self, value: float) -> float:
        return min(max(value * self.room, self.bounds[0]), self.bounds[1])


def best_range(
    given: Expected, steps: int, is_symmetric: bool, reader: Reader | None
) -> tuple[float, float]:
    """The ends with the least expected error of what the reader makes of the values.

    What lies outside costs the square of what it changes by, what lies inside s²/12 times the
    square of the reader's slope there. Of equals the widest is taken.
    """
    low, high = given.ends
    if is_symmetric:
        highs = given.cuts(max(-low, high))
        cost = np.diagonal(_costs(given, -highs, highs, steps, reader))
        best = float(highs[cost.argmin()])
        return -best, best
    lows, highs = given.cuts(low), given.cuts(high)
    row, column = divmod(int(_costs(given, lows, highs, steps, reader).argmin()), len(highs))
    return float(lows[row]), float(highs[column])


def lost_share(
    seen: Statistics, low: float, high: float, step: float, reader: Reader | None
) -> float:
    """The share of values that a range changes by more than a step does, as the reader sees it."""
    passed, values = _passed(Expected(seen), reader), seen.centres
    inside = (values >= low) & (values <= high)
    steepest = np.abs(passed.slopes[inside]).max(initial=0.0)
    kept = passed.of(np.clip(values, low, high))
    changed = ~(np.abs(kept - passed.results) <= max(step, seen.width) * steepest)
    return float(seen.counts[changed].sum() / max(seen.counts.sum(), 1))


def room_of_table(seen: Statistics, most: float, reader: Reader) -> float:
    """How much larger than ``most`` a range of 16 bits may be for a table to draw its reader.

    Nodes lie as far apart as the range is large, and the lines between them shall be off by a small
    share of the results' root mean square.
    """
    fewer = _FEW / seen.inputs if seen.inputs else 0.0
    drawn = 10 ** (max(_DRAWN - fewer, _LEAST) / 10)
    values, counts = seen.centres, seen.numbers(zeros=False)
    results = _read(reader, values)
    power = float(counts @ _finite(results) ** 2)
    for room in _ROOMS:
        nodes = np.linspace(-room * most, room * most, _NODES)
        missed = np.interp(values, nodes, _finite(_read(reader, nodes))) - results
        if float(counts @ _finite(missed) ** 2) * drawn <= power:
            return float(room)
    return 1.0


def _costs(given: Expected, lows: Array, highs: Array, steps: int, reader: Reader | None) -> Array:
    """The cost of each low end with each high end."""
    passed, edges = _passed(given, reader), given.centres
    counts = given.seen.numbers(zeros=False)
    weights = 1.0, passed.results, passed.results**2, passed.slopes**2
    number, first, second, steep = (np.append(0.0, np.cumsum(counts * w)) for w in weights)
    at_low, at_high = np.searchsorted(edges, lows), np.searchsorted(edges, highs)
    below = _distances(passed.of(np.minimum(lows + passed.margin, 0)),
                       number[at_low], first[at_low], second[at_low])  # fmt: skip
    above = _distances(
        passed.of(np.maximum(highs - passed.margin, 0)),
        *(sums[-1] - sums[at_high] for sums in (number, first, second)),
    )
    spans = highs[None, :] - lows[:, None]
    inside = np.maximum(steep[at_high][None, :] - steep[at_low][:, None], 0)
    cost: Array = below[:, None] + above + (spans / steps) ** 2 / 12 * inside
    return np.where(spans > 0, cost, np.inf)


def _distances(end: Array, number: Array, first: Array, second: Array) -> Array:
    """Squared distances to an end of so many results with such sums; nothing has no distance."""
    with np.errstate(invalid="ignore"):
        squares = np.maximum(second - 2 * end * first + end**2 * number, 0)
    return np.where(number > 0, np.nan_to_num(squares, nan=np.inf, posinf=np.inf), 0)


def _passed(given: Expected, reader: Reader | None) -> _Passed:
    values, half = given.centres, given.span * _HALF_STEP
    if reader is not None:
        results = _read(reader, values)
        if np.isfinite(results[given.seen.counts > 0]).all():
            with np.errstate(invalid="ignore"):
                slopes = (_read(reader, values + half) - _read(reader, values - half)) / (2 * half)
            return _Passed(reader, _finite(results), _finite(slopes), half)
    return _Passed(None, values, np.ones_like(values), 0.0)


def _finite(numbers: Array) -> Array:
    finite: Array = np.nan_to_num(numbers, nan=0, posinf=0, neginf=0)
    return finite


def _read(reader: Reader, values: Array) -> Array:
    results: Array = reader(torch.from_numpy(np.ascontiguousarray(values))).double().numpy()
    return results
