"""Networks over time: forecasters, state spaces, and what followed attention."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PatchTST(nn.Module):
    """Patches of each channel as tokens, after reversible instance normalisation."""

    def __init__(self, length: int = 48, patch: int = 8, stride: int = 4, width: int = 16) -> None:
        super().__init__()
        self.patch, self.stride = patch, stride
        count = (length - patch) // stride + 1
        self.embed, self.place = nn.Linear(patch, width), nn.Parameter(torch.rand(count, width))
        self.layer = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, activation="gelu")
        self.head = nn.Linear(count * width, 12)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        sd = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        y = ((x - mean) / sd).permute(0, 2, 1).unfold(-1, self.patch, self.stride)
        b, c, n = y.shape[:3]
        y = self.layer((self.embed(y) + self.place).reshape(b * c, n, -1))
        y = self.head(y.reshape(b, c, -1)).permute(0, 2, 1)
        return y * sd + mean


class ITransformer(nn.Module):
    """Each variable is a token."""

    def __init__(self, length: int = 32, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Linear(length, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 32, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True).detach()
        x = x - mean
        sd = torch.sqrt(torch.var(x, dim=1, keepdim=True, unbiased=False) + 1e-5)
        y = self.head(self.layer(self.embed((x / sd).permute(0, 2, 1)))).permute(0, 2, 1)
        return y * sd[:, 0, :].unsqueeze(1).repeat(1, 8, 1) + mean[:, 0, :].unsqueeze(1).repeat(
            1, 8, 1
        )


class NBeats(nn.Module):
    """Blocks that subtract what they explain: trend and seasons of fixed bases."""

    def __init__(self, length: int = 24, horizon: int = 6) -> None:
        super().__init__()
        self.stacks = nn.ModuleList(
            nn.Sequential(nn.Linear(length, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
            for _ in range(3)
        )
        self.thetas = nn.ModuleList(nn.Linear(32, 8, bias=False) for _ in range(3))
        t = torch.arange(length + horizon) / horizon
        trend = torch.stack([t**i / 4 for i in range(8)])
        season = torch.cat(
            [
                torch.stack([torch.cos(math.pi * i * t), torch.sin(math.pi * i * t)])
                for i in range(4)
            ]
        )
        self.register_buffer(
            "bases", torch.stack([trend / trend.amax(1, keepdim=True), season, season])
        )
        self.length = length

    def forward(self, x: Tensor) -> Tensor:
        forecast = x[:, -1:].repeat(1, 6)
        for i, (stack, theta) in enumerate(zip(self.stacks, self.thetas)):
            y = theta(stack(x)) @ self.bases[i]
            x, forecast = x - y[:, : self.length], forecast + y[:, self.length :]
        return forecast


class DLinear(nn.Module):
    """Moving average with repeated ends, and a linear layer for each part and channel."""

    def __init__(self) -> None:
        super().__init__()
        self.trend, self.season = (
            nn.ModuleList(nn.Linear(32, 8) for _ in range(3)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        front, end = x[:, :1].repeat(1, 3, 1), x[:, -1:].repeat(1, 3, 1)
        mean = F.avg_pool1d(torch.cat([front, x, end], 1).permute(0, 2, 1), 7, 1)
        rest = x.permute(0, 2, 1) - mean
        out = torch.zeros(x.shape[0], 3, 8)
        for i in range(3):
            out[:, i] = self.trend[i](mean[:, i]) + self.season[i](rest[:, i])
        return out.permute(0, 2, 1)


class TemporalBlock(nn.Module):
    def __init__(self, cin: int, cout: int, dilation: int) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.pad = 2 * dilation
        self.one = norm(nn.Conv1d(cin, cout, 3, padding=self.pad, dilation=dilation))
        self.two = norm(nn.Conv1d(cout, cout, 3, padding=self.pad, dilation=dilation))
        self.skip = nn.Conv1d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.one(x)[..., : -self.pad].contiguous())
        y = F.relu(self.two(y)[..., : -self.pad])
        return F.relu(y + self.skip(x))


def tcn() -> nn.Module:
    return nn.Sequential(
        TemporalBlock(4, 12, 1),
        TemporalBlock(12, 12, 2),
        TemporalBlock(12, 12, 4),
        nn.Conv1d(12, 3, 1),
    )


class RetNet(nn.Module):
    """Retention in its parallel form: decays instead of a softmax, group norm of heads."""

    def __init__(self, width: int = 16, heads: int = 2, length: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.qkvg, self.out = nn.Linear(width, 4 * width), nn.Linear(width, width)
        gamma = 1 - torch.exp2(-5 - torch.arange(heads).float())
        n = torch.arange(length)
        decay = torch.where(
            n[:, None] >= n, gamma[:, None, None] ** (n[:, None] - n).clamp(min=0), 0.0
        )
        self.register_buffer("decay", decay / decay.sum(-1, keepdim=True).sqrt())
        self.norm = nn.GroupNorm(heads, width)
        angle = 1.0 / 10000 ** torch.linspace(0, 1, width // heads // 2)
        turn = n[:, None] * angle.repeat_interleave(2)
        self.register_buffer("sin", torch.sin(turn))
        self.register_buffer("cos", torch.cos(turn))

    def turned(self, x: Tensor) -> Tensor:
        other = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        return x * self.cos + other * self.sin

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v, g = self.qkvg(x).chunk(4, -1)
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in (q, k, v))
        scores = self.turned(q) @ self.turned(k).transpose(-1, -2) * self.decay
        y = (scores / scores.detach().abs().sum(-1, keepdim=True).clamp(min=1)) @ v
        y = self.norm(y.transpose(1, 2).reshape(b * t, c)).view(b, t, c)
        return self.out(F.silu(g) * y)


class Mamba(nn.Module):
    """A selective state space: discretised by softplus, scanned step by step."""

    def __init__(self, width: int = 8, state: int = 4) -> None:
        super().__init__()
        self.inner, self.state = 2 * width, state
        self.into, self.conv = (
            nn.Linear(width, 4 * width, bias=False),
            nn.Conv1d(2 * width, 2 * width, 4, groups=2 * width, padding=3),
        )
        self.x_proj, self.dt = (
            nn.Linear(2 * width, 2 + 2 * state, bias=False),
            nn.Linear(2, 2 * width),
        )
        self.a_log = nn.Parameter(torch.log(torch.arange(1.0, state + 1).repeat(2 * width, 1)))
        self.d, self.out = (
            nn.Parameter(torch.ones(2 * width)),
            nn.Linear(2 * width, width, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        u, gate = self.into(x).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :t].transpose(1, 2))
        dt, bm, cm = self.x_proj(u).split([2, self.state, self.state], -1)
        dt = F.softplus(self.dt(dt))
        a = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.a_log))
        bu = dt.unsqueeze(-1) * bm.unsqueeze(2) * u.unsqueeze(-1)
        h, ys = torch.zeros(b, self.inner, self.state), []
        for i in range(t):
            h = a[:, i] * h + bu[:, i]
            ys.append((h * cm[:, i, None]).sum(-1))
        y = torch.stack(ys, 1) + u * self.d
        return self.out(y * F.silu(gate))


class Rwkv(nn.Module):
    """Token shift and the WKV recurrence with its running maximum."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.rand(3, width))
        self.k, self.v, self.r, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.w, self.u = nn.Parameter(-torch.rand(width) - 0.2), nn.Parameter(torch.rand(width))

    def forward(self, x: Tensor) -> Tensor:
        past = F.pad(x, (0, 0, 1, -1))
        k, v, r = (
            layer(x * m + past * (1 - m)) for layer, m in zip((self.k, self.v, self.r), self.mix)
        )
        num, den, top, ys = (
            torch.zeros_like(x[:, 0]),
            torch.zeros_like(x[:, 0]),
            torch.full_like(x[:, 0], -8.0),
            [],
        )
        for i in range(x.shape[1]):
            q = torch.maximum(top, self.u + k[:, i])
            a, b = torch.exp(top - q), torch.exp(self.u + k[:, i] - q)
            ys.append((a * num + b * v[:, i]) / (a * den + b))
            q = torch.maximum(top + self.w, k[:, i])
            a, b = torch.exp(top + self.w - q), torch.exp(k[:, i] - q)
            num, den, top = a * num + b * v[:, i], a * den + b, q
        return self.o(torch.sigmoid(r) * torch.stack(ys, 1))


