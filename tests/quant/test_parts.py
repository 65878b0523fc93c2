"""Tensors a few rows at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tosaic.quant.observer import _counted
from tosaic.quant.parts import by_rows
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


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=50),
    st.floats(1.0, 4.0),
)
def test_values_are_counted_as_histc_does(numbers: list[float], room: float) -> None:
    values = torch.tensor(numbers)
    reach = float(values.abs().max()) * room
    if reach > 1e-30:
        assert torch.equal(
            _counted(values, reach).float(), torch.histc(values, 2048, -reach, reach)
        )


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_does_not_count_for_a_weight(bad: float) -> None:
    weight = torch.tensor([[1.0, -2.0], [bad, 0.5]])
    rows = PerChannelWeightObserver(ch_axis=0, dtype=torch.int8, quant_min=-127, quant_max=127)
    rows(weight)
    assert torch.allclose(rows.calculate_qparams()[0] * 127, torch.tensor([2.0, 0.5]))
    whole = PerTensorWeightObserver(dtype=torch.int8, quant_min=-127, quant_max=127)
    whole(weight)
    assert torch.allclose(whole.calculate_qparams()[0] * 127, torch.tensor([2.0]))
