"""Classifiers of pictures: branches, attention over channels, shuffles, mixers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def conv_bn(cin: int, cout: int, k: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(cin, cout, k, stride, k // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(cout))


class Head(nn.Module):
    """Global average pooling and a linear layer."""

    def __init__(self, cin: int, classes: int = 10) -> None:
        super().__init__()
        self.fc = nn.Linear(cin, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.mean((2, 3)))


class MobileOneBlock(nn.Module):
    """As it trains: several depthwise branches, a 1x1 branch and a batch norm, summed."""

    def __init__(self, cin: int, cout: int, stride: int = 1) -> None:
        super().__init__()
        self.deep = nn.ModuleList(conv_bn(cin, cin, 3, stride, cin) for _ in range(3))
        self.scale = conv_bn(cin, cin, 1, stride, cin)
        self.skip = nn.BatchNorm2d(cin) if stride == 1 else None
        self.point = nn.ModuleList(conv_bn(cin, cout) for _ in range(2))
        self.skip2 = nn.BatchNorm2d(cout) if cin == cout else None

    def forward(self, x: Tensor) -> Tensor:
        y = sum((b(x) for b in self.deep), self.scale(x))
        if self.skip is not None:
            y = y + self.skip(x)
        x = F.relu(y)
        y = self.point[0](x) + self.point[1](x)
        if self.skip2 is not None:
            y = y + self.skip2(x)
        return F.relu(y)


def mobile_one() -> nn.Module:
    return nn.Sequential(
        conv_bn(3, 16, 3, 2), nn.ReLU(), MobileOneBlock(16, 16), MobileOneBlock(16, 24, 2),
        MobileOneBlock(24, 24), Head(24),
    )  # fmt: skip


class RepVggBlock(nn.Module):
    """Three branches as in training."""

    def __init__(self, cin: int, cout: int, stride: int, groups: int = 1) -> None:
        super().__init__()
        self.wide = conv_bn(cin, cout, 3, stride, groups)
        self.narrow = conv_bn(cin, cout, 1, stride, groups)
        self.identity = nn.BatchNorm2d(cin) if cin == cout and stride == 1 else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.wide(x) + self.narrow(x)
        return F.relu(y if self.identity is None else y + self.identity(x))


def rep_vgg() -> nn.Module:
    return nn.Sequential(
        RepVggBlock(3, 16, 2), RepVggBlock(16, 16, 1, 2), RepVggBlock(16, 32, 2),
        RepVggBlock(32, 32, 1, 4), Head(32),
    )  # fmt: skip


class SelectiveKernel(nn.Module):
    """A soft choice between kernels, by a softmax over the branches."""

    def __init__(self, width: int, groups: int = 4) -> None:
        super().__init__()
        self.one = nn.Sequential(conv_bn(width, width, 3, 1, groups), nn.ReLU())
        self.two = nn.Sequential(
            nn.Conv2d(width, width, 3, 1, 2, dilation=2, groups=groups, bias=False),
            nn.BatchNorm2d(width), nn.ReLU(),
        )  # fmt: skip
        self.squeeze = nn.Sequential(conv_bn(width, 8), nn.ReLU())
        self.choose = nn.Conv2d(8, 2 * width, 1)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.stack([self.one(x), self.two(x)], 1)
        pooled = both.sum(1).mean((2, 3), keepdim=True)
        weights = self.choose(self.squeeze(pooled))
        weights = weights.view(x.shape[0], 2, x.shape[1], 1, 1).softmax(1)
        return (both * weights).sum(1)


class SKNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 16, 3, 2), nn.ReLU())
        self.blocks = nn.ModuleList(SelectiveKernel(16) for _ in range(2))
        self.head = Head(16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = F.relu(x + block(x))
        return self.head(x)


class Ghost(nn.Module):
    """Half of the channels from cheap depthwise operations on the other half."""

    def __init__(self, cin: int, cout: int, relu: bool = True) -> None:
        super().__init__()
        self.cout, half, self.relu = cout, -(-cout // 2), relu
        self.first = conv_bn(cin, half)
        self.cheap = conv_bn(half, half, 3, 1, half)

    def forward(self, x: Tensor) -> Tensor:
        one = self.first(x)
        one = F.relu(one) if self.relu else one
        two = self.cheap(one)
        two = F.relu(two) if self.relu else two
        return torch.cat([one, two], 1)[:, : self.cout]


class GhostNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 12, 3, 2), nn.Hardswish())
        self.up, self.down = Ghost(12, 29), Ghost(29, 12, False)
        self.reduce, self.expand = nn.Conv2d(29, 8, 1), nn.Conv2d(8, 29, 1)
        self.head = Head(12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.up(x)
        gate = F.hardsigmoid(self.expand(F.relu(self.reduce(F.adaptive_avg_pool2d(y, 1)))))
        return self.head(x + self.down(y * gate))


class Shuffle(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.branch = nn.Sequential(
            conv_bn(half, half), nn.ReLU(), conv_bn(half, half, 3, 1, half),
            conv_bn(half, half), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        one, two = x.chunk(2, 1)
        x = torch.cat([one, self.branch(two)], 1)
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shuffle_net() -> nn.Module:
    return nn.Sequential(
        conv_bn(3, 20, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        Shuffle(20), Shuffle(20), Shuffle(20), Head(20),
    )  # fmt: skip


class MBConv(nn.Module):
    def __init__(self, cin: int, cout: int, k: int, stride: int) -> None:
        super().__init__()
        wide = cin * 4
        self.expand = nn.Sequential(conv_bn(cin, wide), nn.SiLU())
        self.deep = nn.Sequential(conv_bn(wide, wide, k, stride, wide), nn.SiLU())
        self.se = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(wide, 4, 1),
            nn.SiLU(),
            nn.Conv2d(4, wide, 1),
            nn.Sigmoid(),
        )
        self.project = conv_bn(wide, cout)
        self.skips = cin == cout and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        y = self.deep(self.expand(x))
        y = self.project(y * self.se(y))
        return x + y if self.skips else y


def efficient_net() -> nn.Module:
    return nn.Sequential(
        conv_bn(3, 8, 3, 2),
        nn.SiLU(),
        MBConv(8, 12, 3, 2),
        MBConv(12, 12, 5, 1),
        MBConv(12, 16, 5, 2),
        Head(16),
    )


class ChannelNorm(nn.Module):
    """Layer norm over the channels of a map, written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        var = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(var + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class ConvNeXt(nn.Module):
    """V2: depthwise 7x7, layer norm, GELU, global response normalisation."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.norm0 = ChannelNorm(width)
        self.deep = nn.Conv2d(width, width, 7, 1, 3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.rand(4 * width))
        self.beta = nn.Parameter(torch.rand(4 * width))
        self.head = Head(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm0(self.stem(x))
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        y = F.gelu(self.up(y))
        g = torch.norm(y, p=2, dim=(1, 2), keepdim=True)
        n = g / (g.mean(-1, keepdim=True) + 1e-6)
        y = self.gamma * (y * n) + self.beta + y
        return self.head(x + self.down(y).permute(0, 3, 1, 2))


class MixerBlock(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(tokens, 24), nn.GELU(), nn.Linear(24, tokens))
        self.along = nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Linear(48, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.one(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.two(x))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 24, 8, 8)
        self.blocks = nn.Sequential(MixerBlock(16, 24), MixerBlock(16, 24))
        self.norm, self.fc = nn.LayerNorm(24), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        return self.fc(self.norm(self.blocks(x)).mean(1))


class SplitAttention(nn.Module):
    """ResNeSt: radix softmax over splits of grouped convolutions."""

    def __init__(self, width: int = 16, radix: int = 2, cardinality: int = 2) -> None:
        super().__init__()
        self.radix, self.cardinality = radix, cardinality
        self.stem = conv_bn(3, width, 3, 2)
        self.conv = conv_bn(width, width * radix, 3, 1, cardinality * radix)
        self.fc1 = nn.Conv2d(width, 8, 1, groups=cardinality)
        self.bn = nn.BatchNorm2d(8)
        self.fc2 = nn.Conv2d(8, width * radix, 1, groups=cardinality)
        self.head = Head(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv(F.relu(self.stem(x))))
        b, c = y.shape[:2]
        parts = torch.split(y, c // self.radix, 1)
        gap = F.adaptive_avg_pool2d(parts[0] + parts[1], 1)
        a = self.fc2(F.relu(self.bn(self.fc1(gap))))
        a = (
            a.view(b, self.cardinality, self.radix, -1)
            .transpose(1, 2)
            .softmax(1)
            .reshape(b, -1, 1, 1)
        )
        one, two = torch.split(a, c // self.radix, 1)
        return self.head(parts[0] * one + parts[1] * two)


class CoordinateAttention(nn.Module):
    """Pools along each axis, joined, gated apart; and CBAM's spatial gate."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = conv_bn(3, width, 3, 2)
        self.squeeze = conv_bn(width, 8)
        self.rows, self.columns = nn.Conv2d(8, width, 1), nn.Conv2d(8, width, 1)
        self.spatial = nn.Conv2d(2, 1, 7, padding=3)
        self.head = Head(width)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.stem(x))
        h, w = x.shape[2:]
        rows = F.adaptive_avg_pool2d(x, (h, 1))
        columns = F.adaptive_avg_pool2d(x, (1, w)).permute(0, 1, 3, 2)
        y = F.hardswish(self.squeeze(torch.cat([rows, columns], 2)))
        rows, columns = torch.split(y, [h, w], 2)
        x = x * self.rows(rows).sigmoid() * self.columns(columns.permute(0, 1, 3, 2)).sigmoid()
        pooled = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
        return self.head(x * torch.sigmoid(self.spatial(pooled)))