class Perceiver(nn.Module):
    """Latents that attend to the input, then to themselves."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(1, 6, width))
        self.kv, self.q = nn.Linear(8, 2 * width), nn.Linear(width, width)
        self.norm, self.own = (
            nn.LayerNorm(8),
            nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, activation="gelu"),
        )
        self.fc = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        k, v = self.kv(self.norm(x)).chunk(2, -1)
        z = self.latents.expand(x.shape[0], -1, -1)
        z = z + F.scaled_dot_product_attention(self.q(z), k, v)
        return self.fc(self.own(z).mean(1))


class Performer(nn.Module):
    """Attention by positive random features; beside it Linformer's projected keys."""

    def __init__(self, width: int = 16, length: int = 24) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(2 * width, width)
        self.register_buffer("features", torch.randn(width, 20))
        self.e, self.f = nn.Linear(length, 6, bias=False), nn.Linear(length, 6, bias=False)

    def phi(self, x: Tensor) -> Tensor:
        x = x * x.shape[-1] ** -0.25
        y = x @ self.features - (x**2).sum(-1, keepdim=True) / 2
        return torch.exp(y - y.amax(-1, keepdim=True)) + 1e-4

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        pq, pk = self.phi(q), self.phi(k)
        kv = torch.einsum("bnm,bnd->bmd", pk, v)
        fast = torch.einsum("bnm,bmd->bnd", pq, kv) / torch.einsum(
            "bnm,bm->bn", pq, pk.sum(1)
        ).unsqueeze(-1)
        low_k, low_v = self.e(k.transpose(1, 2)), self.f(v.transpose(1, 2))
        low = torch.softmax(q @ low_k / 4, -1) @ low_v.transpose(1, 2)
        return self.out(torch.cat([fast, low], -1))


