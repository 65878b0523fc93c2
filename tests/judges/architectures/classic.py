"""Older networks, tables of features, control, and signal processing without learning."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class AlexNet(nn.Module):
    """Local response normalization, grouped layers, overlapping pools, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 12, 7, 3, 2), nn.ReLU(), nn.LocalResponseNorm(5, 1e-2, 0.75, 2.0),
            nn.MaxPool2d(3, 2), nn.Conv2d(12, 16, 5, padding=2, groups=2), nn.ReLU(),
            nn.LocalResponseNorm(5, 1e-2), nn.MaxPool2d(3, 2, ceil_mode=True), nn.Flatten(),
            nn.Dropout(), nn.LazyLinear(24), nn.ReLU(), nn.Linear(24, 7),
        )  # fmt: skip
        self.body(torch.zeros(1, 3, 40, 40))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).softmax(-1)


class LeNet5(nn.Module):
    """Scaled tangents, trainable subsampling, distances to patterns of each class."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c3 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.gain, self.bias = (
            nn.Parameter(torch.rand(6, 1, 1) + 0.5),
            nn.Parameter(torch.rand(6, 1, 1)),
        )
        self.f6 = nn.Linear(64, 20)
        self.patterns = nn.Parameter(torch.randn(5, 20).sign())

    def forward(self, x: Tensor) -> Tensor:
        def act(y: Tensor) -> Tensor:
            return 1.7159 * torch.tanh(2 / 3 * y)

        y = act(F.avg_pool2d(act(self.c1(x)), 2) * self.gain + self.bias)
        y = act(self.f6(F.avg_pool2d(act(self.c3(y)), 2).flatten(1)))
        return (y[:, None] - self.patterns).square().sum(-1)


class SegNet(nn.Module):
    """Pools that keep where the maximum was, and put values back there."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y, where = F.max_pool2d(torch.relu(self.enter(x)), 2, return_indices=True)
        return self.leave(F.max_unpool2d(y, where, 2))


class PyramidPools(nn.Module):
    """PSPNet's means over several grids and SPP's maxima, enlarged and joined."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.parts = nn.ModuleList(nn.Conv2d(8, 2, 1) for _ in range(3))
        self.head = nn.Conv2d(30, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.stem(x))
        means = [
            F.interpolate(part(F.adaptive_avg_pool2d(y, n)), y.shape[2:], mode="bilinear")
            for part, n in zip(self.parts, (1, 2, 3), strict=True)
        ]
        large = [F.max_pool2d(y, k, 1, k // 2) for k in (5, 9)]
        return F.interpolate(self.head(torch.cat([y, *means, *large], 1)), scale_factor=2)


class Concatenated(nn.Module):
    """CReLU, maxout, and norms of weights and channels."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(12, 12, 3, padding=1)
        self.norm = nn.InstanceNorm2d(6, affine=True)
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(6, 4))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.a.weight
        mean, std = weight.mean((1, 2, 3), keepdim=True), weight.std((1, 2, 3), keepdim=True)
        y = F.conv2d(x, (weight - mean) / std, self.a.bias, padding=1)
        y = torch.cat([torch.relu(y), torch.relu(-y)], 1)
        y = self.b(y).unflatten(1, (6, 2)).amax(2)
        return F.normalize(self.head(self.norm(y).mean((2, 3)) + y.amax((2, 3))), dim=-1)


