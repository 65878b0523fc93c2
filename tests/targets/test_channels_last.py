"""Tensors in PyTorch's channels_last format cross a graph's boundary as they lie in memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic

torch.manual_seed(0)
LAST = torch.channels_last


class Picture(nn.Module):
    """A picture in, a picture out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 4, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


class Scores(Picture):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).mean((2, 3))


class Mixed(Picture):
    """PyTorch keeps the function in the middle."""

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.special.bessel_j0(torch.relu(self.first(x))))


def compiled(net: nn.Module, example: Tensor, target: str) -> Any:
    data = [(example,), (torch.randn_like(example),)] if "INT" in target else None
    return tosaic.compile(net.eval(), (example,), target=target, calibration=data)


@pytest.mark.parametrize("target", ["TOSA-1.0+FP", "TOSA-1.0+INT"])
@pytest.mark.parametrize("make", [Picture, Scores])
def test_no_transposition_is_left(make: type[nn.Module], target: str) -> None:
    torch.manual_seed(2)
    net, x = make(), torch.randn(1, 3, 8, 10).to(memory_format=LAST)
    art = compiled(net, x, target)
    assert art.graph.inputs[0].shape == (1, 8, 10, 3)
    assert "TRANSPOSE" not in art.report.ops
    with torch.no_grad():
        real, got = net(x), art.run(x)
    assert got.shape == real.shape
    assert got.stride() == real.stride()
    step = float(real.abs().max()) * (0.03 if "INT" in target else 1e-5)
    torch.testing.assert_close(got, real, rtol=0, atol=step)
    assert len(got.unique()) > 3
    again = art.run(x.contiguous())
    torch.testing.assert_close(again, got, rtol=0, atol=step if "FP" in target else 0)


def test_a_contiguous_example_keeps_the_order_of_pytorch() -> None:
    art = compiled(Picture(), torch.randn(1, 3, 8, 10), "TOSA-1.0+FP")
    assert art.graph.inputs[0].shape == (1, 3, 8, 10)
    assert art.graph.outputs[0].shape == (1, 4, 4, 5)
    assert art.report.ops["TRANSPOSE"] == 2


def test_pieces_round_pytorch_agree_on_the_order() -> None:
    net, x = Mixed(), torch.randn(1, 3, 8, 10).to(memory_format=LAST)
    art = compiled(net, x, "TOSA-1.0+FP")
    assert len(art.partition.graphs) == 2
    torch.testing.assert_close(art.run(x), net(x))


def test_a_batch_runs_as_its_samples_do() -> None:
    x = torch.randn(3, 3, 8, 10).to(memory_format=LAST)
    net = Picture()
    one, three = (compiled(net, example, "TOSA-1.0+FP") for example in (x[:1], x))
    assert three.graph.inputs[0].shape == (3, 8, 10, 3)
    torch.testing.assert_close(three.run(x), torch.cat([one.run(each) for each in x.split(1)]))


class Sound(nn.Module):
    """Features over time in; over time, features out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(5, 6, 3, padding=1), nn.Conv1d(6, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x))).transpose(1, 2)


@pytest.mark.parametrize("target", ["TOSA-1.0+FP", "TOSA-1.0+INT", "ethos-u55-128"])
def test_a_sequence_is_taken_as_its_example_lies(target: str) -> None:
    net, x = Sound().eval(), torch.randn(1, 12, 5).transpose(1, 2)
    data = None if "FP" in target else [(x,), (torch.randn_like(x),)]
    art = tosaic.compile(net, (x,), target=target, calibration=data)
    assert art.graph.inputs[0].shape == (1, 12, 5)
    assert art.boundary.inputs[0].dim_order == (0, 2, 1)
    assert art.boundary.outputs[0].dim_order == (0, 1, 2)
    assert "TRANSPOSE" not in art.report.ops
    with torch.no_grad():
        real, got = net(x), art.run(x)
    step = float(real.abs().max()) * (1e-5 if data is None else 0.03)
    torch.testing.assert_close(got, real, rtol=0, atol=step)
    again = art.run(x.contiguous())
    torch.testing.assert_close(again, got, rtol=0, atol=step if "FP" in target else 0)
