"""Histograms of the values of a tensor over many runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tosaic.ir.graph import Quant
from tosaic.spec.dtypes import DType

_FINE, _SHOWN = 1024, 48  # bins while counting, bins in the end


@dataclass(frozen=True, slots=True)
class Values:
    """Counts in bins of equal width from ``low`` to ``high``, and what the integers cover.

    99.8 % of the values lie between ``percentiles``.
    """

    low: float
    high: float
    counts: tuple[int, ...]
    percentiles: tuple[float, float]
    scale: float | None = None
    zero_point: int | None = None
    covered: tuple[float, float] | None = None
    dtype: str = ""


class Histogram:
    """Counts values in bins; what lies outside doubles the width of the bins."""

    def __init__(self) -> None:
        self.counts = torch.zeros(_FINE, dtype=torch.float64)
        self.reach = 0.0  # the bins cover -reach to reach
        self.low, self.high = float("inf"), float("-inf")

    def add(self, tensor: Tensor) -> None:
        values = tensor.detach().float()
        values = values[values.isfinite()]
        if not values.numel():
            return
        low, high = (float(end) for end in torch.aminmax(values))
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.reach = self.reach or max(-low, high, 1e-30)
        while self.reach < max(-low, high):
            rest = self.counts.new_zeros(_FINE // 4)
            self.counts = torch.cat([rest, self.counts.view(-1, 2).sum(1), rest])
            self.reach *= 2
        self.counts += torch.histc(values, _FINE, -self.reach, self.reach).double()

    def values(self, meaning: tuple[Quant, DType] | None) -> Values | None:
        """What was counted, and what integers of that meaning cover of it; None if nothing was."""
        if not self.reach:
            return None
        width = 2 * self.reach / _FINE
        middles = (torch.arange(_FINE) + 0.5) * width - self.reach
        span = max(self.high - self.low, 1e-30)
        place = ((middles - self.low) / span * _SHOWN).long().clamp(0, _SHOWN - 1)
        shown = torch.zeros(_SHOWN, dtype=torch.float64).index_add(0, place, self.counts)
        share = self.counts.cumsum(0) / self.counts.sum()
        ends = tuple(
            min(max(float(middles[int((share < part).sum().clamp(max=_FINE - 1))]), self.low),
                self.high)
            for part in (0.001, 0.999)
        )  # fmt: skip
        counts = tuple(int(count) for count in shown)
        if meaning is None:
            return Values(self.low, self.high, counts, (ends[0], ends[1]))
        quant, kind = meaning
        scale, zero = quant.one_scale, quant.one_zero
        low, high = ((limit - zero) * scale for limit in kind.range)
        return Values(
            self.low, self.high, counts, (ends[0], ends[1]), scale, zero, (low, high), str(kind)
        )
