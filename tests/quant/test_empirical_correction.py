"""Biases make up for what a layer's inputs are off by in the mean, where they have 8 bits."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tosaic
from tosaic.quant import inputs

TARGET = "TOSA-1.0+INT+int16"


class Uneven(nn.Module):
    """Depthwise blocks; of their channels some are a hundred times as large as others."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.Hardswish()]
        for _ in range(2):
            layers += [nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.BatchNorm2d(16), nn.Hardswish()]
            layers += [nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16), nn.Hardswish()]
        self.body, self.last = nn.Sequential(*layers), nn.Linear(16, 8)
        for norm in (m for m in self.body if isinstance(m, nn.BatchNorm2d)):
            norm.weight.data = torch.exp(1.2 * torch.randn(16))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(x).mean((2, 3)))


def pictures(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.interpolate(torch.randn(count, 3, 6, 6, generator=generator), 24, mode="bilinear")


def alive(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A network whose batch norms have the statistics of such pictures."""
    torch.manual_seed(seed)
    net = make().train()
    with torch.no_grad():
        net(pictures(64, 900))
    return net.eval()


def decibels(net: nn.Module, calibration: list[Tensor], scheme: str = "int8") -> float:
    """On pictures that calibration has not seen."""
    judged = pictures(16, 7000).split(1)
    art = tosaic.compile(
        net, (judged[0],), target=TARGET, scheme=scheme, calibration=calibration
    )  # fmt: skip
    with torch.no_grad():
        real, got = (torch.cat([run(x).double() for x in judged]) for run in (net, art.run))
    return float(10 * torch.log10(real.square().sum() / (got - real).square().sum()))


@pytest.mark.parametrize("batches", [1, 8])
def test_uneven_channels_gain_decibels(batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight inputs apart, and as one batch."""
    gains = []
    for seed in range(4):
        net = alive(Uneven, seed)
        data = list(pictures(8, 100).split(8 // batches))
        with monkeypatch.context() as patch:
            patch.setattr(inputs, "_KEPT", 0)
            before = decibels(net, data)
        gains.append(decibels(net, data) - before)
    assert min(gains) > -0.3, gains
    assert sum(gains) / len(gains) > 3, gains


def test_errors_of_chance_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two inputs of even channels, whose errors have no mean of their own."""
    changed = []
    for seed in range(6):
        net = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.Flatten()
        )
        net = alive(lambda net=net: net, seed)
        data = list(pictures(2, 100 + seed).split(1))
        with monkeypatch.context() as patch:
            patch.setattr(inputs, "_KEPT", 0)
            before = decibels(net, data)
        changed.append(decibels(net, data) - before)
    assert min(changed) > -0.3, changed


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return torch.cond(y.sum() > 0, lambda y: self.second(y), lambda y: self.second(-y), (y,))


def test_observers_inside_of_branches_see_the_data_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net = Branch().eval()
    data = [(torch.randn(1, 6),) for _ in range(4)]
    with monkeypatch.context() as patch:
        patch.setattr(inputs, "_KEPT", 0)
        before = tosaic.quantize(net, data[0], calibration=data)
    after = tosaic.quantize(net, data[0], calibration=data)
    assert before.state_dict().keys() == after.state_dict().keys()
    assert all(torch.equal(v, after.state_dict()[k]) for k, v in before.state_dict().items())


class Looked(nn.Module):
    """A place that rounding moves beyond the end of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("table", torch.eye(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        place = (torch.sigmoid(self.layer(x)[:, 0]) * 7.0001).ceil().long()
        return self.last(self.table[place])


def test_a_rounded_value_that_leads_elsewhere_ends_the_correction() -> None:
    torch.manual_seed(0)
    net = Looked().eval()
    data = [(torch.randn(1, 4) * 4,) for _ in range(8)]
    art = tosaic.compile(net, data[0], target=TARGET, calibration=data)
    assert math.isfinite(float(art.run(*data[0]).sum()))
