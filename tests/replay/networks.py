"""Small seeded networks of what users' networks are made of, each block with drawn parameters.

Network ``seed`` has the block ``seed % len(blocks)`` between a stem and others that are drawn, so
that every block is in as many networks.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from replay.exact import Random, drawn, with_exact_weights

Block = Callable[["Maker", int], nn.Module]
ACTIVATIONS = (
    nn.ReLU,
    nn.ReLU6,
    nn.Hardswish,
    nn.SiLU,
    nn.GELU,
    nn.LeakyReLU,
    nn.PReLU,
    nn.Sigmoid,
)


class Maker:
    """Draws choices, by integers alone."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def pick(self, *choices):  # type: ignore[no-untyped-def]
        return choices[int(self.random.integers(len(choices)))]

    def act(self) -> nn.Module:
        return self.pick(*ACTIVATIONS)()


class Apply(nn.Module):
    """A function of a value, and of modules that it is given."""

    def __init__(self, function: Callable[..., Tensor], *modules: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(modules)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.parts)


def even(x: Tensor) -> Tensor:
    return x[..., : x.shape[-2] // 2 * 2, : x.shape[-1] // 2 * 2]


def crop(m: Maker, channels: int) -> nn.Module:
    top, left, step = m.pick(1, 2, 4), m.pick(0, 1, 3), m.pick(1, 1, 2)
    conv = nn.Conv2d(channels, m.pick(8, 16), 3, m.pick(1, 2), m.pick(0, 1, (0, 1)))
    return Apply(lambda x, conv: conv(x[:, :, top : -top + 1 or None : step, left:]), conv)


def pad(m: Maker, channels: int) -> nn.Module:
    sizes = tuple(m.pick(0, 1, 2, 3) for _ in range(4))
    mode, value = m.pick("constant", "constant", "reflect", "replicate"), m.pick(0.0, 0.5)
    conv = nn.Conv2d(channels, 16, m.pick(3, 5), m.pick(1, 2))
    more = {"value": value} if mode == "constant" else {}
    return Apply(lambda x, conv: conv(F.pad(x, sizes, mode, **more)), conv)


def pixel_shuffle(m: Maker, channels: int) -> nn.Module:
    factor = m.pick(2, 2, 4)
    if m.pick(0, 1):
        conv = nn.Conv2d(channels, m.pick(1, 3, 4) * factor**2, 3, padding=1)
        return nn.Sequential(conv, nn.PixelShuffle(factor))
    return nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(4 * channels, 16, m.pick(1, 3)))


def channel_shuffle(m: Maker, channels: int) -> nn.Module:
    groups = m.pick(2, 4)
    first, second = (nn.Conv2d(a, b, 1, groups=groups) for a, b in ((channels, 16), (16, 16)))
    return nn.Sequential(first, nn.ReLU(), nn.ChannelShuffle(groups), second)


def split_and_join(m: Maker, channels: int) -> nn.Module:
    at, swap = m.pick(1, channels // 2, channels - 1), m.pick(False, True)
    conv = nn.Conv2d(at, 8, 3, padding=1)

    def joined(x: Tensor, conv: nn.Module, act: nn.Module) -> Tensor:
        parts = [act(conv(x[:, :at])), x[:, at:]]
        return torch.cat(parts[::-1] if swap else parts, 1)

    return Apply(joined, conv, m.act())


def slices(m: Maker, channels: int) -> nn.Module:
    """The stem of YOLO: every other row and column as channels."""
    conv = nn.Conv2d(4 * channels, 16, m.pick(1, 3), padding=m.pick(0, 1))
    places = [(0, 0), (1, 0), (0, 1), (1, 1)]
    return Apply(lambda x, conv: conv(torch.cat([x[..., a::2, b::2] for a, b in places], 1)), conv)


def resize(m: Maker, channels: int) -> nn.Module:
    mode, scale = m.pick("nearest", "bilinear", "bilinear"), m.pick(2, 2, 3)
    more = {} if mode == "nearest" else {"align_corners": m.pick(False, True)}
    conv = nn.Conv2d(channels, 8, m.pick(1, 3))
    return Apply(
        lambda x, conv: conv(F.interpolate(x, scale_factor=scale, mode=mode, **more)), conv
    )


def grouped(m: Maker, channels: int) -> nn.Module:
    groups = m.pick(2, 4, channels)
    conv = nn.Conv2d(
        channels, channels * m.pick(1, 2), m.pick(3, 5), m.pick(1, 2), 1, groups=groups
    )
    return nn.Sequential(conv, m.act(), nn.Conv2d(conv.out_channels, 16, 1))


def dilated(m: Maker, channels: int) -> nn.Module:
    gap, bare = m.pick((2, True), (2, False), (3, False), (4, False))
    return nn.Sequential(nn.Conv2d(channels, 16, 3, 1, 0 if bare else gap, gap), m.act())


def transposed(m: Maker, channels: int) -> nn.Module:
    stride = m.pick(1, 2, 2, 3)
    size, inner = m.pick(2, 3, 4), m.pick(0, 1)
    return nn.ConvTranspose2d(
        channels, m.pick(4, 16), max(size, 2), stride, inner, groups=m.pick(1, 1, 2)
    )


def residual(m: Maker, channels: int) -> nn.Module:
    layers = nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), m.act(),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
    )  # fmt: skip
    return Apply(lambda x, layers, act: act(x + layers(x)), layers, m.act())


