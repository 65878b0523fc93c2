"""Blocks as people write them: gates, filters of spectra, graphs, splines, hashes, slots."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from judges.strange.arithmetic import Of, r


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """ConvNeXt V2: a depthwise layer, a norm of channels, global response, layer scale."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.spatial = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = LayerNorm2d(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma, self.beta = nn.Parameter(r(4 * width) / 4), nn.Parameter(r(4 * width) / 4)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        y = self.norm(self.spatial(x)).permute(0, 2, 3, 1)
        y = F.gelu(self.wide(y))
        response = y.norm(p=2, dim=(1, 2), keepdim=True)
        y = self.gamma * (y * (response / (response.mean(-1, keepdim=True) + 1e-6))) + self.beta + y
        return x + (self.narrow(y) * self.scale).permute(0, 3, 1, 2)


class Grid(nn.Module):
    """MaxViT: attention in windows, then on a grid, with relative positions looked up."""

    def __init__(self, width: int = 8, heads: int = 2, side: int = 4) -> None:
        super().__init__()
        self.heads, self.side = heads, side
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(r((2 * side - 1) ** 2, heads) / 4)
        at = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij"))
        apart = (at.flatten(1)[:, :, None] - at.flatten(1)[:, None] + side - 1).permute(1, 2, 0)
        self.register_buffer("index", apart[..., 0] * (2 * side - 1) + apart[..., 1])

    def attend(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-1, -2) / math.sqrt(c // self.heads)
        scores = scores + self.bias[self.index.view(-1)].view(n, n, -1).permute(2, 0, 1)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))

    def forward(self, x):
        b, h, w, c = x.shape
        s, p, q = self.side, h // self.side, w // self.side
        y = x.view(b, p, s, q, s, c).transpose(2, 3).reshape(-1, s * s, c)
        x = x + self.attend(y).view(b, p, q, s, s, c).transpose(2, 3).reshape(b, h, w, c)
        y = x.view(b, s, p, s, q, c).permute(0, 2, 4, 1, 3, 5).reshape(-1, s * s, c)
        y = self.attend(y).view(b, p, q, s, s, c).permute(0, 3, 1, 4, 2, 5)
        return x + y.reshape(b, h, w, c)


class GlobalFilter(nn.Module):
    """GFNet: a learned complex filter of the spectrum of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(r(8, 5, 4, 2) / 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        spectrum = torch.fft.rfft2(self.norm(x), dim=(1, 2), norm="ortho")
        filtered = spectrum * torch.view_as_complex(self.filter)
        return x + torch.fft.irfft2(filtered, s=x.shape[1:3], dim=(1, 2), norm="ortho")


class NormedGru(nn.Module):
    """A GRU whose recurrent weights are normed, a starting state given, states handed on."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = parametrizations.weight_norm(nn.GRU(4, 6, batch_first=True), "weight_hh_l0")
        self.out = parametrizations.orthogonal(nn.Linear(6, 6))

    def forward(self, x, state):
        y, state = self.rnn(x, state)
        return self.out(y), state


@dataclass
class Inner:
    score: Tensor
    extra: Tensor | None = None


@dataclass
class Outer:
    inner: Inner
    hidden: tuple[Tensor, ...] = ()
    by_name: dict[str, Tensor] = field(default_factory=dict)


torch.export.register_dataclass(Inner, serialized_type_name="judges.Inner")
torch.export.register_dataclass(Outer, serialized_type_name="judges.Outer")


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)])

    def forward(self, x):
        hidden = []
        for layer in self.layers:
            x = layer(x).tanh()
            hidden.append(x)
        return Outer(Inner(x.softmax(-1)), tuple(hidden), {"mean": x.mean(-1)})


class SignOf(torch.autograd.Function):
    """Two results, one of which has no derivative."""

    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x)
        near = x.abs() < limit
        return torch.where(near, x, x.sign() * limit), near

    @staticmethod
    def backward(ctx, grad, _):
        return grad * (ctx.saved_tensors[0].abs() < 1), None


def clipped(x):
    y, near = SignOf.apply(x, 0.7)
    return y, near.float().mean(-1)


