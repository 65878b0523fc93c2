"""Observers: what range of real numbers the integers shall cover."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchao.quantization.pt2e import PerChannelMinMaxObserver
from torchao.quantization.pt2e.observer import UniformQuantizationObserverBase

from tosaic.ir.graph import Array

_BINS = 2048
_CUTS = 129
# What is cut off has one sign, so it adds up in the sums of the next layer where rounding averages
# out. Of 1, 4, 8, 16 and 64 this is best for ResNet-18 and good for MobileNetV2 on new pictures.
_CLIPPING = 16.0
# Scales stay above these, so that a value that never changes, or a channel whose weights batch
# norm has all but removed, leaves a rescale and an int32 bias that fit.
ACTIVATION_EPS, WEIGHT_EPS = 2.0**-16, 2.0**-20


class RangeObserver(UniformQuantizationObserverBase):  # type: ignore[misc]
    """The range with the least expected error, from a histogram of everything seen.

    Values outside a range cost the square of their distance to it (more than once), values inside
    s²/12, zero costs nothing since it has an integer of its own. Infinities and NaN do not count.
    """

    counts: Tensor

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"eps": ACTIVATION_EPS, **options})
        self.register_buffer("counts", torch.zeros(_BINS))
        self.reach = 0.0  # the histogram covers -reach to reach
        self.low = self.high = self.zeros = 0.0

    def forward(self, x: Tensor) -> Tensor:
        values = x.detach().float()
        if values.numel() == 0:
            return x
        low, high = (float(v) for v in torch.aminmax(values))
        if not low - high <= 0 or abs(low) == torch.inf or abs(high) == torch.inf:
            values = values[values.isfinite()]
            if values.numel() == 0:
                return x
            low, high = (float(v) for v in torch.aminmax(values))
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._cover(max(-low, high))
        if self.reach:
            self.counts += torch.histc(values, _BINS, -self.reach, self.reach)
            self.zeros += values.numel() - int(torch.count_nonzero(values))
        return x

    def _cover(self, reach: float) -> None:
        """Widen by doubling: two bins become one, and no count has to be guessed."""
        self.reach = self.reach or reach
        while self.reach < reach:
            pairs = self.counts.view(-1, 2).sum(1)
            rest = torch.zeros(_BINS // 4)
            self.counts = torch.cat([rest, pairs, rest])
            self.reach *= 2

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        low, high = self._best() if self.reach else (0.0, 0.0)
        ends = torch.tensor(low), torch.tensor(high)
        found: tuple[Tensor, Tensor] = self._calculate_qparams(*ends)
        return found

    def _best(self) -> tuple[float, float]:
        counts = self.counts.double().numpy()
        middle = _BINS // 2
        counts[middle] = max(counts[middle] - self.zeros, 0)
        total, step = counts.sum(), 2 * self.reach / _BINS
        centers = (np.arange(_BINS) + 0.5) * step - self.reach
        shares = np.linspace(0, 1, _CUTS)
        if self.qscheme == torch.per_tensor_symmetric:
            highs = max(-self.low, self.high) * shares
            both = counts[middle:] + counts[middle - 1 :: -1]
            cost = _CLIPPING * _beyond(centers[middle:], both, highs)
            best = highs[(cost + _rounding(2 * highs, self) * total).argmin()]
            return -float(best), float(best)
        lows, highs = self.low * shares, self.high * shares
        below = _beyond(-centers[::-1], counts[::-1], -lows)
        above = _beyond(centers, counts, highs)
        inside = _rounding(highs[None, :] - lows[:, None], self) * total
        row, column = divmod(int((_CLIPPING * (below[:, None] + above) + inside).argmin()), _CUTS)
        return float(lows[row]), float(highs[column])


def _rounding(span: Array, observer: RangeObserver) -> Array:
    """The mean square of what rounding to so many integers over a span changes."""
    squares: Array = (span / (observer.quant_max - observer.quant_min)) ** 2 / 12
    return squares


def _beyond(values: Array, counts: Array, cuts: Array) -> Array:
    """For each cut, the squared distances to it of all values above it; values ascend."""
    moments = [np.cumsum((counts * values**k)[::-1])[::-1] for k in range(3)]
    number, first, second = (np.append(m, 0.0)[np.searchsorted(values, cuts)] for m in moments)
    squares: Array = second - 2 * cuts * first + cuts**2 * number
    return squares


class PerChannelWeightObserver(PerChannelMinMaxObserver):  # type: ignore[misc]
    """The largest magnitude of each channel, looked at once: weights do not change."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"eps": WEIGHT_EPS, **options})

    def forward(self, x: Tensor) -> Tensor:
        if self.min_val.numel() == 0:
            super().forward(x)
        return x
