"""Constant factors that follow one another are rounded once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.programs import Function, compiled
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


class Scaled(nn.Module):
    """A layer with a factor for each of its channels, beside what it is added to."""

    def __init__(self, layer: nn.Module, factor: Tensor) -> None:
        super().__init__()
        self.layer, self.factor = layer, nn.Parameter(factor)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.factor * self.layer(x)


@pytest.mark.parametrize("size", [1.0, 1e-5, 1e-9])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_a_factor_for_each_channel_is_part_of_the_layer_before_it(rank: int, size: float) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(8, 8, 3, padding=1) if rank == 4 else nn.Linear(8, 8)
    factor = size * (torch.rand(8) + 0.5)
    net = Scaled(layer, factor.view(8, 1, 1) if rank == 4 else factor).eval().requires_grad_(False)
    shape = {2: (4, 8), 3: (2, 5, 8), 4: (1, 8, 6, 6)}[rank]
    data = [(torch.randn(*shape),) for _ in range(4)]
    art = compiled(net, data[0], "TOSA-1.0+INT", calibration=data)
    assert not any("mul" in str(node.target) for node in art.program.calls)
    real, made = net(*data[0]), art.run(*data[0])
    step = 2 * float(torch.stack([net(*x) for x in data]).abs().max()) / 255
    assert float((made - real).abs().max()) < 2 * step  # of the input, the weights and the result


def test_a_factor_along_another_axis_stays_a_product() -> None:
    net = Scaled(nn.Linear(8, 8), torch.rand(5, 1) + 0.5).eval().requires_grad_(False)
    data = [(torch.randn(2, 5, 8),) for _ in range(4)]
    art = compiled(net, data[0], "TOSA-1.0+INT", calibration=data)
    assert any("mul" in str(node.target) for node in art.program.calls)