def ragged(a, b, c):
    padded = nn.utils.rnn.pad_sequence([a, b, c], batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones(len(t)) for t in (a, b, c)], batch_first=True)
    return (padded * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def written_views(x):
    y = x.clone()
    y[:, ::2] += 1
    y.transpose(1, 2)[..., 0].mul_(2)
    left, right = y.chunk(2, -1)
    left.sub_(right.detach())
    y.narrow(1, 1, 2).masked_fill_(y.narrow(1, 1, 2) > 1, 0.5)
    y.view(y.shape[0], -1)[:, -3:].zero_()
    y.diagonal(dim1=1, dim2=2).copy_(torch.ones(y.shape[0], 4))
    return y, x


def message_passing(x, edges):
    source, target = edges
    messages = x[source] * 0.5
    score = (x[source] * x[target]).sum(-1)
    most = torch.full((6,), -1e4).scatter_reduce(0, target, score, "amax")
    weight = (score - most[target]).exp()
    total = torch.zeros(6).index_add(0, target, weight)
    weight = weight / (total[target] + 1e-6)
    return torch.zeros_like(x).index_add(0, target, messages * weight[:, None])


class Spline(nn.Module):
    """A layer of a Kolmogorov-Arnold network: B-splines by the recursion of de Boor."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("knots", torch.linspace(-2, 2, 12))
        self.weight = nn.Parameter(r(3, 4, 8) / 3)

    def forward(self, x):
        x, t = x.clamp(-1, 1)[..., None], self.knots
        basis = ((x >= t[:-1]) & (x < t[1:])).to(x.dtype)
        for k in range(1, 4):
            rising = (x - t[: -k - 1]) / (t[k:-1] - t[: -k - 1]) * basis[..., :-1]
            falling = (t[k + 1 :] - x) / (t[k + 1 :] - t[1:-k]) * basis[..., 1:]
            basis = rising + falling
        return torch.einsum("bik,oik->bo", basis, self.weight) + F.silu(x[..., 0]).sum(-1)[:, None]


class HashGrid(nn.Module):
    """Positions of a picture as features: corners hashed into a table, blended linearly."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, 4)

    def forward(self, x):
        at = x * 7
        low = at.floor()
        part, low = at - low, low.long()
        total = 0
        for corner in ((0, 0), (0, 1), (1, 0), (1, 1)):
            offset = torch.tensor(corner)
            one = low + offset
            key = (one[..., 0] * 1 + one[..., 1] * 19) % 32
            weight = torch.where(offset.bool(), part, 1 - part).prod(-1, keepdim=True)
            total = total + weight * self.table(key)
        return total


class Denoiser(nn.Module):
    """A block of a diffusion network: a time step, group norms, attention to a text."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.first, self.second = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(2, 8), nn.GroupNorm(4, 8)])
        self.cross = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)

    def forward(self, x, step, text):
        angles = step[:, None].float() * torch.exp(torch.arange(4) * (-math.log(100) / 4))
        scale, shift = self.time(torch.cat([angles.sin(), angles.cos()], 1))[..., None, None].chunk(
            2, 1
        )
        y = self.first(F.silu(self.norms[0](x)))
        y = self.second(F.silu(self.norms[1](y) * (1 + scale) + shift)) + x
        tokens = y.flatten(2).transpose(1, 2)
        seen, _ = self.cross(tokens, text, text, need_weights=False)
        return (tokens + seen).transpose(1, 2).unflatten(2, y.shape[2:])


def rendered(density, color, depth):
    """Volume rendering of a radiance field."""
    apart = F.pad(depth.diff(dim=-1), (0, 1), value=1.0)
    alpha = 1 - torch.exp(-F.relu(density) * apart)
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-6], 1), 1)
    weight = alpha * through[:, :-1]
    return (weight[..., None] * color.sigmoid()).sum(1), (weight * depth).sum(1)


class Slots(nn.Module):
    """Slot attention: slots compete for inputs, and a GRU cell moves them, three times."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = nn.Parameter(r(1, 3, 8))
        self.norm, self.norm_slots = nn.LayerNorm(8), nn.LayerNorm(8)
        self.q, self.kv = nn.Linear(8, 8), nn.Linear(8, 16)
        self.cell = nn.GRUCell(8, 8)

    def forward(self, x):
        k, v = self.kv(self.norm(x)).chunk(2, -1)
        slots = self.slots.expand(x.shape[0], -1, -1)
        for _ in range(3):
            share = torch.einsum("bsd,bnd->bsn", self.q(self.norm_slots(slots)), k) / 8**0.5
            share = share.softmax(1) + 1e-8
            moved = torch.einsum("bsn,bnd->bsd", share / share.sum(-1, keepdim=True), v)
            slots = self.cell(moved.reshape(-1, 8), slots.reshape(-1, 8)).view_as(slots)
        return slots


class Conditioned(nn.Module):
    """Kernels blended for each input, and applied to the batch as groups."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.Parameter(r(3, 4 * 2 * 9) / 4)
        self.route = nn.Linear(2, 3)

    def forward(self, x):
        b, c, h, w = x.shape
        blend = self.route(x.mean((2, 3))).softmax(-1)
        kernels = (blend @ self.experts).view(b * 4, c, 3, 3)
        return F.conv2d(x.reshape(1, b * c, h, w), kernels, padding=1, groups=b).view(b, 4, h, w)


class TwoWays(nn.Module):
    """An Elman network in two directions with ReLU, and an LSTM that starts from its result."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.RNN(3, 4, 2, nonlinearity="relu", bidirectional=True, dropout=0.3)
        self.second = nn.LSTM(8, 5)

    def forward(self, x):
        y, states = self.first(x)
        start = states.new_zeros(1, x.shape[1], 5) + states.mean((0, 2))[None, :, None]
        y, (h, c) = self.second(y, (start, torch.zeros_like(start)))
        return y[-1], h, c


def decoded(logits):
    """CTC's best path with a fixed size: repeats and blanks become -1, at their places."""
    best = logits.argmax(-1)
    before = torch.cat([torch.full_like(best[:, :1], -1), best[:, :-1]], 1)
    return torch.where((best != before) & (best != 0), best, torch.full_like(best, -1))


class Retention(nn.Module):
    """Retention in chunks: a decay between positions within, a state across."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(6, 18)
        at = torch.arange(4)
        self.register_buffer("decay", (0.9 ** (at[:, None] - at).float()).tril())

    def forward(self, x):
        state, outs = x.new_zeros(x.shape[0], 6, 6), []
        for part in x.split(4, 1):
            q, k, v = self.qkv(part).split(6, -1)
            inner = ((q @ k.mT) * self.decay) @ v
            age = 0.9 ** torch.arange(1, 5, dtype=x.dtype)[:, None]
            outs.append(inner + (q @ state) * age)
            state = state * 0.9**4 + (k * age.flip(0)).mT @ v
        return F.normalize(torch.cat(outs, 1), dim=-1)


class Masked(nn.Module):
    """A decoder layer with a causal mask and a mask of padding, weights averaged and given back."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x, memory, padding):
        causal = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y = self.layer(x, memory, tgt_mask=causal, memory_key_padding_mask=padding)
        return self.attention(y, memory, memory, key_padding_mask=padding)


class Moved(torch.Tensor):
    """A subclass of tensors, as libraries of physical units have it."""


def subclassed(x):
    y = x.as_subclass(Moved) * 2 + 1
    return y.as_subclass(torch.Tensor).relu()


def ticks(x):
    """Whole numbers: floors of negative ones, remainders, bits, and back."""
    n = (x * 8).round().to(torch.int32)
    return n // 3, n % 5, (n >> 1) & 7, torch.remainder(n, -4).float() / 2, n.abs().clamp(max=9)


@dataclass
class Pair:
    left: Tensor
    right: Tensor


def paired(pair):
    return torch.minimum(pair.left, pair.right) * pair.left


def sparse(x):
    return torch.sparse.mm(torch.eye(4).to_sparse(), x.T).T + x


def through_numpy(x):
    return x * torch.from_numpy(np.sin(x.numpy()))


PADDING = torch.tensor([[False, False, True, True, True]])
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 5]])
CASES = {
    "ConvNeXt V2": (ConvNeXt, lambda: (r(1, 8, 8, 8),)),
    "windows and a grid": (Grid, lambda: (r(1, 8, 8, 8),)),
    "a filter of the spectrum": (GlobalFilter, lambda: (r(1, 8, 8, 4),)),
    "GRU of normed weights": (NormedGru, lambda: (r(2, 5, 4), r(1, 2, 6))),
    "dataclasses in dataclasses": (Nested, lambda: (r(2, 6),)),
    "own autograd, two results": (lambda: Of(clipped), lambda: (r(3, 8),)),
    "a ragged list": (lambda: Of(ragged), lambda: (r(3, 4), r(5, 4), r(2, 4))),
    "views written in place": (lambda: Of(written_views), lambda: (r(2, 4, 4),)),
    "messages along edges": (lambda: Of(message_passing), lambda: (r(6, 4), EDGES)),
    "splines": (Spline, lambda: (r(5, 4) / 2,)),
    "a grid of hashes": (HashGrid, lambda: (torch.rand(2, 6, 2),)),
    "a step of diffusion": (
        Denoiser, lambda: (r(1, 8, 4, 4), torch.tensor([37]), r(1, 5, 6))),
    "rays through a volume": (
        lambda: Of(rendered), lambda: (r(2, 8), r(2, 8, 3), torch.rand(2, 8).sort(-1)[0] * 4)),
    "slots": (Slots, lambda: (r(1, 7, 8),)),
    "kernels blended for each input": (Conditioned, lambda: (r(2, 2, 6, 6),)),
    "two ways, then an LSTM": (TwoWays, lambda: (r(6, 2, 3),)),
    "the best path": (lambda: Of(decoded), lambda: (r(2, 9, 5),)),
    "retention in chunks": (Retention, lambda: (r(1, 8, 6),)),
    "causal, padded, weights out": (Masked, lambda: (r(1, 4, 8), r(1, 5, 8), PADDING)),
    "a subclass of tensors": (lambda: Of(subclassed), lambda: (r(2, 6),)),
    "a dataclass in": (lambda: Of(paired), lambda: (Pair(r(2, 4), r(2, 4)),)),
    "a sparse constant": (lambda: Of(sparse), lambda: (r(2, 4),)),
    "an array of NumPy": (lambda: Of(through_numpy), lambda: (r(2, 4),)),
    "ticks": (lambda: Of(ticks), lambda: (r(2, 9),)),
}  # fmt: skip
