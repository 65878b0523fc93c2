"""An operand of which only the shape counts is no input of a compiled graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import tosaic


class Shaped(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x).view_as(y)


@pytest.mark.parametrize("target", ["TOSA-1.0+INT", "ethos-u55-128", "ethos-u85-256"])
def test_a_shape_alone_is_no_input(target: str) -> None:
    torch.manual_seed(0)
    data = [(torch.randn(2, 6), torch.randn(3, 4)) for _ in range(4)]
    art = tosaic.compile(Shaped(), data[0], target=target, calibration=data)
    assert not art.report.refused
    assert len(art.graph.inputs) == 1
    assert (art.run(*data[1]) - Shaped()(*data[1])).abs().max() < 0.05
    assert len(art.run(*data[1]).unique()) > 3
