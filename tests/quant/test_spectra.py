"""Spectra inside of a model: logarithms and roots of re² + im² keep what is quiet in 16 bits."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tosaic

WIDE = "TOSA-1.0+INT+int16"
POINTS, BINS, HOP = 128, 24, 64


def _sounds(count: int, seed: int) -> list[Tensor]:
    """Tones of all loudness, one over the other, 50 dB apart."""
    g = torch.Generator().manual_seed(seed)
    time = torch.arange(640) / 8000
    made = []
    for _ in range(count):
        tones = 200 + 3500 * torch.rand(4, 1, generator=g)
        loud = torch.tensor([1.0, 0.1, 0.01, 0.003])[:, None]
        noise = 1e-3 * torch.randn(640, generator=g)
        made.append(((torch.sin(2 * math.pi * tones * time) * loud).sum(0) + noise)[None, None])
    return made


class Spectrum(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        place, tones = torch.arange(POINTS) - POINTS / 2, torch.arange(BINS) * (4000 / BINS)
        angles = 2 * math.pi * tones[:, None] / 8000 * place
        bases = torch.cat([angles.cos(), angles.sin()]) * torch.hann_window(POINTS) * (2 / POINTS)
        self.register_buffer("bases", bases[:, None])
        middles = torch.linspace(2, BINS - 3, 8)[:, None]
        self.register_buffer("bank", F.relu(1 - (torch.arange(BINS) - middles).abs() / 3))

    def forward(self, sound: Tensor) -> Tensor:
        both = F.conv1d(sound, self.bases, stride=HOP)
        re, im = both[:, :BINS], both[:, BINS:]
        if self.form == "log of a root":
            return torch.log(torch.clamp(torch.sqrt(re * re + im * im), min=1e-5))
        if self.form == "two steps":  # a Fourier transform of halves, and moves before the root
            rows = sound.unfold(2, POINTS, HOP)[:, 0]
            even, odd = rows[..., : POINTS // 2], rows[..., POINTS // 2 :]
            cos, sin = self.bases[:BINS, 0].T, self.bases[BINS:, 0].T
            half = POINTS // 2
            re = even @ cos[:half] - odd @ -cos[half:]
            im = even @ sin[:half] + odd @ sin[half:]
            power = (re * re + im * im).permute(0, 2, 1).reshape(1, -1)[:, BINS:]
            return torch.log(torch.sqrt(power.unsqueeze(0)) + 1e-4)
        if self.form == "log of a sum":
            return 0.5 * torch.log(re.pow(2) + im.pow(2) + 1e-8)
        if self.form == "decibels, axis of two":
            pair = both.unflatten(1, (2, BINS))
            return 10 * torch.log10((pair * pair).sum(1) + 1e-9)
        if self.form == "inverse root":
            return torch.rsqrt(re.square() + im.square() + 1e-4)
        if self.form == "bank on the left":
            return torch.log(self.bank @ (re * re + im * im) + 1e-7)
        if self.form == "bank on the right":
            return torch.log(torch.sqrt(re**2 + im**2).transpose(1, 2) @ self.bank.T + 1e-4)
        return torch.sqrt(re * re + im * im).transpose(1, 2) ** 0.3


def _decibels(made, net, inputs) -> float:
    real, got = (torch.cat([f(x).detach() for x in inputs]).double() for f in (net, made.run))
    return float(10 * torch.log10(real.square().sum() / (got - real).square().sum()))


@pytest.mark.parametrize(
    "form",
    ["log of a root", "log of a sum", "decibels, axis of two", "inverse root", "moved and raised",
     "bank on the left", "bank on the right", "two steps"],
)  # fmt: skip
@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_functions_of_magnitudes_keep_what_is_quiet(form: str, scheme: str) -> None:
    net, data = Spectrum(form).eval(), _sounds(8, 0)
    made = tosaic.compile(net, (data[0],), target=WIDE, scheme=scheme, calibration=data)
    assert not made.report.refused
    # int8 rounds the result itself to 256 steps.
    assert _decibels(made, net, _sounds(8, 1)) > (40 if scheme == "a16w8" else 33)


def test_a_device_computes_a_log_spectrum_bit_by_bit() -> None:
    net, data = Spectrum("log of a root").eval(), _sounds(4, 0)
    made = tosaic.compile(net, (data[0],), target="ethos-u55-128", scheme="a16w8", calibration=data)
    assert not made.report.refused
    assert any("bit by bit" in check for check in made.report.delegates[0].checks)
    assert _decibels(made, net, _sounds(2, 1)) > 40


def test_silence_is_what_zero_gives() -> None:
    net, data = Spectrum("log of a root").eval(), _sounds(4, 0)
    made = tosaic.compile(
        net, (data[0],), target=WIDE, scheme="a16w8", calibration=[*data, torch.zeros(1, 1, 640)]
    )
    got = made.run(torch.zeros(1, 1, 640))
    assert float((got - math.log(1e-5)).abs().max()) < 0.01


def test_parts_of_a_spectrum_that_others_read_as_well() -> None:
    class Both(Spectrum):
        def forward(self, sound: Tensor) -> tuple[Tensor, Tensor]:
            both = F.conv1d(sound, self.bases, stride=HOP)
            re, im = both[:, :BINS], both[:, BINS:]
            size = torch.sqrt(re * re + im * im)
            return torch.log(size + 1e-4), torch.relu(re) * size

    net, data = Both("").eval(), _sounds(8, 0)
    made = tosaic.compile(net, (data[0],), target=WIDE, scheme="a16w8", calibration=data)
    for x in _sounds(4, 1):
        for got, real in zip(made.run(x), net(x), strict=True):
            noise = (got.double() - real.double()).square().sum()
            assert 10 * torch.log10(real.double().square().sum() / noise) > 40


def test_a_spectrum_that_a_layer_alone_reads_has_16_bits() -> None:
    """Nothing magnifies its small values: 32 bits would cost and show nothing."""

    class Front(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both, self.after = nn.Conv1d(1, 32, 64, 32), nn.Conv1d(16, 8, 3)

        def forward(self, x: Tensor) -> Tensor:
            re, im = self.both(x).chunk(2, 1)
            return self.after(torch.sqrt(re * re + im * im))

    torch.manual_seed(0)
    net, data = Front().eval(), [torch.randn(1, 1, 512) for _ in range(28)]
    made = tosaic.compile(net, (data[0],), target="TOSA-1.0+INT+int16", calibration=data[:24])
    (graph,) = made.partition.graphs
    assert sum(op.name == "CONV2D" for op in graph.walk()) == 2  # no weights of 16 bits
    real, got = (torch.cat([f(x).detach() for x in data[24:]]) for f in (net, made.run))
    assert 10 * torch.log10(real.square().sum() / (got - real).square().sum()) > 30


def test_two_inputs_leave_room_for_much_louder_ones() -> None:
    """Steps that the room costs show in a logarithm, and what saturates does more."""
    loud = torch.exp(0.8 * torch.randn(80, generator=torch.Generator().manual_seed(2)))
    sounds = [0.1 * by * x for by, x in zip(loud, _sounds(80, 0), strict=True)]
    net = Spectrum("log of a root").eval()
    made = tosaic.compile(
        net, (sounds[0],), target=WIDE, scheme="a16w8", calibration=sounds[:2]
    )  # fmt: skip
    assert _decibels(made, net, sounds[64:]) > 40
