"""Statistics of an observed tensor: extremes, zeros and a histogram that merges without loss.

Bins have a power of two as their width and lie at its multiples. So two histograms add up exactly,
be they of other widths, and a range between bins is the same number on every processor: what
differs in the last bits of float arithmetic seldom shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from tosaic.ir.graph import Array

BINS = 512  # at most; more than half of them lie between the extremes
PEAKS = 256  # inputs whose largest magnitudes are kept; those of others count with them
OCTAVE = 16  # steps of the logarithm of such a magnitude
NO_PEAK = -160 * OCTAVE  # of an input without any number but 0: less than that of any float32
SAMPLE = 1 << 15  # values that a histogram counts of a larger tensor
UNSAMPLED = 2 * SAMPLE  # values of which it counts all, if they are fewer
FAR = 2.0**120  # masks are written as infinities, or as the largest numbers that there are
_FINEST = -120


def _none() -> Array:
    return np.zeros(0, np.int64)


@dataclass(slots=True)
class Statistics:
    """What calibration saw of a tensor; 0 lies between the extremes.

    Bin ``i`` of ``counts`` is from ``(first + i) * width`` on; zeros are counted there as well. As
    long as nothing but zeros was seen there are no bins. ``peaks`` are the largest magnitudes of
    single inputs, as whole steps of their logarithm; ``close`` ends what belongs to one input.
    """

    low: float = 0.0
    high: float = 0.0
    zeros: int = 0
    bad: int = 0  # values that are no numbers
    width: float = 0.0
    first: int = 0
    counts: Array = field(default_factory=_none)
    peaks: list[int] = field(default_factory=list)
    inputs: int = 0  # that were seen to their end

    @property
    def is_empty(self) -> bool:
        """Whether nothing but zeros was seen."""
        return self.low == self.high

    def see(self, values: Tensor) -> None:
        """Count values in; infinities, masks and NaN do not count.

        The extremes are those of all values, the bins count a sample where there are many.
        """
        if values.numel() == 0:
            return
        low, high = (float(v) for v in torch.aminmax(values))
        if not max(-low, high) <= FAR:
            self.bad += int(values.isnan().sum())
            values = values[values.abs() <= FAR]
            if values.numel() == 0:
                return
            low, high = (float(v) for v in torch.aminmax(values))
        self._cover(min(self.low, low), max(self.high, high))
        if low == high == 0:
            self._add_zeros(values.numel())
            return
        self._add_peak(max(-low, high))
        sample, times = _sampled(values)
        places = sample.mul(1 / self.width).floor_().to(torch.int16).sub_(self.first)
        found = torch.bincount(places.flatten(), minlength=len(self.counts)).numpy()
        self.counts += found * times
        # PyTorch counts several times as slowly as NumPy.
        zeros = sample.numel() - int(np.count_nonzero(sample.bool().cpu().numpy()))
        self.zeros += zeros * times
        if times > 1:  # the extremes are of all values
            for end in (low, high):
                place = math.floor(end / self.width) - self.first
                self.counts[place] = max(self.counts[place], 1)

    def close(self, rows: int = 1) -> None:
        """What is seen from now on is of another input; the last one was a batch of ``rows``.

        The first row of a batch has the peak of all of them, the others have none.
        """
        self.inputs += rows
        if rows > 1 and self.peaks:
            self.peaks += [NO_PEAK] * min(rows - 1, PEAKS - len(self.peaks))

    def _add_peak(self, magnitude: float) -> None:
        peak, place = round(OCTAVE * math.log2(magnitude)), self.inputs % PEAKS
        self.peaks += [NO_PEAK] * (place + 1 - len(self.peaks))
        self.peaks[place] = max(self.peaks[place], peak)

    def merge(self, other: Statistics, times: int = 1) -> None:
        """Count what another has seen in as well, once or several times.

        Both have seen the same inputs in the same order: of each the larger peak counts.
        """
        longer, shorter = sorted((self.peaks, other.peaks), key=len, reverse=True)
        both = [max(pair) for pair in zip(longer, shorter, strict=False)]
        self.peaks = both + longer[len(shorter) :]
        self.inputs = max(self.inputs, other.inputs)
        self.bad += other.bad * times
        self._cover(min(self.low, other.low), max(self.high, other.high), other.width)
        if other.is_empty:
            self._add_zeros(other.zeros * times)
        else:
            self.zeros += other.zeros * times
            ratio = _ratio(self.width, other.width)
            places = (other.first + np.arange(len(other.counts))) // ratio - self.first
            np.add.at(self.counts, places, other.counts * times)

    def _add_zeros(self, number: int) -> None:
        self.zeros += number
        if len(self.counts):
            self.counts[-self.first] += number

    def _cover(self, low: float, high: float, least: float = 0.0) -> None:
        """Widen to new extremes; bins that become one add up, and no count has to be guessed."""
        self.low, self.high = low, high
        if self.is_empty:
            return
        width = max(self.width, least, 2.0 ** max(_exponent(high - low) - 9, _FINEST))
        while math.floor(high / width) - math.floor(low / width) >= BINS:
            width *= 2
        first, last = math.floor(low / width), math.floor(high / width)
        if width != self.width or first < self.first or last >= self.first + len(self.counts):
            ratio = _ratio(width, self.width) if self.width else 1
            counts = np.zeros(last - first + 1, np.int64)
            places = (self.first + np.arange(len(self.counts))) // ratio - first
            np.add.at(counts, places, self.counts)
            if not len(self.counts):
                counts[-first] = self.zeros
            self.width, self.first, self.counts = width, first, counts

    @property
    def ends(self) -> tuple[float, float]:
        """The extremes, rounded outward to whole bins."""
        if self.is_empty:
            return 0.0, 0.0
        low, high = math.floor(self.low / self.width), math.ceil(self.high / self.width)
        return low * self.width, high * self.width

    @property
    def centres(self) -> Array:
        """The value that each bin stands for."""
        return (self.first + np.arange(len(self.counts)) + 0.5) * self.width

    @property
    def rms(self) -> float:
        """The root mean square of what is not zero."""
        counts = self.numbers(zeros=False)
        return math.sqrt(float(counts @ self.centres**2) / max(float(counts.sum()), 1.0))

    def numbers(self, zeros: bool) -> Array:
        """How many values each bin has, with zeros or without."""
        counts = self.counts.astype(np.float64)
        if not zeros:
            counts[-self.first] -= self.zeros
        return counts


def _sampled(values: Tensor) -> tuple[Tensor, int]:
    """Values at even distances, and how many each of them stands for.

    The distance has no divisor in common with the number of values, so that every position along
    every axis comes as often as others.
    """
    count = values.numel()
    if count < UNSAMPLED:
        return values, 1
    times = -(-count // SAMPLE)
    while math.gcd(times, count) > 1:
        times += 1
    return values.reshape(-1)[::times].contiguous(), times


def _ratio(wide: float, narrow: float) -> int:
    """How many bins become one; beyond all that there are, as many as an integer can say."""
    return min(round(wide / narrow), 1 << 62)


def _exponent(number: float) -> int:
    """Of the least power of two that is no smaller."""
    mantissa, exponent = math.frexp(number)
    return exponent - (mantissa == 0.5)
