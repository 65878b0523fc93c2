"""Methods of papers that are more than layers: routing, integration, clustering, geometry."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from judges.strange.arithmetic import Of, r


class Capsules(nn.Module):
    """Dynamic routing between capsules: three rounds of agreement."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, 6, 3, 4, 5) * 0.3)

    def forward(self, x):
        votes = (self.weight * x[:, :, None, None, :]).sum(-1)  # batch, in, out, size
        logits = votes.new_zeros(*votes.shape[:3], 1)
        for _ in range(3):
            total = (logits.softmax(2) * votes).sum(1, keepdim=True)
            square = total.square().sum(-1, keepdim=True)
            found = total * square / (1 + square) / (square + 1e-6).sqrt()
            logits = logits + (votes * found).sum(-1, keepdim=True)
        return found.squeeze(1).norm(dim=-1)


class Ode(nn.Module):
    """A network as the right side of a differential equation, by Runge-Kutta."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 4))

    def at(self, time: float, x: Tensor) -> Tensor:
        return self.slope(torch.cat([x, torch.full_like(x[:, :1], time)], 1))

    def forward(self, x, steps: int = 3):
        step = 1 / steps
        for time in torch.linspace(0, 1, steps + 1)[:-1].tolist():
            a = self.at(time, x)
            b = self.at(time + step / 2, x + step / 2 * a)
            c = self.at(time + step / 2, x + step / 2 * b)
            x = x + step / 6 * (a + 2 * b + 2 * c + self.at(time + step, x + step * c))
        return x


class SegNet(nn.Module):
    """Pooling that remembers where its maxima were, and puts them back."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)
        self.down, self.up = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 2, 3, padding=1)

    def forward(self, x):
        small, places = self.pool(self.down(x).relu())
        return self.up(self.unpool(small, places))


class Transformer(nn.Module):
    """An encoder and a decoder of PyTorch's own, with a causal mask and a mask of padding."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Transformer(8, 2, 1, 1, 12, 0.0, batch_first=True)

    def forward(self, source, result):
        mask = nn.Transformer.generate_square_subsequent_mask(result.shape[1])
        return self.net(source, result, tgt_mask=mask, tgt_is_causal=True)


class Perceiver(nn.Module):
    """A few learned queries read many values; which of them they read is a result as well."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(1, 3, 8))
        self.attend = nn.MultiheadAttention(
            8, 2, kdim=6, vdim=6, add_bias_kv=True, batch_first=True
        )

    def forward(self, x):
        return self.attend(self.queries.expand(len(x), -1, -1), x, x, average_attn_weights=False)


class SmallLstm(nn.Module):
    """A projection within, two layers in both directions, and its states as results."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, 2, bidirectional=True, proj_size=3, batch_first=True)
        self.rnn = nn.RNN(6, 4, nonlinearity="relu", batch_first=True)

    def forward(self, x):
        y, (hidden, cell) = self.lstm(x)
        z, last = self.rnn(y)
        return z, hidden, cell, last


class Modulated(nn.Module):
    """AdaIN: one picture with the mean and the spread of another's channels."""

    def forward(self, x, style):
        spread, mean = torch.std_mean(x, (2, 3), keepdim=True)
        own, place = torch.std_mean(style, (2, 3), keepdim=True)
        return (x - mean) / (spread + 1e-3) * own + place


class Volumes(nn.Module):
    """Layers of three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv3d(1, 3, 3, padding=1), nn.InstanceNorm3d(3, affine=True), nn.PReLU(3),
            nn.MaxPool3d(2), nn.Conv3d(3, 4, (1, 3, 3)), nn.ELU(), nn.AvgPool3d((2, 1, 1)),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x).flatten(1).amax(1)


class Cosines(nn.Module):
    """ArcFace's head: cosines between what comes in and the rows of the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.likeness = nn.Parameter(torch.randn(5, 6)), nn.CosineSimilarity(-1)

    def forward(self, x):
        cosine = F.linear(F.normalize(x), F.normalize(self.weight))
        return (
            16 * cosine,
            self.likeness(x[:, None], self.weight),
            F.pairwise_distance(x, x.flip(0)),
        )