class Res2Net(nn.Module):
    """Hierarchical residual connections within a block; blur pooling behind."""

    def __init__(self, width: int = 24, scale: int = 4) -> None:
        super().__init__()
        part = width // scale
        self.stem = conv_bn(3, width, 3, 2)
        self.parts = nn.ModuleList(conv_bn(part, part, 3) for _ in range(scale - 1))
        kernel = torch.tensor([1.0, 2.0, 1.0])
        self.register_buffer("blur", (kernel[:, None] * kernel / 16).expand(width, 1, 3, 3).clone())
        self.head = Head(width)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        pieces = list(torch.chunk(x, len(self.parts) + 1, 1))
        done = [pieces[0]]
        for piece, layer in zip(pieces[1:], self.parts):
            done.append(F.relu(layer(piece + done[-1] if len(done) > 1 else piece)))
        y = x + torch.cat(done, 1)
        y = F.conv2d(F.pad(y, (1, 1, 1, 1), mode="reflect"), self.blur, stride=2, groups=y.shape[1])
        return self.head(y)


class EfficientChannelAttention(nn.Module):
    """A 1-D convolution over the pooled channels; dynamic ReLU by computed slopes."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = conv_bn(3, width, 3, 2)
        self.across = nn.Conv1d(1, 1, 3, padding=1, bias=False)
        self.slopes = nn.Linear(width, 4 * width)
        self.head = Head(width)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu6(self.stem(x))
        pooled = F.adaptive_avg_pool2d(x, 1).squeeze(-1).transpose(-1, -2)
        x = x * self.across(pooled).transpose(-1, -2).unsqueeze(-1).sigmoid()
        theta = 2 * torch.sigmoid(self.slopes(x.mean((2, 3)))) - 1
        a, b = theta.view(x.shape[0], x.shape[1], 2, 2).unbind(3)
        y = x.unsqueeze(-1) * (a + torch.tensor([1.0, 0.0]))[:, :, None, None] + b[:, :, None, None]
        return self.head(y.amax(-1))


PICTURE = (1, 3, 32, 32)
CASES = {
    "MobileOne": (mobile_one, (PICTURE,)), "RepVGG": (rep_vgg, (PICTURE,)),
    "SKNet": (SKNet, (PICTURE,)), "GhostNet": (GhostNet, (PICTURE,)),
    "ShuffleNet V2": (shuffle_net, (PICTURE,)), "EfficientNet": (efficient_net, (PICTURE,)),
    "ConvNeXt V2": (ConvNeXt, (PICTURE,)), "MLP-Mixer": (Mixer, (PICTURE,)),
    "ResNeSt": (SplitAttention, (PICTURE,)),
    "coordinate attention": (CoordinateAttention, (PICTURE,)), "Res2Net": (Res2Net, (PICTURE,)),
    "ECA and dynamic ReLU": (EfficientChannelAttention, (PICTURE,)),
}  # fmt: skip
