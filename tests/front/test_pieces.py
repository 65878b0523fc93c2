"""Values that a program writes to part by part: right, and each part as fine as its own range."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from judges.programs import INTEGER, Function, check, compiled


def filled(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y[:, 0] = x[:, 1] * 100
    y[:, 1] = 0.25
    y[:, 2:4] = x[:, :1]
    y[:, 4:] = torch.sigmoid(x[:, 4:])
    return y


def in_steps(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.exp()
    y[:, 0::2] = y[:, 1::2] * 3
    y[:, 1::2].clamp_(0, 1)
    return y, y[:, 2:5] + y[:, 0:6:3].sum()


def overlapping(x: Tensor) -> Tensor:
    y = x * 2
    y[:, 1:5] = x[:, 0:4]
    y[:, 3] = y[:, 2] + 1
    y[0] = y[1] - y[:, 1:3].sum()
    return y[:, 2:5]


def of_another_type(x: Tensor) -> Tensor:
    y = x + 1
    y[:, 1:3] = (x[:, 1:3] > 0).to(torch.int32)
    return y


def returned(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.abs()
    part = y[:, 2]
    y[:, 2] = x[:, 0]
    return y, part


@pytest.mark.parametrize(
    "program", [filled, in_steps, overlapping, of_another_type, returned], ids=lambda f: f.__name__
)
def test_parts_that_are_written_are_right(program: Any) -> None:
    torch.manual_seed(2)
    check(Function(program), (torch.randn(3, 6),), (torch.randn(3, 6),), refused=None)


class Boxes(nn.Module):
    """A detector's head: positions in pixels where there were numbers from 0 to 1."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.sigmoid()
        y[..., 0:2] = (y[..., 0:2] * 2 + 7) * 8
        y[..., 2:4] = (y[..., 2:4] * 2) ** 2 * 100
        return y


class Grid(nn.Module):
    """Positions in pixels that become such from -1 to 1, one axis after the other."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * 8 + 12
        y[:, 0] = 2 * y[:, 0].clone() / 23 - 1
        y[:, 1] = 2 * y[:, 1].clone() / 23 - 1
        return y


class Decoded(nn.Module):
    """The head of a detector behind a layer: channels last, rows of boxes, corners in place."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(2, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.head(x).permute(0, 2, 3, 1).contiguous().view(2, -1, 4)
        y = torch.cat((y[..., :2], y[..., 2:].exp()), -1)
        y[..., :2] -= y[..., 2:] / 2
        return y


@pytest.mark.parametrize(("make", "decibels"), [(Boxes, 40.0), (Grid, 30.0), (Decoded, 30.0)])
def test_a_part_is_quantized_by_its_own_range(make: type[nn.Module], decibels: float) -> None:
    torch.manual_seed(3)
    net, data = make(), [(torch.randn(2, 2, 8, 9),) for _ in range(4)]
    art = compiled(net, data[0], INTEGER, calibration=data)
    assert not art.report.refused
    expected, got = net(*data[1]).detach(), art.run(*data[1])
    noise = ((expected - got) ** 2).sum() / (expected**2).sum()
    assert float(-10 * torch.log10(noise)) > decibels


class Nothing(nn.Module):
    """Writes to parts that have no elements."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * 1.5
        y[1:] += 2.0
        y[:, 3:3] = 1.0
        return y


def test_a_part_without_elements_is_written_and_read() -> None:
    x = torch.rand(1, 3)
    torch.testing.assert_close(compiled(Nothing(), (x,), "TOSA-1.0+FP").run(x), x * 1.5)