class Bags(nn.Module):
    """Means of embeddings of several words, and hashes of pairs of them."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(32, 6, mode="mean")
        self.pairs = nn.Embedding(16, 6, padding_idx=0)

    def forward(self, words):
        hashed = (words[:, :-1] * 31 + words[:, 1:]) % 16
        return self.bag(words) + self.pairs(hashed).sum(1)


def involution(layer, x):
    """A kernel for each place, made of the place itself."""
    b, c, h, w = x.shape
    kernels = layer(x).reshape(b, 1, 9, h, w)
    return (F.unfold(x, 3, padding=1).reshape(b, c, 9, h, w) * kernels).sum(2)


def transformed(layer, x):
    """A spatial transformer: the network says how its picture is turned."""
    theta = layer(x.mean((2, 3))).reshape(-1, 2, 3)
    return F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False),
                         padding_mode="border", align_corners=False)  # fmt: skip


def clustered(x, centres):
    """Two rounds of k-means."""
    for _ in range(2):
        member = F.one_hot(torch.cdist(x, centres).argmin(1), 3).to(x.dtype)
        centres = (member.mT @ x) / member.sum(0).clamp(min=1)[:, None]
    return centres


def rotation(x):
    """Six numbers as a rotation, by Gram and Schmidt, and a vector that is turned."""
    a, b = F.normalize(x[:, :3], dim=-1), x[:, 3:6]
    b = F.normalize(b - (a * b).sum(-1, keepdim=True) * a, dim=-1)
    matrix = torch.stack([a, b, torch.linalg.cross(a, b)], -1)
    return (matrix @ x[:, 6:, None]).squeeze(-1)


def haar(x):
    """A wavelet transform, its small parts cut off, and back."""
    low, high = (x[..., ::2] + x[..., 1::2]) / 2, (x[..., ::2] - x[..., 1::2]) / 2
    high = F.softshrink(high, 0.2)
    return torch.stack([low + high, low - high], -1).flatten(-2)


def pitch(x):
    """Autocorrelation of windows of a signal."""
    frames = x.unfold(-1, 16, 8) * torch.hann_window(16, periodic=False)
    lags = torch.stack([(frames[..., : 16 - n] * frames[..., n:]).sum(-1) for n in range(6)], -1)
    return lags / (lags[..., :1] + 1e-3)


def detected(x):
    """Boxes of a grid, as YOLO's older heads decode them."""
    b, _, h, w = x.shape
    x = x.view(b, 2, 6, h, w).permute(0, 1, 3, 4, 2)
    rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    grid = torch.stack([columns, rows], -1).to(x)
    anchors = torch.tensor([[1.5, 2.0], [3.0, 1.0]])[None, :, None, None]
    centre, size = (x[..., :2].sigmoid() + grid) * 8, x[..., 2:4].clamp(max=4).exp() * anchors
    return torch.cat([centre - size / 2, centre + size / 2, x[..., 4:].sigmoid()], -1).flatten(1, 3)


def sentence(x, mask):
    """Mean and maximum over words that are there, by a mask of whole numbers."""
    kept = mask.unsqueeze(-1).expand_as(x).float()
    mean = (x * kept).sum(1) / kept.sum(1).clamp(min=1e-9)
    return F.normalize(mean), x.masked_fill(mask[..., None] == 0, -1e4).amax(1)


def filtered(state, spread, seen):
    """A Kalman filter of two numbers, its inverse written out."""
    moved = torch.tensor([[1.0, 0.5], [0.0, 1.0]])
    state, spread = state @ moved.T, moved @ spread @ moved.T + 0.1 * torch.eye(2)
    a, b, c, d = (spread + 0.5 * torch.eye(2)).flatten(-2).unbind(-1)
    inverse = (
        torch.stack([d, -b, -c, a], -1).unflatten(-1, (2, 2)) / (a * d - b * c)[..., None, None]
    )
    gain = spread @ inverse
    return state + ((seen - state)[..., None, :] @ gain.mT).squeeze(-2), spread - gain @ spread