def bottleneck(m: Maker, channels: int) -> nn.Module:
    wide, kernel = channels * m.pick(2, 4), m.pick(3, 5)
    layers = nn.Sequential(
        nn.Conv2d(channels, wide, 1), m.act(),
        nn.Conv2d(wide, wide, kernel, 1, kernel // 2, groups=wide), m.act(),
        nn.Conv2d(wide, channels, 1),
    )  # fmt: skip
    return Apply(lambda x, layers: x + layers(x), layers)


def squeeze(m: Maker, channels: int) -> nn.Module:
    layers = nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 4, 1), nn.ReLU(), nn.Conv2d(4, channels, 1),
        m.pick(nn.Sigmoid, nn.Hardsigmoid)(),
    )  # fmt: skip
    return Apply(lambda x, layers: x * layers(x), layers)


def pools(m: Maker, channels: int) -> nn.Module:
    pool = m.pick(nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AvgPool2d(3, 1, 1))
    return nn.Sequential(m.act(), pool, nn.Conv2d(channels, 12, 1))


def image_norm(m: Maker, channels: int) -> nn.Module:
    norm = m.pick(nn.GroupNorm(m.pick(1, 2), channels), nn.InstanceNorm2d(channels, affine=True))
    return nn.Sequential(nn.Conv2d(channels, channels, 1), norm, m.act())


def two_paths(m: Maker, channels: int) -> nn.Module:
    """A path down and up again beside one that stays, as in a U-Net."""
    down, up = nn.Conv2d(channels, 16, 3, 2, 1), nn.ConvTranspose2d(16, 8, 2, 2)

    def joined(x: Tensor, down: nn.Module, up: nn.Module, last: nn.Module) -> Tensor:
        return last(torch.cat([x, up(torch.relu(down(x)))], 1))

    return Apply(joined, down, up, nn.Conv2d(channels + 8, 8, 1))


class Attention(nn.Module):
    """Self-attention in the ways that people write it."""

    def __init__(self, size: int, heads: int, way: int) -> None:
        super().__init__()
        self.heads, self.way, self.norm = heads, way, nn.LayerNorm(size)
        self.whole, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mixed = nn.MultiheadAttention(size, heads, batch_first=True) if way == 3 else None

    def forward(self, x: Tensor) -> Tensor:
        y, (batch, steps, size) = self.norm(x), x.shape
        if self.mixed is not None:
            return x + self.mixed(y, y, y, need_weights=False)[0]
        shape = batch, steps, self.heads, size // self.heads
        if self.way == 0:
            parts = self.whole(y).view(batch, steps, 3, *shape[2:]).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            parts = tuple(p.reshape(shape).transpose(1, 2) for p in self.whole(y).chunk(3, -1))
        query, key, value = parts
        if self.way == 2:
            scores = query @ key.transpose(-2, -1) / shape[-1] ** 0.5
            mixed = scores.softmax(-1) @ value
        else:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.way == 1)
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape))


