"""Headroom: how much larger than what calibration saw a range of many integers is.

The steps of 16 bits seldom show beside the errors of weights, but what saturates does. So nothing
that was seen is cut off, and the logarithms of the largest magnitudes of single inputs are taken
for normal: a quantile of their predictive distribution, Student's t with a prior on the deviation,
tells how large those of unseen inputs will be. Values far smaller than the largest leave less room:
their steps count. 32 bits have room for a power that is as much larger again.

The steps of 8 bits do show, and so does what saturates: there the room depends on the number of
inputs alone. Over 900 tensors of 44 networks, the best range for 16 unseen inputs is 1.4 times the
best one for one input that was seen (median; 2.0 in the upper quartile), 1.25 (1.7) times that for
two, 1.0 (1.1) times that for eight: in the logarithm it falls as one over their number.

A small tensor, such as the state of a recurrence or the results of a classifier, shows few values
in many inputs, too: of a hundred normal ones the largest is 2.6 deviations from their mean, and 8
bits are best used to four. Where the largest is nearer to the mean than it would be of a normal
distribution, values have an end, and less room is left beyond it.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from tosaic.quant.statistics import NO_PEAK, OCTAVE, Statistics

# A deviation of the logarithms before anything is seen, and how many inputs it counts as.
_PRIOR, _WEIGHT = 0.5, 4.0
_BEYOND = 3.2  # deviations of a normal one: one of 1,500 inputs has a larger peak
LEAST_ROOM, _MOST = 1.25, 8.0
_LONG, _MOST_LONG = 1 << 24, 64.0  # steps of more than 16 bits, and the room that they leave
_USUAL = 2.0  # where nothing is known of single inputs
_SENSORS = (1.0, 255.0, 32768.0)
_BRIGHT, _QUIET = 0.8, 1 / 32  # of its end: what pixels reach at least, and what a signal does
_FEW_STEPS = 0.7  # the logarithm of the room that 8 bits leave after one input
_ENOUGH = 16  # inputs, after which it would be 1.04 and less
_BEST = 3.9  # deviations that 8 bits cover at best
_LEAST_FEW, _MOST_FEW = 1.1, 2.0  # less room for them is none
_ENDING = 6  # the power of how much nearer the largest is than it would be
_NOISE = 10 ** (60 / 20)  # what the steps are below the root mean square, if room is left


def room_for_unseen(seen: Statistics, steps: int) -> float:
    """By how much the largest magnitude is multiplied."""
    if steps > _LONG:
        return _MOST_LONG
    wanted = _predicted([p for p in seen.peaks if p > NO_PEAK])
    largest = max(map(abs, seen.ends))
    affordable = seen.rms * math.sqrt(12) * steps / 2 / _NOISE / largest
    return max(LEAST_ROOM, min(wanted, affordable, _MOST))


def room_after(seen: Statistics) -> float:
    """By how much a range of few integers is larger than that of what was seen.

    Nothing is known of how many inputs there were if none was closed.
    """
    count = len(seen.peaks) if seen.inputs else 0
    if not count or seen.is_empty:
        return 1.0
    of_inputs = math.exp(_FEW_STEPS / count) if count < _ENOUGH else 1.0
    return max(of_inputs, _room_after_values(seen))


def _room_after_values(seen: Statistics) -> float:
    """The same by the number of values and their distribution."""
    counts, values = seen.numbers(zeros=False), seen.centres
    number = float(counts.sum())
    if number < 2:
        return 1.0
    mean = float(counts @ values) / number
    deviation = math.sqrt(float(counts @ (values - mean) ** 2) / number)
    usual = NormalDist().inv_cdf(1 - 0.5 / (number + 0.4))  # of the largest of so many
    farthest, largest = max(seen.high - mean, mean - seen.low), max(seen.high, -seen.low)
    if usual >= _BEST or not deviation:
        return 1.0
    nearer = min(farthest / deviation / usual, 1.0) ** _ENDING
    wanted = 1 + (_BEST / usual - 1) * nearer * min(farthest / largest, 1.0)
    return min(wanted, _MOST_FEW) if wanted >= _LEAST_FEW else 1.0


def sensor_bounds(low: float, high: float) -> tuple[float, float]:
    """Where inputs end that are pixels or samples: at 1, 255 or 32768, if what was seen is near."""
    most = max(-low, high)
    near = (end for end in _SENSORS if end / 2 < most <= end)
    return next(((-end, end) for end in near), (-math.inf, math.inf))


def sensor_end(low: float, high: float, is_signal: bool) -> float:
    """Where the magnitudes of an input end: the same, but for what is likely to be something else.

    A ``signal`` is a row of samples, which may be quiet.
    """
    most = max(-low, high)
    least = _QUIET if is_signal and low < 0 < high else _BRIGHT
    return next((end for end in _SENSORS if end * least < most <= end), math.inf)


def _predicted(peaks: list[int]) -> float:
    """The largest peak to be expected over the largest that was seen."""
    if not peaks:
        return _USUAL
    logs = [peak * math.log(2) / OCTAVE for peak in peaks]
    count, mean = len(logs), math.fsum(logs) / len(logs)
    squares = math.fsum((log - mean) ** 2 for log in logs)
    variance = (_WEIGHT * _PRIOR**2 + squares) / (_WEIGHT + count - 1) * (1 + 1 / count)
    beyond = _student(_BEYOND, _WEIGHT + count - 1)
    return math.exp(mean + beyond * math.sqrt(variance) - max(logs))


def _student(normal: float, freedom: float) -> float:
    """The quantile of Student's t where a normal distribution has so many deviations."""
    first = (normal**3 + normal) / 4
    second = (5 * normal**5 + 16 * normal**3 + 3 * normal) / 96
    return normal + first / freedom + second / freedom**2