class Involution(nn.Module):
    """A kernel of its own for every place, made by that place."""

    def __init__(self, width: int = 8, groups: int = 2, k: int = 3) -> None:
        super().__init__()
        self.k, self.groups = k, groups
        self.kernel = nn.Sequential(
            nn.Conv2d(width, 4, 1), nn.ReLU(), nn.Conv2d(4, k * k * groups, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, width, height, columns = x.shape
        weight = self.kernel(x).view(batch, self.groups, 1, self.k * self.k, height, columns)
        patches = F.unfold(x, self.k, padding=1).view(
            batch, self.groups, width // self.groups, self.k * self.k, height, columns
        )
        return (weight * patches).sum(3).view_as(x)


class DeepFm(nn.Module):
    """Fields by embeddings: pairwise products by the square of the sum, and a deep part."""

    def __init__(self) -> None:
        super().__init__()
        self.fields, self.first = nn.Parameter(torch.randn(9, 6) / 2), nn.Linear(9, 1)
        self.deep = nn.Sequential(nn.Linear(54, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        v = x[..., None] * self.fields
        pairs = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(-1, keepdim=True)
        return torch.sigmoid(self.first(x) + pairs + self.deep(v.flatten(1)))


class TabNet(nn.Module):
    """Steps that choose features by sparsemax, a prior that fades, gated layers."""

    def __init__(self, width: int = 10) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.attend = nn.ModuleList(nn.Linear(8, width) for _ in range(2))
        self.shared, self.head = nn.Linear(width, 32), nn.Linear(8, 3)

    @staticmethod
    def sparsemax(z: Tensor) -> Tensor:
        z = z - z.amax(-1, keepdim=True)
        ranked = z.sort(-1, descending=True).values
        sums = ranked.cumsum(-1) - 1
        ranks = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
        count = (ranks * ranked > sums).to(z.dtype).sum(-1, keepdim=True)
        tau = (torch.where(ranks * ranked > sums, ranked, 0.0).sum(-1, keepdim=True) - 1) / count
        return torch.relu(z - tau)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        total, prior = 0.0, torch.ones_like(x)
        gate = F.glu(self.shared(x))[:, 8:]
        for attend in self.attend:
            mask = self.sparsemax(attend(gate) * prior)
            prior = prior * (1.5 - mask)
            made, gate = F.glu(self.shared(mask * x)).chunk(2, -1)
            total = total + torch.relu(made)
        return self.head(total)


class Policy(nn.Module):
    """An actor and a critic: a squashed Gaussian and its log-density, two values."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(11, 32), nn.Tanh(), nn.LayerNorm(32), nn.Linear(32, 6))
        self.q = nn.Bilinear(11, 3, 2)

    def forward(self, state: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_std = self.body(state).chunk(2, -1)
        log_std = -2 + 1.5 * (log_std.tanh() + 1)
        raw = mean + log_std.exp() * noise
        action = raw.tanh()
        density = -0.5 * noise.square() - log_std - F.softplus(-2 * raw)
        return action, density.sum(-1), self.q(state, action).amin(-1)


class DuelingQ(nn.Module):
    """Values of actions around their mean, as distributions over atoms; the best one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 4, 2)
        self.value, self.advantage = nn.Linear(72, 11), nn.Linear(72, 44)
        self.register_buffer("atoms", torch.linspace(-2, 2, 11))

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(self.conv(frames)).flatten(1)
        a = self.advantage(y).view(-1, 4, 11)
        p = (self.value(y)[:, None] + a - a.mean(1, keepdim=True)).softmax(-1)
        q = (p * self.atoms).sum(-1)
        return q, q.argmax(-1)


class Siamese(nn.Module):
    """Two inputs through one network: cosine, distance, and the product map of both."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(2, 8, 5, 2), nn.ReLU(), nn.Conv1d(8, 8, 3), nn.Mish())

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        x, y = self.body(a), self.body(b)
        pooled = x.mean(-1), y.mean(-1)
        near = torch.einsum("bct,bcs->bts", F.normalize(x, dim=1), F.normalize(y, dim=1))
        return (
            F.cosine_similarity(*pooled), F.pairwise_distance(*pooled), near.amax(-1).mean(-1)
        )  # fmt: skip


class KalmanStep(nn.Module):
    """Prediction and correction of a constant-velocity filter, the inverse written out."""

    def forward(self, state: Tensor, spread: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        move = torch.eye(4) + torch.diag(torch.full((2,), 0.1), 2)
        look = torch.eye(2, 4)
        state = state @ move.t()
        spread = move @ spread @ move.t() + 0.01 * torch.eye(4)
        s = look @ spread @ look.t() + 0.1 * torch.eye(2)
        det = s[..., 0, 0] * s[..., 1, 1] - s[..., 0, 1] * s[..., 1, 0]
        adjugate = torch.stack(
            [s[..., 1, 1], -s[..., 0, 1], -s[..., 1, 0], s[..., 0, 0]], -1
        ).unflatten(-1, (2, 2))
        gain = spread @ look.t() @ (adjugate / (det[..., None, None].abs() + 0.1))
        state = state + (gain @ (seen - state @ look.t())[..., None]).squeeze(-1)
        return state, spread - gain @ look @ spread


class Edges(nn.Module):
    """Luma, Sobel, magnitude and orientation, thinned and thresholded, and cells' histograms."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        grey = (x * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
        sobel = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
        kernels = torch.stack([sobel, sobel.t()])[:, None]
        gx, gy = F.conv2d(F.pad(grey, (1, 1, 1, 1), mode="replicate"), kernels).chunk(2, 1)
        strong, angle = torch.hypot(gx, gy), torch.atan2(gy, gx)
        peaks = (strong == F.max_pool2d(strong, 3, 1, 1)) & (strong > 0.5)
        bins = torch.floor((angle + math.pi) / (2 * math.pi) * 4).clamp(0, 3)
        votes = torch.cat([torch.where(bins == k, strong, 0.0) for k in range(4)], 1)
        return peaks.float(), F.avg_pool2d(votes, 4)


class Jpeg(nn.Module):
    """Blocks of 8 by 8: colour transform, cosines, quantization, and back."""

    def __init__(self) -> None:
        super().__init__()
        n = torch.arange(8.0)
        basis = torch.cos((2 * n + 1)[None] * n[:, None] * math.pi / 16) / 2
        basis[0] /= math.sqrt(2)
        self.register_buffer("basis", basis)
        self.register_buffer("steps", 0.05 + 0.02 * (n[:, None] + n))

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2] // 8, x.shape[3] // 8
        blocks = x.unfold(2, 8, 8).unfold(3, 8, 8)
        kept = torch.round(self.basis @ blocks @ self.basis.t() / self.steps) * self.steps
        back = self.basis.t() @ kept @ self.basis
        return back.permute(0, 1, 2, 4, 3, 5).reshape(1, x.shape[1], 8 * height, 8 * width)


class Pcen(nn.Module):
    """Per-channel energy normalization: a recursive mean, gain control and compression."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((6,), 0.8))
        self.head = nn.Conv1d(6, 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        energy = x.square() + 0.01
        mean = energy[..., 0]
        means = [mean]
        for step in range(1, x.shape[-1]):
            mean = 0.9 * mean + 0.1 * energy[..., step]
            means.append(mean)
        smooth = torch.stack(means, -1)
        gain = (1e-2 + smooth).pow(-self.alpha[:, None].clamp(0.1, 1))
        return self.head((energy * gain + 2.0).sqrt() - math.sqrt(2.0)).logsumexp(-1)


class Beamformer(nn.Module):
    """Masks over microphones' spectra, covariances, and the weighted sum."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = nn.Linear(9, 9)

    def forward(self, real: Tensor, imag: Tensor) -> Tensor:
        power = torch.log1p(real.square() + imag.square())
        mask = self.mask(power.mean(1)).sigmoid()[:, None]
        wr, wi = (mask * real).mean(2, keepdim=True), (mask * imag).mean(2, keepdim=True)
        norm = (wr.square() + wi.square()).sum(1, keepdim=True) + 0.1
        out_r, out_i = wr * real + wi * imag, wr * imag - wi * real
        return torch.stack([(out_r / norm).sum(1), (out_i / norm).sum(1)], -1)


CASES = {
    "AlexNet": (AlexNet, ((1, 3, 40, 40),)), "LeNet-5": (LeNet5, ((1, 1, 20, 20),)),
    "SegNet": (SegNet, ((1, 3, 8, 8),)), "PSPNet and SPP": (PyramidPools, ((1, 3, 24, 24),)),
    "CReLU and maxout": (Concatenated, ((1, 3, 8, 8),)),
    "involution": (Involution, ((1, 8, 8, 8),)),
    "DeepFM": (DeepFm, ((2, 9),)), "TabNet": (TabNet, ((2, 10),)),
    "actor and critic": (Policy, ((2, 11), (2, 3))), "dueling atoms": (DuelingQ, ((1, 4, 8, 8),)),
    "Siamese": (Siamese, ((1, 2, 40), (1, 2, 40))),
    "Kalman filter": (KalmanStep, ((2, 4), (2, 4, 4), (2, 2))),
    "edges and orientations": (Edges, ((1, 3, 12, 12),)), "JPEG": (Jpeg, ((1, 3, 16, 16),)),
    "PCEN": (Pcen, ((1, 6, 20),)), "beamformer": (Beamformer, ((1, 3, 6, 9), (1, 3, 6, 9))),
}  # fmt: skip