class Recurrent(nn.Module):
    """A recurrent layer: all of its steps, or the last."""

    def __init__(self, kind: type[nn.RNNBase], size: int, last: bool, both: bool) -> None:
        super().__init__()
        self.layer = kind(size, 16 // (1 + both), batch_first=True, bidirectional=both)
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)[0]
        return y[:, -1:] if self.last else y


def attention(m: Maker, size: int) -> nn.Module:
    return Attention(size, m.pick(2, 4), m.pick(0, 1, 2, 3))


def recurrent(m: Maker, size: int) -> nn.Module:
    return Recurrent(
        m.pick(nn.LSTM, nn.GRU, nn.RNN), size, m.pick(False, True), m.pick(False, True)
    )


def feed_forward(m: Maker, size: int) -> nn.Module:
    norm = m.pick(nn.LayerNorm, nn.RMSNorm)(size)
    layers = nn.Sequential(norm, nn.Linear(size, 2 * size), m.act(), nn.Linear(2 * size, size))
    return Apply(lambda x, layers: x + layers(x), layers)


def gated(m: Maker, size: int) -> nn.Module:
    return nn.Sequential(nn.Linear(size, 2 * size), nn.GLU(-1), nn.LayerNorm(size))


def in_time(m: Maker, size: int) -> nn.Module:
    """A causal convolution with gaps between its taps."""
    gap = m.pick(1, 2, 4)
    conv = nn.Conv1d(size, 16, 3, m.pick(1, 1, 2), dilation=gap, groups=m.pick(1, 1, 8))
    return Apply(lambda x, conv: conv(F.pad(x.transpose(1, 2), (2 * gap, 0))).transpose(1, 2), conv)


def reduced(m: Maker, size: int) -> nn.Module:
    """Statistics over the steps, and the values normalised by them."""

    def joined(x: Tensor) -> Tensor:
        mean, sd = x.mean(1, keepdim=True), (x.var(1, keepdim=True, unbiased=False) + 1e-3).sqrt()
        return torch.cat([(x - mean) / sd, x.amax(1, keepdim=True)], 1)

    return Apply(joined)


IMAGES: tuple[Block, ...] = (
    crop, pad, pixel_shuffle, channel_shuffle, split_and_join, slices, resize, grouped, dilated,
    transposed, residual, bottleneck, squeeze, pools, image_norm, two_paths,
)  # fmt: skip
SEQUENCES: tuple[Block, ...] = (attention, recurrent, feed_forward, gated, in_time, reduced)
HALVING = (pixel_shuffle, slices, two_paths)
_ALL = (*IMAGES, *SEQUENCES)


def network(seed: int) -> tuple[str, nn.Module, tuple[Tensor, ...]]:
    """A network, the name of its main block, and an example input."""
    random = np.random.default_rng(seed)
    m, block = Maker(random), _ALL[seed % len(_ALL)]
    is_image = block in IMAGES
    if is_image:
        rows, columns = m.pick(16, 20, 24, 32), m.pick(16, 18, 24, 32)
        x = drawn(random, (1, m.pick(1, 3, 3, 4), rows, columns))
        stem: nn.Module = nn.Conv2d(x.shape[1], 8, m.pick(1, 3, 5), m.pick(1, 2), 1)
        if block in (crop, pad, slices) and m.pick(0, 1):
            stem = block(m, x.shape[1])
    else:
        x = drawn(random, (1, m.pick(6, 8, 12), m.pick(8, 16, 24)))
        stem = nn.Linear(x.shape[2], 16)
    layers, size = [stem], x
    kinds = IMAGES if is_image else SEQUENCES
    blocks = [block, *(m.pick(*kinds) for _ in range(m.pick(0, 1, 1, 2)))]
    for make in blocks:
        with torch.no_grad():
            shape = nn.Sequential(*layers).eval()(size).shape
        channels = shape[1] if is_image else shape[2]
        if (is_image and (min(shape[2:]) < 6 or channels % 4)) or (not is_image and shape[1] < 4):
            break
        if make in HALVING and any(n % 2 for n in shape[2:]):
            layers.append(Apply(even))
        layers.append(make(m, channels))
        if m.pick(0, 1):
            layers.append(m.act())
    return block.__name__, with_exact_weights(nn.Sequential(*layers), seed), (x,)
