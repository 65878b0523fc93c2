"""Headroom: how much larger than what calibration saw a range of many integers is.

The steps of 16 bits seldom show beside the errors of weights, but what saturates does. So nothing
that was seen is cut off, and the logarithms of the largest magnitudes of single inputs are taken
for normal: their mean and deviation, with a prior where there are few inputs, tell how large those
of unseen inputs will be. Values far smaller than the largest leave less room: their steps count.
"""

from __future__ import annotations

import math

from tosaic.quant.statistics import NO_PEAK, OCTAVE, Statistics

# A deviation of the logarithms before anything is seen, and how many inputs it counts as.
_PRIOR, _WEIGHT = 0.35, 4.0
_BEYOND = 3.2  # deviations: one of 1,500 inputs has a larger peak
_LEAST, _MOST = 1.25, 8.0
_USUAL = 2.0  # where nothing is known of single inputs
_NOISE = 10 ** (66 / 20)  # what the steps are below the root mean square, if room is left


def room_for_unseen(seen: Statistics, steps: int) -> float:
    """By how much the largest magnitude is multiplied."""
    wanted = _predicted([p for p in seen.peaks if p > NO_PEAK])
    largest = max(map(abs, seen.ends))
    affordable = seen.rms * math.sqrt(12) * steps / 2 / _NOISE / largest
    return max(_LEAST, min(wanted, affordable, _MOST))


def _predicted(peaks: list[int]) -> float:
    """The largest peak to be expected over the largest that was seen."""
    if not peaks:
        return _USUAL
    logs = [peak * math.log(2) / OCTAVE for peak in peaks]
    count, mean = len(logs), math.fsum(logs) / len(logs)
    squares = math.fsum((log - mean) ** 2 for log in logs)
    variance = (_WEIGHT * _PRIOR**2 + squares) / (_WEIGHT + count - 1) * (1 + 1 / count)
    return math.exp(mean + _BEYOND * math.sqrt(variance) - max(logs))
