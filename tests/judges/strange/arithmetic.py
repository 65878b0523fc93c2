"""Arithmetic that is not convolutions: spectra, reshapes by name, sorts, odd ranks and types."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Of(nn.Module):
    """A function, and layers that it is given."""

    def __init__(self, function, *layers: nn.Module) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, *inputs):
        return self.function(*self.layers, *inputs)


def stft(x):
    spectrum = torch.stft(x, 32, 16, window=torch.hann_window(32), return_complex=True)
    return (spectrum.abs() + 1e-3).log()


def filtered(x):
    """A low-pass in the frequency domain and back."""
    spectrum = torch.fft.rfft(x)
    gain = torch.linspace(1, 0, spectrum.shape[-1])
    return torch.fft.irfft(spectrum * gain, n=x.shape[-1])


def rotary(x):
    """Rotary positions by complex products, as LLaMA's reference has them."""
    angles = torch.outer(torch.arange(4.0), 1 / 10 ** (torch.arange(3) / 3))
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.reshape(1, 4, 3, 2))
    return torch.view_as_real(pairs * turns).flatten(2)


def patches(layer, x):
    """b c (h p) (w q) -> b (h w) (c p q), as einops writes it."""
    b, c, h, w = x.shape
    x = x.reshape(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 1, 3, 5)
    return layer(x.reshape(b, -1, c * 16))


def unfolded(x):
    return F.fold(F.unfold(x, 3, padding=1) * 0.5, (8, 8), 3, padding=1)


def shuffled(x):
    return F.pixel_unshuffle(F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2), 2).roll((1, 2), (2, 3))


def grouped_query(q, k, v):
    return F.scaled_dot_product_attention(
        q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), is_causal=True
    )


def alibi(x):
    places = torch.arange(6)
    bias = -(places[None] - places[:, None]).abs() * 0.25
    return (x @ x.transpose(-1, -2) / math.sqrt(8) + bias).softmax(-1) @ x


def linear_attention(x):
    q, k = F.elu(x) + 1, F.elu(x * 0.5) + 1
    return torch.einsum("bnd,bde->bne", q, torch.einsum("bnd,bne->bde", k, x)) / (
        torch.einsum("bnd,bd->bn", q, k.sum(1))[..., None] + 1e-4
    )


def selective_scan(x):
    """A recurrence written as a loop."""
    state, out = torch.zeros(1, 4), []
    for step in range(x.shape[1]):
        state = state * torch.sigmoid(x[:, step]) + x[:, step]
        out.append(state)
    return torch.stack(out, 1)


def quantile_like(x):
    ordered = x.sort(-1).values
    return ordered[..., 2] * 0.3 + ordered[..., 3] * 0.7, x.median(-1).values, x.kthvalue(2).values


def soft_argmax(x):
    heat = x.flatten(2).softmax(-1).view_as(x)
    rows = torch.linspace(-1, 1, 8)
    return torch.stack([(heat.sum(2) * rows).sum(-1), (heat.sum(3) * rows).sum(-1)], -1)


def sampled(x, flow):
    grid = F.affine_grid(torch.tensor([[[1.0, 0, 0.1], [0, 1.0, -0.1]]]), (1, 3, 8, 8), False)
    return F.grid_sample(x, grid + flow * 0.05, align_corners=False)


def fourier_features(x):
    waves = x[..., None] * (2.0 ** torch.arange(4)) * math.pi
    return torch.cat([waves.sin(), waves.cos()], -1).flatten(1)


def mixture(router, first, second, x):
    """Two experts and a router that picks one."""
    gates = router(x).softmax(-1)
    best = gates.argmax(-1, keepdim=True)
    kept = torch.zeros_like(gates).scatter(1, best, gates.gather(1, best))
    return kept[:, :1] * first(x) + kept[:, 1:] * second(x)


def vector_quantized(book, x):
    far = torch.cdist(x, book.weight)
    return book(far.argmin(-1))


def counts(tokens):
    return F.one_hot(tokens, 10).sum(1).float() / tokens.shape[1], tokens.float().mean(1)


def bits(x):
    level = (x.clamp(0, 1) * 255).to(torch.uint8)
    return ((level >> 4) & 3).float() + (level % 7).float()


def halves(layer, x):
    return layer(x.half().float()).double().sum(-1).float()


def zero_sized(x):
    return torch.cat([x[:, :0], x.relu(), x[:, 6:]], 1)


def five_axes(x):
    return x.mean((1, 3)).transpose(-1, -2).softmax(-1)


def scalars(x, number):
    return x * number + 3 // 2 - math.pi, number * 2


def logsumexp_pool(layer, x):
    return torch.logsumexp(layer(x).flatten(2) * 4, -1) / 4


def dynamic_weights(hyper, x, style):
    kernel = hyper(style).view(4, 3, 3, 3)
    return F.conv2d(x, kernel, padding=1)


