"""Tensors a few rows at a time."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tosaic.front.row_blocks import by_rows
from tosaic.quant.statistics import Statistics
from tosaic.quant.weights import PerChannelWeightObserver, PerTensorWeightObserver


@pytest.mark.parametrize("shape", [(1, 100_000), (700, 3, 100), (40_000, 2), (3,), (5, 0)])
@pytest.mark.parametrize("one_for_all", [False, True])
def test_rows_in_parts_are_those_at_once(shape: tuple[int, ...], one_for_all: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    steps = torch.rand(1 if one_for_all else shape[0], *[1] * (len(shape) - 1)) + 0.5
    calls = []

    def rounded(rows: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        calls.append(len(rows))
        return (rows / by).round().to(torch.int8)

    assert torch.equal(by_rows(rounded, x, steps), (x / steps).round().to(torch.int8))
    assert sum(calls) == shape[0]
    assert (len(calls) > 1) is (x.numel() > 1 << 15 and shape[0] > 1)


SIZES = st.floats(2.0**-60, 2.0**60, width=32)  # far apart, and no quotient underflows
NUMBERS = st.lists(SIZES | SIZES.map(lambda n: -n) | st.just(0.0), min_size=1, max_size=50)


@settings(max_examples=100, deadline=None)
@given(NUMBERS, NUMBERS)
def test_values_are_counted_in_bins_of_a_power_of_two(one: list[float], two: list[float]) -> None:
    """Also where the numbers come in two parts, and where two histograms become one."""
    in_parts, merged, other = Statistics(), Statistics(), Statistics()
    in_parts.see(torch.tensor(one))
    in_parts.see(torch.tensor(two))
    merged.see(torch.tensor(one))
    other.see(torch.tensor(two))
    merged.merge(other)
    values = torch.tensor([*one, *two]).double().numpy()
    for seen in (in_parts, merged):
        assert (seen.low, seen.high) == (min(*values, 0.0), max(*values, 0.0))
        assert seen.zeros == int((values == 0).sum())
        if not seen.is_empty:
            wanted = Counter(np.floor(values / seen.width).astype(int).tolist())
            found = {seen.first + i: n for i, n in enumerate(seen.counts.tolist()) if n}
            assert found == dict(wanted)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_does_not_count_for_a_weight(bad: float) -> None:
    weight = torch.tensor([[0.73013, -2.12371], [bad, 0.5]])  # not multiples of one step
    rows = PerChannelWeightObserver(ch_axis=0, dtype=torch.int8, quant_min=-127, quant_max=127)
    rows(weight)
    assert torch.allclose(rows.calculate_qparams()[0] * 127, torch.tensor([2.12371, 0.5]))
    whole = PerTensorWeightObserver(dtype=torch.int8, quant_min=-127, quant_max=127)
    whole(weight)
    assert torch.allclose(whole.calculate_qparams()[0] * 127, torch.tensor([2.12371]))
