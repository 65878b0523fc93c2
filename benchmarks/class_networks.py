"""Seeded networks of five classes that lose accuracy in integers, with inputs of their kind.

Weights are drawn, not trained; batch norms have the statistics of such inputs, and gains of
channels, loudness of sounds and contrast of pictures are lognormal, as trained networks and real
recordings have them. A network is judged by inputs of another seed than calibration has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Inputs = Callable[[int, int], Tensor]
RATE = 8000.0


@dataclass(frozen=True, slots=True)
class Case:
    """A network of a class, its inputs, and the columns of its last axis that are judged apart."""

    kind: str
    make: Callable[[], nn.Module]
    inputs: Inputs
    columns: tuple[int, ...] = ()


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sounds(count: int, seed: int, length: int = 2048, spread: float = 0.8) -> Tensor:
    """Voices: harmonics of a gliding pitch under a falling envelope, breath, and loudness."""
    g = _seeded(seed)
    time = torch.arange(length) / RATE
    made = []
    for _ in range(count):
        pitch = 90 + 200 * torch.rand((), generator=g)
        glide = 1 + 0.2 * torch.rand((), generator=g) * time
        phase = 2 * math.pi * pitch * torch.cumsum(glide, 0) / RATE
        tilt = 1 + torch.rand((), generator=g)
        voice = sum(torch.sin(k * phase + k) / k**tilt for k in range(1, 24))
        gate = torch.sigmoid(20 * torch.sin(2 * math.pi * (3 * time + torch.rand(1, generator=g))))
        breath = torch.randn(length, generator=g) * 0.003
        loud = 0.1 * torch.exp(spread * torch.randn((), generator=g))
        made.append(((voice * gate + breath) * loud)[None])
    return torch.stack(made)


def pictures(count: int, seed: int, side: int = 32, spread: float = 0.4) -> Tensor:
    """Smooth noise of three channels with a contrast and a brightness of its own."""
    g = _seeded(seed)
    coarse = torch.randn(count, 3, 8, 8, generator=g)
    fine = torch.randn(count, 3, side, side, generator=g) * 0.1
    contrast = torch.exp(spread * torch.randn(count, 1, 1, 1, generator=g))
    bright = 0.3 * torch.randn(count, 1, 1, 1, generator=g)
    made = F.interpolate(coarse, (side, side), mode="bilinear") + fine
    return made * contrast + bright


def sequences(count: int, seed: int, steps: int = 24, width: int = 32) -> Tensor:
    g = _seeded(seed)
    walk = torch.cumsum(torch.randn(count, steps, width, generator=g), 1) / 4
    loud = torch.exp(0.5 * torch.randn(count, 1, 1, generator=g))
    return (walk + torch.randn(count, steps, width, generator=g)) * loud


def _bases(points: int, bins: int, least: float = 0.0, octaves: float = 0.0) -> Tensor:
    """Windowed cosines and sines: equally far apart, or as many to each octave."""
    place = torch.arange(points) - points / 2
    steps = torch.arange(bins) / bins
    tones = least * 2 ** (octaves * steps) if octaves else least + (RATE / 2 - least) * steps
    angles = 2 * math.pi * tones[:, None] / RATE * place
    window = torch.hann_window(points, periodic=False)
    return torch.cat([angles.cos() * window, angles.sin() * window]) * (2 / points)


class Spectrum(nn.Module):
    """A spectrum by convolution, as exported front ends have it, and what is made of it."""

    def __init__(
        self, form: str, points: int = 256, hop: int = 128, bins: int = 64, octaves: float = 0.0
    ) -> None:
        super().__init__()
        self.form, self.hop, self.bins = form, hop, bins
        self.register_buffer(
            "bases", _bases(points, bins, 80.0 if octaves else 0.0, octaves)[:, None]
        )
        bank = F.relu(1 - (torch.arange(bins) - torch.linspace(2, bins - 3, 20)[:, None]).abs() / 3)
        self.register_buffer("bank", bank)
        self.after = nn.Conv1d(20 if form == "mel" else bins, 16, 3, padding=1)

    def forward(self, sound: Tensor) -> Tensor:
        both = F.conv1d(sound, self.bases, stride=self.hop)
        re, im = both[:, : self.bins], both[:, self.bins :]
        power = re * re + im * im
        if self.form == "log magnitude":
            return torch.log(torch.clamp(torch.sqrt(power), min=1e-5))
        if self.form == "log power":
            return 0.5 * torch.log(re.pow(2) + im.pow(2) + 1e-9)
        if self.form == "decibels":
            return 10 * torch.log10(torch.clamp(power, min=1e-10))
        if self.form == "mel":
            return self.after(torch.log(self.bank @ power + 1e-8) + 10)
        if self.form == "root":
            return power.pow(0.25)
        return self.after(torch.log2(torch.sqrt(power) + 1e-4) / 4 + 3)


class TwoSteps(nn.Module):
    """A Fourier transform in two steps of 16 points, as exporters write it: products by both
    parts of the turns between, moves before the root, a mel bank and a logarithm."""

    def __init__(self, side: int = 16, hop: int = 128) -> None:
        super().__init__()
        self.side, self.hop = side, hop
        place = torch.arange(side)
        around = 2 * math.pi * place[:, None] * place / side
        for name, values in (("steps", around), ("turns", around / side)):
            self.register_buffer(f"{name}_cos", values.cos())
            self.register_buffer(f"{name}_sin", -values.sin())
        self.register_buffer("window", torch.hann_window(side * side))
        bins = torch.arange(side * side // 2)
        bank = F.relu(1 - (bins - torch.linspace(2, len(bins) - 3, 20)[:, None]).abs() / 4)
        self.register_buffer("bank", bank.T / 32)

    def forward(self, sound: Tensor) -> Tensor:
        rows = sound[:, 0].unfold(1, self.side**2, self.hop) * self.window
        grid = rows.reshape(-1, self.side, self.side)
        real, imag = self.steps_cos @ grid, self.steps_sin @ grid
        turned = real * self.turns_cos - imag * self.turns_sin
        other = real * self.turns_sin + imag * self.turns_cos
        re = turned @ self.steps_cos - other @ self.steps_sin
        im = turned @ self.steps_sin + other @ self.steps_cos
        power = (re * re + im * im).permute(0, 2, 1).reshape(rows.shape[1], -1)
        size = torch.sqrt(power[:, : len(self.bank)].unsqueeze(0))
        return torch.log(size @ self.bank + 1e-4)


class Tiny(nn.Module):
    """A small convolutional classifier with the head that is asked for."""

    def __init__(self, head: str) -> None:
        super().__init__()
        self.head = head
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 48, 3, 2, 1), nn.BatchNorm2d(48), nn.ReLU(),
        )  # fmt: skip
        self.last = nn.Linear(48, 10)
        self.cell = nn.GRU(48 * 4, 24, batch_first=True)
        self.read = nn.Linear(24, 20)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        if self.head == "recogniser":
            rows, _ = self.cell(y.permute(0, 3, 1, 2).flatten(2))
            return self.read(rows) * 4
        flat = y.mean((2, 3))
        if self.head == "embedding":
            return self.last(F.normalize(flat, dim=1) * 10)
        if self.head == "sigmoid":
            return torch.sigmoid(self.last(flat) * 2)
        return self.last(flat) * 8


class Pitch(nn.Module):
    """Convolutions over a raw sound."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 24, 64, 8, 28), nn.ReLU(), nn.BatchNorm1d(24),
            nn.Conv1d(24, 32, 16, 4, 6), nn.ReLU(), nn.BatchNorm1d(32), nn.MaxPool1d(4),
            nn.Conv1d(32, 32, 8, 2, 3), nn.ReLU(), nn.BatchNorm1d(32),
        )  # fmt: skip
        self.last = nn.Linear(32 * 8, 36)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(x).flatten(1))


