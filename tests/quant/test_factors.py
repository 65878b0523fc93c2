"""Constant factors that follow one another are rounded once."""

from __future__ import annotations

import torch
from torch import Tensor

import tosaic
from judges.programs import Function
from tosaic.front import torchapi

SIZES = torch.linspace(0.1, 3.0, 8)


def decoded(x: Tensor) -> Tensor:
    """As detectors decode boxes."""
    return torch.tanh(x) * 0.1 * SIZES / 2


def branched(x: Tensor) -> Tensor:
    y = x * 0.3
    return y * SIZES + torch.sin(y)


def calls(function: object) -> list[str]:
    data = [(torch.randn(4, 8, generator=torch.Generator().manual_seed(n)),) for n in range(4)]
    made = tosaic.compile(Function(function), data[0], calibration=data)
    real = torch.cat([function(*each) for each in data])  # type: ignore[operator]
    got = torch.cat([made.run(*each) for each in data])
    assert 10 * torch.log10(real.square().sum() / (got - real).square().sum()) > 30
    return [torchapi.target_name(n) for n in made.program.calls if "quantize" not in str(n.target)]


def test_factors_in_a_row_are_one() -> None:
    assert calls(decoded) == ["aten.tanh.default", "aten.mul.Tensor"]


def test_a_product_that_is_read_twice_stays() -> None:
    assert calls(branched).count("aten.mul.Tensor") == 2


def test_what_divides_is_no_factor() -> None:
    assert "aten.div.Tensor" in calls(lambda x: SIZES / ((torch.sigmoid(x) + 1) * 0.5))
