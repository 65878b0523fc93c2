"""Small networks whose streams were once wrong: every one runs whole on every Ethos-U."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Forecast(nn.Module):
    """Reversible instance normalisation round a linear layer over time; spelled by subclasses."""

    def __init__(self, length: int = 32, horizon: int = 12, channels: int = 3) -> None:
        super().__init__()
        self.over_time = nn.Linear(length, horizon)
        self.scale = nn.Parameter(torch.linspace(0.7, 1.4, channels))
        self.shift = nn.Parameter(torch.linspace(-0.1, 0.2, channels))


class WithStd(Forecast):
    def forward(self, x: Tensor) -> Tensor:
        mean, sd = x.mean(1, keepdim=True), x.std(1, keepdim=True)
        y = self.over_time(((x - mean) / sd).transpose(1, 2))
        return (y * sd.transpose(1, 2) + mean.transpose(1, 2)).transpose(1, 2)


class WithVariance(Forecast):
    def forward(self, x: Tensor) -> Tensor:
        mean, var = x.mean(1, keepdim=True), x.var(1, keepdim=True, unbiased=False)
        y = self.over_time(((x - mean) * torch.rsqrt(var + 1e-5)).permute(0, 2, 1))
        return y.permute(0, 2, 1) * torch.sqrt(var + 1e-5) + mean


class WithViews(Forecast):
    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        mean, sd = x.mean(-1), torch.sqrt(x.var(-1, correction=0) + 1e-5)
        y = self.over_time((x - mean.view(1, 3, 1)) / sd.view(1, 3, 1))
        return (y * sd.unsqueeze(-1) + mean.unsqueeze(-1)).transpose(1, 2)


class WithMasks(Forecast):
    def forward(self, x: Tensor) -> Tensor:
        seen = (x > -3).float()
        count = seen.sum(1, keepdim=True).clamp(min=1.0)
        mean = (x * seen).sum(1, keepdim=True) / count
        sd = torch.sqrt((((x - mean) * seen) ** 2).sum(1, keepdim=True) / count + 1e-5)
        y = self.over_time((((x - mean) / sd) * seen).transpose(1, 2))
        return (y * sd.transpose(1, 2) + mean.transpose(1, 2)).transpose(1, 2)


class WithAffine(Forecast):
    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True).detach()
        sd = torch.sqrt(torch.var(x, dim=1, keepdim=True, unbiased=False) + 1e-5).detach()
        z = ((x - mean) / sd) * self.scale + self.shift
        y = self.over_time(z.transpose(1, 2)).transpose(1, 2)
        return (y - self.shift) / (self.scale + 1e-10) * sd + mean


class WithTheLast(Forecast):
    """The normalisation of NLinear: by the last value."""

    def forward(self, x: Tensor) -> Tensor:
        last, sd = x[:, -1:, :].detach(), x.std(1, keepdim=True) + 1e-5
        return self.over_time(((x - last) / sd).permute(0, 2, 1)).permute(0, 2, 1) * sd + last


class Decomposed(Forecast):
    """DLinear: a moving mean and the rest, each with a layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.trend = nn.Linear(32, 12)

    def forward(self, x: Tensor) -> Tensor:
        ends = torch.cat([x[:, :1].repeat(1, 2, 1), x, x[:, -1:].repeat(1, 2, 1)], 1)
        trend = nn.functional.avg_pool1d(ends.permute(0, 2, 1), 5, 1)
        rest = x.permute(0, 2, 1) - trend
        return (self.over_time(rest) + self.trend(trend)).permute(0, 2, 1)