def _lognormal(count: int, spread: float, seed: int) -> Tensor:
    return torch.exp(spread * torch.randn(count, generator=_seeded(seed)))


class Affine(nn.Module):
    """One learned factor and one offset for a tensor, or one for each channel."""

    def __init__(self, channels: int, seed: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(_lognormal(channels, 1.2, seed).reshape(-1, 1, 1))
        self.offset = nn.Parameter(torch.randn(channels, 1, 1, generator=_seeded(seed + 1)) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x + self.offset


class Squeeze(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = (
            nn.Conv2d(channels, channels // 4, 1),
            nn.Conv2d(channels // 4, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * F.hardsigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))) * 3)


class Uneven(nn.Module):
    """Depthwise blocks between whose channels the ranges differ a hundredfold."""

    def __init__(self, act: Callable[[], nn.Module], squeeze: bool, affine: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 24, 3, 2, 1), nn.BatchNorm2d(24), act()]
        for index in range(3):
            layers += [nn.Conv2d(24, 24, 3, 1, 1, groups=24), nn.BatchNorm2d(24), act()]
            layers += [Affine(24, index)] if affine else []
            layers += [Squeeze(24)] if squeeze else []
            layers += [nn.Conv2d(24, 24, 1), nn.BatchNorm2d(24), act()]
        self.body, self.last = nn.Sequential(*layers), nn.Linear(24, 10)
        for index, norm in enumerate(m for m in self.modules() if isinstance(m, nn.BatchNorm2d)):
            norm.weight.data = _lognormal(24, 1.2, 40 + index)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(x).mean((2, 3)))


class Residual(nn.Module):
    """A transformer's blocks; few channels of the residual sum are far larger than all others."""

    def __init__(self, form: str, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.form, self.heads = form, heads
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "norm": nn.LayerNorm(width), "mix": nn.Linear(width, 3 * width),
                "out": nn.Linear(width, width), "second": nn.LayerNorm(width),
                "up": nn.Linear(width, 2 * width), "down": nn.Linear(2 * width, width),
            })
            for _ in range(2)
        )  # fmt: skip
        self.last = nn.Linear(width, 12)
        for block in self.blocks:
            block["down"].bias.data[3] = 60.0 if form == "outlier" else 2.0
            block["down"].weight.data[3] *= 20 if form == "outlier" else 1

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            q, k, v = block["mix"](block["norm"](x)).chunk(3, -1)
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
            scores = q @ k.transpose(2, 3) * 0.5
            if self.form == "soft cap":
                scores = 5 * torch.tanh(scores / 5)
            mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
            x = x + block["out"](mixed)
            x = x + block["down"](F.gelu(block["up"](block["second"](x))))
        made = self.last(x.mean(1))
        return 30 * torch.tanh(made / 30) if self.form == "soft cap" else made


class StateSpace(nn.Module):
    """A diagonal state-space model, step by step."""

    def __init__(self, width: int = 32, steps: int = 24) -> None:
        super().__init__()
        self.steps = steps
        self.enter, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        self.decay = nn.Parameter(torch.linspace(0.5, 0.995, width))
        self.last = nn.Linear(width, 12)

    def forward(self, x: Tensor) -> Tensor:
        given, gate = self.enter(x), F.silu(self.gate(x))
        state, made = torch.zeros_like(given[:, 0]), []
        for step in range(self.steps):
            state = self.decay * state + given[:, step]
            made.append(state * gate[:, step])
        return self.last(torch.stack(made, 1))


class Recurrent(nn.Module):
    def __init__(self, steps: int = 24) -> None:
        super().__init__()
        self.cell, self.last = nn.LSTM(32, 32, batch_first=True), nn.Linear(32, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.cell(x)[0])


class Detector(nn.Module):
    """Boxes in pixels and scores under one output, by several ways to decode."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.SiLU(),
            nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.SiLU(),
        )  # fmt: skip
        self.boxes, self.scores = nn.Conv2d(32, 4, 1), nn.Conv2d(32, 5, 1)
        grid = torch.stack(torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij"))
        self.register_buffer("grid", grid.flatten(1).T.flip(1) * 4 + 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        boxes = self.boxes(y).flatten(2).transpose(1, 2)
        scores = self.scores(y).flatten(2).transpose(1, 2)
        if self.form == "points":
            return torch.cat([boxes * 100, torch.sigmoid(scores)], 2)
        where, size = boxes[..., :2] * 4 + self.grid, boxes[..., 2:]
        if self.form == "exp":
            size = torch.exp(size.clamp(max=4)) * 8
        elif self.form == "distance":
            size = F.softplus(size) * 8
            where = where - size / 2
        else:
            size = (torch.sigmoid(size) * 2) ** 2 * 16
        return torch.cat([where, size, torch.sigmoid(scores)], 2)


CASES: dict[str, Case] = {
    "log_magnitude": Case("spectral", lambda: Spectrum("log magnitude"), sounds),
    "log_power": Case("spectral", lambda: Spectrum("log power", 512, 256, 96), sounds),
    "decibels": Case("spectral", lambda: Spectrum("decibels"), sounds),
    "mel": Case("spectral", lambda: Spectrum("mel"), sounds),
    "two_steps": Case("spectral", TwoSteps, sounds),
    "cqt": Case("spectral", lambda: Spectrum("cqt", 512, 128, 60, 5.0), sounds),
    "root": Case("spectral", lambda: Spectrum("root"), sounds),
    "classifier": Case("few", lambda: Tiny("plain"), pictures),
    "embedding": Case("few", lambda: Tiny("embedding"), pictures),
    "sigmoid": Case("few", lambda: Tiny("sigmoid"), pictures),
    "recogniser": Case("few", lambda: Tiny("recogniser"), pictures),
    "pitch": Case("few", Pitch, sounds),
    "hardswish_se": Case("channels", lambda: Uneven(nn.Hardswish, True, False), pictures),
    "silu_se": Case("channels", lambda: Uneven(nn.SiLU, True, False), pictures),
    "silu": Case("channels", lambda: Uneven(nn.SiLU, False, False), pictures),
    "relu": Case("channels", lambda: Uneven(nn.ReLU, False, False), pictures),
    "affine": Case("channels", lambda: Uneven(nn.Hardswish, False, True), pictures),
    "outlier": Case("residual", lambda: Residual("outlier"), sequences),
    "soft_cap": Case("residual", lambda: Residual("soft cap"), sequences),
    "state_space": Case("residual", StateSpace, sequences),
    "lstm": Case("residual", Recurrent, sequences),
    "points": Case("detector", lambda: Detector("points"), pictures, (4,)),
    "boxes_exp": Case("detector", lambda: Detector("exp"), pictures, (4,)),
    "boxes_sigmoid": Case("detector", lambda: Detector("sigmoid"), pictures, (4,)),
    "boxes_distance": Case("detector", lambda: Detector("distance"), pictures, (4,)),
}


def build(name: str) -> nn.Module:
    """A seeded network whose batch norms have statistics of its inputs."""
    torch.manual_seed(0)
    net = CASES[name].make().train()
    with torch.no_grad():
        for seed in range(900, 903):
            net(CASES[name].inputs(32, seed))
    return net.eval()
