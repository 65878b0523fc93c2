"""Networks that make pictures and sounds, and functions learnt as networks."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class VqVae(nn.Module):
    """An encoder, the nearest of a table of codes, a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.mid = nn.Conv2d(3, 8, 4, 2, 1), nn.Conv2d(8, 6, 3, padding=1)
        self.codes = nn.Parameter(torch.randn(16, 6))
        self.leave = nn.ConvTranspose2d(6, 3, 4, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.mid(F.elu(self.enter(x))).permute(0, 2, 3, 1)
        flat = z.reshape(-1, 6)
        far = flat.square().sum(1, keepdim=True) - 2 * flat @ self.codes.t()
        which = (far + self.codes.square().sum(1)).argmin(1)
        quantized = F.embedding(which, self.codes).view_as(z)
        return self.leave(quantized.permute(0, 3, 1, 2)).tanh(), which


class Denoiser(nn.Module):
    """A diffusion step: group norms, a time embedding that shifts and scales, attention."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 2 * width))
        self.enter, self.leave = (
            nn.Conv2d(3, width, 3, padding=1),
            nn.Conv2d(width, 3, 3, padding=1),
        )
        self.norm, self.norm2 = nn.GroupNorm(4, width), nn.GroupNorm(4, width)
        self.conv, self.qkv = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, 3 * width, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        rates = torch.exp(-math.log(1e3) * torch.arange(8) / 8)
        angles = t[:, None] * rates
        scale, shift = self.time(torch.cat([angles.sin(), angles.cos()], -1)).chunk(2, -1)
        y = self.enter(x)
        y = F.silu(self.norm(y) * (1 + scale[..., None, None]) + shift[..., None, None])
        y = self.conv(y)
        q, k, v = self.qkv(self.norm2(y)).flatten(2).chunk(3, 1)
        y = y + F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        ).transpose(1, 2).view_as(y)
        return x - self.leave(F.silu(y))


class StyleBlock(nn.Module):
    """StyleGAN2: weights of a layer scaled by a style and normalized, noise, leaky steps."""

    def __init__(self) -> None:
        super().__init__()
        self.style = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 6))
        self.weight = nn.Parameter(torch.randn(8, 6, 3, 3) / 7)
        self.start = nn.Parameter(torch.randn(1, 6, 4, 4))
        self.noise, self.rgb = nn.Parameter(torch.randn(1, 1, 8, 8)), nn.Conv2d(8, 3, 1)

    def forward(self, z: Tensor) -> Tensor:
        z = z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-6)
        weight = self.weight * (1 + self.style(z).view(1, 6, 1, 1))
        weight = weight * torch.rsqrt(weight.square().sum((1, 2, 3), keepdim=True) + 1e-6)
        y = F.conv2d(F.interpolate(self.start, scale_factor=2, mode="bilinear"), weight, padding=1)
        return torch.tanh(self.rgb(F.leaky_relu(y + 0.1 * self.noise, 0.2) * math.sqrt(2)))


class HifiGan(nn.Module):
    """A vocoder: transposed convolutions and the mean of dilated residual stacks."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv1d(10, 16, 7, padding=3)
        self.up = nn.ConvTranspose1d(16, 8, 8, 4, 2)
        self.stacks = nn.ModuleList(
            nn.Conv1d(8, 8, k, padding=k // 2 * d, dilation=d) for k in (3, 5) for d in (1, 3)
        )
        self.leave = nn.Conv1d(8, 1, 7, padding=3)

    def forward(self, mel: Tensor) -> Tensor:
        x = self.up(F.leaky_relu(self.enter(mel), 0.1))
        parts = [x + conv(F.leaky_relu(x, 0.1)) for conv in self.stacks]
        return torch.tanh(self.leave(F.leaky_relu(torch.stack(parts).mean(0))))


class Demucs(nn.Module):
    """Sources of a mixture: gated convolutions down, an LSTM, transposed ones up."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.gate = nn.Conv1d(2, 8, 8, 4, 2), nn.Conv1d(8, 16, 1)
        self.lstm, self.mix = nn.LSTM(8, 4, bidirectional=True), nn.Conv1d(8, 16, 3, padding=1)
        self.up = nn.ConvTranspose1d(8, 4, 8, 4, 2)

    def forward(self, x: Tensor) -> Tensor:
        level = x.mean(1, keepdim=True).std(-1, keepdim=True) + 1e-3
        skip = F.glu(self.gate(torch.relu(self.down(x / level))), 1)
        y = self.lstm(skip.permute(2, 0, 1))[0].permute(1, 2, 0)
        y = F.glu(self.mix(y + skip), 1)
        return self.up(y).view(1, 2, 2, -1) * level[:, None]


class PixelCnn(nn.Module):
    """Masked convolutions with gates, and the logits of each value."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.next = nn.Conv2d(1, 16, 5, padding=2), nn.Conv2d(8, 16, 3, padding=1)
        self.head = nn.Conv2d(8, 4, 1)
        for layer, own in ((self.conv, 0), (self.next, 1)):
            k = layer.kernel_size[0]
            mask = torch.ones(k, k)
            mask[k // 2, k // 2 + own :] = 0
            mask[k // 2 + 1 :] = 0
            layer.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        for layer, pad in ((self.conv, 2), (self.next, 1)):
            a, b = F.conv2d(x, layer.weight * layer.mask, layer.bias, padding=pad).chunk(2, 1)
            x = a.tanh() * b.sigmoid()
        return self.head(x).permute(0, 2, 3, 1).log_softmax(-1)


class Siren(nn.Module):
    """A function of places: sines of layers, behind features of many frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bands", 2.0 ** torch.arange(4) * math.pi)
        self.layers = nn.ModuleList((nn.Linear(18, 24), nn.Linear(24, 24), nn.Linear(24, 4)))

    def forward(self, x: Tensor) -> Tensor:
        angles = (x[..., None] * self.bands).flatten(-2)
        y = torch.cat([x, angles.sin(), angles[..., :4].cos()], -1)
        y = F.pad(y, (0, 18 - y.shape[-1]))
        for layer in self.layers[:-1]:
            y = torch.sin(3 * layer(y))
        colour, density = self.layers[-1](y).split((3, 1), -1)
        alpha = 1 - torch.exp(-F.softplus(density))
        through = torch.cumprod(torch.cat([torch.ones_like(alpha[:1]), 1 - alpha[:-1]]), 0)
        return (through * alpha * colour.sigmoid()).sum(0)


class FourierOperator(nn.Module):
    """FNO: a product by mode in the frequency domain beside a pointwise layer."""

    def __init__(self, width: int = 6, modes: int = 5) -> None:
        super().__init__()
        self.lift, self.point, self.head = (
            nn.Linear(2, width),
            nn.Conv1d(width, width, 1),
            nn.Linear(width, 1),
        )
        self.real = nn.Parameter(torch.randn(width, width, modes) / 6)
        self.imag = nn.Parameter(torch.randn(width, width, modes) / 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.lift(x).transpose(1, 2)
        modes = torch.fft.rfft(y)[..., : self.real.shape[-1]]
        mixed = torch.einsum("bim,iom->bom", modes, torch.complex(self.real, self.imag))
        y = F.gelu(torch.fft.irfft(mixed, n=y.shape[-1]) + self.point(y))
        return self.head(y.transpose(1, 2))


class FNet(nn.Module):
    """Mixing by the real part of a Fourier transform of tokens and channels."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.Linear(24, width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x + torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real)
        return self.norm2(x + self.feed(x))


class Kan(nn.Module):
    """A Kolmogorov-Arnold layer: splines of each input, summed for each output."""

    def __init__(self, cin: int = 4, cout: int = 5, order: int = 3) -> None:
        super().__init__()
        self.order = order
        self.register_buffer("knots", torch.linspace(-3, 3, 6 + 2 * order))
        self.base = nn.Linear(cin, cout)
        self.coefficients = nn.Parameter(torch.randn(cout, cin, 5 + order) / 4)

    def forward(self, x: Tensor) -> Tensor:
        x, knots, y = x.tanh() * 2.5, self.knots, x.tanh()[..., None]
        y = y * 2.5
        bases = ((y >= knots[:-1]) & (y < knots[1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            left = (y - knots[: -k - 1]) / (knots[k:-1] - knots[: -k - 1])
            right = (knots[k + 1 :] - y) / (knots[k + 1 :] - knots[1:-k])
            bases = left * bases[..., :-1] + right * bases[..., 1:]
        return self.base(F.silu(x)) + torch.einsum("bik,oik->bo", bases, self.coefficients)


class NeuralOde(nn.Module):
    """Four steps of Runge-Kutta through one small network."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 5))

    def forward(self, x: Tensor) -> Tensor:
        h = 0.25
        for _ in range(4):
            a = self.f(x)
            b = self.f(x + h / 2 * a)
            c = self.f(x + h / 2 * b)
            x = x + h / 6 * (a + 2 * b + 2 * c + self.f(x + h * c))
        return x


class Capsules(nn.Module):
    """Two rounds of routing by agreement between squashed vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 5, 2)
        self.weight = nn.Parameter(torch.randn(3, 64, 4, 6) / 3)

    @staticmethod
    def squash(s: Tensor) -> Tensor:
        square = s.square().sum(-1, keepdim=True)
        return square / (1 + square) * s / (square + 1e-6).sqrt()

    def forward(self, x: Tensor) -> Tensor:
        u = self.squash(self.conv(x).view(1, 4, 4, -1).permute(0, 3, 1, 2).reshape(1, -1, 4))
        votes = torch.einsum("bic,oicd->boid", u, self.weight)
        logits = torch.zeros(1, 3, votes.shape[2])
        for _ in range(2):
            out = self.squash((logits.softmax(1)[..., None] * votes).sum(2))
            logits = logits + (votes * out[:, :, None]).sum(-1)
        return out.norm(dim=-1)


CASES = {
    "VQ-VAE": (VqVae, ((1, 3, 8, 8),)), "diffusion step": (Denoiser, ((1, 3, 8, 8), (1,))),
    "StyleGAN2 block": (StyleBlock, ((1, 8),)), "HiFi-GAN": (HifiGan, ((1, 10, 12),)),
    "Demucs": (Demucs, ((1, 2, 64),)), "PixelCNN": (PixelCnn, ((1, 1, 8, 8),)),
    "radiance field": (Siren, ((6, 3),)), "FNO": (FourierOperator, ((1, 16, 2),)),
    "FNet": (FNet, ((1, 8, 8),)), "KAN": (Kan, ((3, 4),)), "neural ODE": (NeuralOde, ((2, 5),)),
    "capsules": (Capsules, ((1, 1, 11, 11),)),
}  # fmt: skip
