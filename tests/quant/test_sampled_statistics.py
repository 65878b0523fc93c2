"""Histograms of large tensors count a sample that is even over every axis."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tosaic.quant.statistics import SAMPLE, Statistics


@pytest.mark.parametrize("shape", [(64, 3000), (3000, 64), (1, 96, 56, 56), (7, 131, 1024)])
def test_every_channel_counts_alike_and_the_extremes_are_of_all(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    channels = shape[1] if len(shape) == 4 else shape[-1]
    axis = 1 if len(shape) == 4 else len(shape) - 1
    view = [channels if i == axis else 1 for i in range(len(shape))]
    values = (torch.arange(channels) % 16).float().reshape(view).expand(shape).clone()
    values.view(-1)[12345], values.view(-1)[-7] = -3.5, 19.0
    assert values.numel() >= 2 * SAMPLE
    seen = Statistics()
    seen.see(values)
    assert (seen.low, seen.high) == (-3.5, 19.0)
    centres, counts = np.floor(seen.centres), seen.counts
    for level in range(16):
        right = int((values == level).sum())
        assert abs(int(counts[centres == level].sum()) - right) <= 0.05 * values.numel() / 16
    assert counts[0] >= 1
    assert counts[-1] >= 1
    assert abs(seen.zeros - int((values == 0).sum())) <= 0.05 * values.numel() / 16


def test_a_small_tensor_is_counted_value_by_value() -> None:
    values = torch.randn(2 * SAMPLE - 1)
    seen = Statistics()
    seen.see(values)
    assert int(seen.counts.sum()) == len(values)