def mel(x):
    power = torch.stft(x, 64, 32, window=torch.ones(64), return_complex=True).abs().square()
    bank = (1 - (torch.arange(33) / 3 - torch.arange(12)[:, None]).abs()).clamp(min=0)
    decibels = 10 * torch.log10(torch.clamp(bank @ power, min=1e-5))
    return decibels - decibels.amax((1, 2), keepdim=True)


def cumulated(x):
    return x.cumsum(-1) / torch.arange(1, 7), x.cumprod(-1), x.cummax(-1).values


def glu(layer, x):
    return F.glu(layer(x), -1), F.softplus(x), F.mish(x), F.hardtanh(x, -0.5, 0.5)


def distances(x, y):
    return F.cosine_similarity(x, y, -1), F.pairwise_distance(x, y), torch.dist(x, y)


def interpolated(x):
    up = F.interpolate(x, scale_factor=1.5, mode="bilinear", antialias=False)
    return F.interpolate(up, (5, 7), mode="bicubic"), F.adaptive_avg_pool2d(up, (3, 5))


def noisy(x):
    return x + torch.randn(x.shape, generator=torch.Generator().manual_seed(0)) * 0.1


def r(*shape: int) -> Tensor:
    return torch.randn(*shape)


CASES = {
    "spectrum: stft, magnitude, log": (lambda: Of(stft), lambda: (r(1, 128),)),
    "spectrum: filter and back": (lambda: Of(filtered), lambda: (r(1, 32),)),
    "spectrum: rotary positions": (lambda: Of(rotary), lambda: (r(1, 4, 6),)),
    "spectrum: mel in decibels": (lambda: Of(mel), lambda: (r(1, 256),)),
    "patches as einops": (lambda: Of(patches, nn.Linear(48, 8)), lambda: (r(1, 3, 8, 8),)),
    "unfold and fold": (lambda: Of(unfolded), lambda: (r(1, 3, 8, 8),)),
    "shuffle and roll": (lambda: Of(shuffled), lambda: (r(1, 4, 4, 4),)),
    "grouped queries": (
        lambda: Of(grouped_query), lambda: (r(1, 4, 5, 8), r(1, 2, 5, 8), r(1, 2, 5, 8))),
    "attention with distances": (lambda: Of(alibi), lambda: (r(1, 6, 8),)),
    "linear attention by einsum": (lambda: Of(linear_attention), lambda: (r(1, 5, 4),)),
    "selective scan": (lambda: Of(selective_scan), lambda: (r(1, 5, 4),)),
    "sort, median, kthvalue": (lambda: Of(quantile_like), lambda: (r(3, 7),)),
    "soft argmax": (lambda: Of(soft_argmax), lambda: (r(1, 2, 8, 8),)),
    "grid sample with a flow": (lambda: Of(sampled), lambda: (r(1, 3, 8, 8), r(1, 8, 8, 2))),
    "Fourier features": (lambda: Of(fourier_features), lambda: (torch.rand(2, 3),)),
    "mixture of experts": (
        lambda: Of(mixture, nn.Linear(6, 2), nn.Linear(6, 4), nn.Linear(6, 4)), lambda: (r(3, 6),)),
    "vector quantization": (
        lambda: Of(vector_quantized, nn.Embedding(8, 4)), lambda: (r(1, 5, 4),)),
    "one-hot counts": (lambda: Of(counts), lambda: (torch.randint(0, 10, (2, 6)),)),
    "bits of bytes": (lambda: Of(bits), lambda: (torch.rand(2, 6),)),
    "half, float and double": (lambda: Of(halves, nn.Linear(6, 4)), lambda: (r(2, 6),)),
    "nothing in a CONCAT": (lambda: Of(zero_sized), lambda: (r(2, 6),)),
    "five axes": (lambda: Of(five_axes), lambda: (r(2, 3, 4, 2, 5),)),
    "a number as an input": (lambda: Of(scalars), lambda: (r(2, 3), torch.tensor(1.5))),
    "logsumexp": (
        lambda: Of(logsumexp_pool, nn.Conv2d(3, 4, 3)), lambda: (r(1, 3, 8, 8),)),
    "weights from a network": (
        lambda: Of(dynamic_weights, nn.Linear(5, 108)), lambda: (r(1, 3, 8, 8), r(1, 5))),
    "running sums, products, maxima": (lambda: Of(cumulated), lambda: (r(2, 6),)),
    "gates and soft steps": (lambda: Of(glu, nn.Linear(6, 8)), lambda: (r(2, 6),)),
    "random numbers from a generator": (lambda: Of(noisy), lambda: (r(2, 6),)),
    "distances": (lambda: Of(distances), lambda: (r(3, 6), r(3, 6))),
    "resized twice": (lambda: Of(interpolated), lambda: (r(1, 2, 6, 6),)),
}  # fmt: skip