def products(a, b):
    outer = torch.einsum("...i,...j->...ij", a, b)
    picked = outer[..., torch.tril_indices(3, 3)[0], torch.tril_indices(3, 3)[1]]
    return (
        torch.kron(a, b),
        torch.tensordot(a, b, dims=([0], [0])),
        torch.diag_embed(picked).sum(-1),
    )


def top_two(router, experts, x):
    """Two of three experts, weighted."""
    weight, places = router(x).softmax(-1).topk(2, -1)
    gates = torch.zeros(len(x), 3).scatter(1, places, weight / weight.sum(-1, keepdim=True))
    made = experts(x).view(len(x), 3, -1)
    return (gates[..., None] * made).sum(1)


def histogram(x):
    """Soft counts of values in bins."""
    centres = torch.linspace(-2, 2, 9)
    return torch.exp(-((x[..., None] - centres) ** 2) / 0.1).mean(-2)


def refined(x):
    """Newton's iteration for a square root of a matrix, as bilinear pooling's normalization."""
    a = x @ x.mT / x.shape[-1]
    trace = a.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None] + 1e-3
    y, z, one = a / trace, torch.eye(a.shape[-1]).expand_as(a), torch.eye(a.shape[-1])
    for _ in range(3):
        t = 0.5 * (3 * one - z @ y)
        y, z = y @ t, t @ z
    return y * trace.sqrt()


CASES = {
    "capsules, routed": (Capsules, lambda: (r(1, 6, 5),)),
    "Runge-Kutta": (Ode, lambda: (r(2, 4),)),
    "pooling undone": (SegNet, lambda: (r(1, 2, 8, 8),)),
    "encoder and decoder": (Transformer, lambda: (r(1, 5, 8), r(1, 4, 8))),
    "learned queries, weights out": (Perceiver, lambda: (r(1, 7, 6),)),
    "recurrence with a projection": (SmallLstm, lambda: (r(1, 3, 4),)),
    "style of another picture": (Modulated, lambda: (r(1, 3, 8, 8), r(1, 3, 8, 8))),
    "three dimensions": (Volumes, lambda: (r(1, 1, 6, 8, 8),)),
    "cosines": (Cosines, lambda: (r(2, 6),)),
    "bags of words": (Bags, lambda: (torch.randint(0, 32, (2, 5)),)),
    "involution": (lambda: Of(involution, nn.Conv2d(4, 9, 1)), lambda: (r(1, 4, 6, 6),)),
    "spatial transformer": (lambda: Of(transformed, nn.Linear(2, 6)), lambda: (r(1, 2, 8, 8),)),
    "k-means": (lambda: Of(clustered), lambda: (r(8, 2), r(3, 2))),
    "rotation of six numbers": (lambda: Of(rotation), lambda: (r(2, 9),)),
    "wavelets": (lambda: Of(haar), lambda: (r(2, 16),)),
    "autocorrelation": (lambda: Of(pitch), lambda: (r(1, 64),)),
    "boxes of a grid": (lambda: Of(detected), lambda: (r(1, 12, 4, 4),)),
    "words that are there": (
        lambda: Of(sentence), lambda: (r(2, 5, 4), torch.tensor([[1, 1, 1, 0, 0], [1] * 5]))),
    "Kalman filter": (
        lambda: Of(filtered), lambda: (r(1, 2), torch.eye(2)[None].clone(), r(1, 2))),
    "products of many kinds": (lambda: Of(products), lambda: (r(3), r(3))),
    "two experts of three": (
        lambda: Of(top_two, nn.Linear(6, 3), nn.Linear(6, 12)), lambda: (r(2, 6),)),
    "soft histogram": (lambda: Of(histogram), lambda: (r(2, 20),)),
    "square root of a matrix": (lambda: Of(refined), lambda: (r(1, 4, 12),)),
}  # fmt: skip
