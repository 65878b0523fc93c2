"""The ratio of a quantized network against float that a compile measures on one example."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor, nn

import tosaic


class Net(nn.Module):
    """A convolution, a mean and the place of its largest element."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(self.conv(x)).mean((2, 3))
        return y, y.argmax(1)


def made(target: str, **options: object) -> tuple[nn.Module, list[tuple[Tensor]], tosaic.Artifact]:
    torch.manual_seed(0)
    net = Net().eval()
    data = [(torch.randn(1, 3, 12, 12),) for _ in range(4)]
    return net, data, tosaic.compile(net, data[-1], target=target, calibration=data, **options)


def ratio(right: Tensor, ours: Tensor) -> float:
    noise = float((ours - right).double().square().sum())
    return 10 * math.log10(float(right.double().square().sum()) / noise)


@pytest.mark.parametrize("target", ["TOSA-1.0+INT", "ethos-u55-128", "cortex-m4"])
def test_the_report_tells_the_ratio_of_each_output_on_the_first_calibration_input(target) -> None:
    net, data, art = made(target)
    wanted = ratio(net(*data[0])[0].detach(), art.run(*data[0], engine="tosa")[0])
    real, place = art.report.accuracy
    assert real.sqnr == pytest.approx(wanted, abs=1e-6)
    assert 20 < wanted < 80
    assert place.sqnr is None
    assert place.equal in (0.0, 1.0)
    assert f"{wanted:.1f} dB" in str(art.report)


def test_integers_at_the_boundary_count_as_what_they_stand_for() -> None:
    _, _, plain = made("ethos-u55-128")
    _, _, bytes_out = made("ethos-u55-128", io=("uint8", "int8"))
    assert bytes_out.accuracy[0].sqnr == pytest.approx(plain.accuracy[0].sqnr, abs=3)


def test_a_run_before_changes_no_figure() -> None:
    """A state that runs change begins anew."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("last", torch.zeros(1, 4))

        def forward(self, x: Tensor) -> Tensor:
            y = torch.tanh(x) + 0.5 * self.last
            self.last.copy_(y)
            return y

    torch.manual_seed(0)
    data = [(torch.randn(1, 4),) for _ in range(4)]

    def told(runs: int) -> object:
        art = tosaic.compile(Counting(), data[0], target="TOSA-1.0+INT", calibration=data)
        for _ in range(runs):
            art.run(*data[1])
        return art.accuracy

    assert told(0) == told(3)


def test_a_network_that_is_lost_in_8_bits_is_warned_of() -> None:
    class Lost(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return (x + y) - y

    torch.manual_seed(0)
    data = [(torch.randn(1, 64), 1000 * torch.rand(1, 64)) for _ in range(4)]
    with pytest.warns(UserWarning, match=r"SQNR against float.*tosaic\.compare"):
        tosaic.compile(Lost(), data[0], target="ethos-u55-128", calibration=data)


def test_floats_and_unchecked_compiles_tell_none() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert made("TOSA-1.0+FP")[2].accuracy == ()
        assert made("ethos-u55-128", check=False)[2].accuracy == ()