class Moe(nn.Module):
    """A mixture of experts: the two best of four, RMS norm, SwiGLU, rotary attention in groups."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.router = nn.Linear(width, 4, bias=False)
        self.w1, self.w2, self.w3 = (
            nn.Parameter(torch.randn(4, *s) / 4) for s in ((width, 24), (24, width), (width, 24))
        )
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.scale
        scores = self.router(y).softmax(-1)
        best, which = scores.topk(2, -1)
        gates = torch.zeros_like(scores).scatter(-1, which, best / best.sum(-1, keepdim=True))
        up = F.silu(torch.einsum("btc,ech->bteh", y, self.w1)) * torch.einsum(
            "btc,ech->bteh", y, self.w3
        )
        return x + torch.einsum("bteh,ehc,bte->btc", up, self.w2, gates)


CASES = {
    "PatchTST": (PatchTST, ((1, 48, 3),)), "iTransformer": (ITransformer, ((1, 32, 5),)),
    "N-BEATS": (NBeats, ((1, 24),)), "DLinear": (DLinear, ((1, 32, 3),)),
    "TCN": (tcn, ((1, 4, 40),)), "RetNet": (RetNet, ((1, 16, 16),)),
    "Mamba": (Mamba, ((1, 10, 8),)), "RWKV": (Rwkv, ((1, 8, 12),)),
    "Perceiver": (Perceiver, ((1, 30, 8),)), "Performer and Linformer": (Performer, ((1, 24, 16),)),
    "mixture of experts": (Moe, ((1, 9, 16),)),
}  # fmt: skip