class Mixer(Forecast):
    """TSMixer between the two halves of the normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.features = nn.Linear(32, 32), nn.Linear(3, 3)
        self.norm = nn.LayerNorm(3)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        sd = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        z = (x - mean) / sd
        z = z + torch.relu(self.time(self.norm(z).transpose(1, 2))).transpose(1, 2)
        z = z + torch.relu(self.features(z))
        return self.over_time(z.transpose(1, 2)).transpose(1, 2) * sd + mean


class Patches(Forecast):
    """PatchTST: patches of a normalised series as tokens of an attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(8, 16), nn.Linear(64, 12)
        self.attend = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        sd = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        tokens = self.embed(((x - mean) / sd).transpose(1, 2).reshape(3, 4, 8))
        tokens = tokens + self.attend(tokens, tokens, tokens, need_weights=False)[0]
        y = self.head(tokens.reshape(1, 3, 64))
        return y.transpose(1, 2) * sd + mean


class Selective(nn.Module):
    """A residual block with selective kernels: a softmax over branches weighs their channels."""

    def __init__(self, channels: int = 16, branches: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, 2, 1)
        self.paths = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, 1, 1 + n, 1 + n, groups=4, bias=False),
                nn.BatchNorm2d(channels), nn.ReLU(),
            )
            for n in range(branches)
        )  # fmt: skip
        self.squeeze, self.select = nn.Conv2d(channels, 8, 1), nn.Conv2d(8, channels * branches, 1)
        self.head = nn.Linear(channels, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        maps = torch.stack([path(x) for path in self.paths], dim=1)
        weights = maps.sum(1).mean((2, 3), keepdim=True)
        weights = self.select(torch.relu(self.squeeze(weights)))
        batch, channels = weights.shape[0], weights.shape[1]
        weights = weights.view(batch, len(self.paths), channels // len(self.paths), 1, 1)
        mixed = (maps * weights.softmax(1)).sum(1)
        return self.head((mixed + x).mean((2, 3)))


class Branches(nn.Module):
    """A block of MobileOne as it is trained: 3×3, 1×1 and identity, each normalised, summed."""

    def __init__(self, ins: int, outs: int, stride: int, groups: int = 1) -> None:
        super().__init__()
        self.same = nn.BatchNorm2d(ins) if ins == outs and stride == 1 else None
        self.large = nn.ModuleList(
            nn.Sequential(nn.Conv2d(ins, outs, 3, stride, 1, groups=groups, bias=False),
                          nn.BatchNorm2d(outs)) for _ in range(2)
        )  # fmt: skip
        self.small = nn.Sequential(
            nn.Conv2d(ins, outs, 1, stride, groups=groups, bias=False), nn.BatchNorm2d(outs)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.small(x)
        if self.same is not None:
            y = y + self.same(x)
        for branch in self.large:
            y = y + branch(x)
        return torch.relu(y)


class Segmenter(nn.Module):
    """A U-Net with such an encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Branches(3, 8, 2)
        self.down = nn.Sequential(Branches(8, 8, 1, 8), Branches(8, 16, 1), Branches(16, 16, 2, 16),
                                  Branches(16, 16, 1, 16))  # fmt: skip
        self.up, self.head = nn.Conv2d(24, 8, 3, padding=1), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        high = self.first(x)
        low = nn.functional.interpolate(self.down(high), scale_factor=2.0, mode="nearest")
        return self.head(torch.relu(self.up(torch.cat([low, high], 1))))


SPELLINGS = (WithStd, WithVariance, WithViews, WithMasks, WithAffine)
FORECASTERS = (WithTheLast, Decomposed, Mixer, Patches)
IMAGES = (Selective, Segmenter)


def example(kind: type[nn.Module]) -> Tensor:
    return torch.randn(1, 3, 24, 24) if kind in IMAGES else torch.randn(1, 32, 3) * 1.5 + 0.5


def network(kind: type[nn.Module]) -> nn.Module:
    """With normalisations that have seen something, as trained ones have."""
    torch.manual_seed(0)
    made = kind()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            size = module.num_features
            module.running_mean.copy_(torch.randn(size) * 0.2)
            module.running_var.copy_(torch.rand(size) + 0.3)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0.0, 0.2)
    return made.eval()
