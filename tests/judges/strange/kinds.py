"""Modules of rarer kinds: streams, sets, integers, far sizes, layers that people wrote by hand."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from judges.strange.arithmetic import Of, r


class BatchOutput(dict):  # type: ignore[type-arg]
    """An output as Hugging Face's ``ModelOutput``: a dict whose keys are attributes."""

    def __getattr__(self, name: str) -> Tensor:
        return self[name]


torch.utils._pytree.register_pytree_node(
    BatchOutput,
    lambda out: (list(out.values()), list(out)),
    lambda values, names: BatchOutput(zip(names, values)),
    serialized_type_name="judges.BatchOutput",
)


class OwnOutput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x, labels=None, return_dict=True, **unknown):
        hidden = self.body(x).relu()
        out = BatchOutput(logits=self.head(hidden), hidden=hidden)
        return out if return_dict else tuple(out.values())


class LowRank(nn.Module):
    """LoRA as a parametrization, on a layer whose weight is tied to another's."""

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(r(8, 2) / 4), nn.Parameter(r(2, 8) / 4)

        def forward(self, weight):
            return weight + self.a @ self.b

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.second.weight = self.first.weight
        parametrize.register_parametrization(self.first, "weight", self.Sum())
        parametrize.register_parametrization(self.second, "weight", nn.Tanh(), unsafe=True)

    def forward(self, x):
        return self.second(self.first(x).relu()) + x


class RingBuffer(nn.Module):
    """The last eight rows in a ring, and where it begins, both as buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ring", torch.zeros(8, 4))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))
        self.layer = nn.Linear(32, 4)

    def forward(self, x):
        self.ring[self.place] = x[0]
        self.place.copy_((self.place + 1) % 8)
        order = (torch.arange(8) + self.place) % 8
        return self.layer(self.ring[order].reshape(1, -1))


class Quantizer(nn.Module):
    """Integers through and through, as a decoder of audio samples: companding by hand."""

    def forward(self, code):
        magnitude = 255 - code.to(torch.int32)
        sign = torch.where(magnitude >= 128, -1, 1).to(torch.int32)
        low, high = (magnitude % 128) & 15, ((magnitude % 128) >> 4) & 7
        return sign * ((((low << 3) + 132) << high) - 132)


class Checksum(nn.Module):
    def forward(self, words):
        folded = words ^ (words >> 4)
        return (folded * 31 % 251).sum(-1), (folded & 1).bool().any(-1), folded.argmax(-1)


class Experts(nn.Module):
    """Modules kept in a dict of lists, chosen by a name that a property computes."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = nn.ModuleDict(
            {name: nn.ModuleList([nn.Linear(6, 6) for _ in range(2)]) for name in ("a", "b-c")}
        )
        self.scales = nn.ParameterDict({"a": nn.Parameter(r(6)), "b-c": nn.Parameter(r(()))})
        self.shifts = nn.ParameterList([r(6), r(1)])

    @property
    def names(self):
        return sorted(self.groups)

    @functools.cached_property
    def count(self):
        return len(self.groups)

    def forward(self, x):
        for name in self.names:
            for layer, shift in zip(self.groups[name], self.shifts):
                x = x + layer(x) * self.scales[name] + shift
        return x / self.count


class Nested(nn.Module):
    """Forty modules within one another."""

    def __init__(self, depth: int = 40) -> None:
        super().__init__()
        self.inner = Nested(depth - 1) if depth else nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x)


class Tree(NamedTuple):
    left: Tensor
    right: tuple[Tensor, dict[str, Tensor]]


class InTree(nn.Module):
    def forward(self, tree, *rest, scale: float = 2.0):
        right, named = tree.right
        return Tree(tree.left * scale, (right + sum(rest), {"max": named["x"].amax()}))


class Shared(nn.Module):
    """One module under three names, called with several shapes and in two orders."""

    def __init__(self) -> None:
        super().__init__()
        self.a = self.b = nn.Linear(6, 6)
        self.both = nn.Sequential(self.a, nn.ReLU(), self.b)

    def forward(self, x):
        return self.both(x) + self.b(x[:1]) + self.a(x.mean(0))


class Ensemble(nn.Module):
    """Several networks as one, with stacked weights and ``functional_call``."""

    def __init__(self) -> None:
        super().__init__()
        nets = [nn.Linear(6, 3) for _ in range(3)]
        self.base = nn.Linear(6, 3)
        self.weight = nn.Parameter(torch.stack([n.weight.detach() for n in nets]))
        self.bias = nn.Parameter(torch.stack([n.bias.detach() for n in nets]))

    def forward(self, x):
        def one(weight, bias):
            return torch.func.functional_call(self.base, {"weight": weight, "bias": bias}, (x,))

        return torch.vmap(one)(self.weight, self.bias).mean(0)


class ChannelsLast(nn.Module):
    """Memory formats asked for in the middle, and strides looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 6, 3, stride=2).to(memory_format=torch.channels_last)

    def forward(self, x):
        y = self.conv(x.contiguous(memory_format=torch.channels_last))
        return y.permute(0, 2, 3, 1).contiguous().view(y.shape[0], -1, y.shape[1])


class Wavenet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(4, 8, 2, dilation=2**n) for n in range(3)])
        self.skip = nn.ModuleList([nn.Conv1d(4, 4, 1) for _ in range(3)])

    def forward(self, x):
        total = 0
        for layer, skip in zip(self.layers, self.skip):
            tanh, gate = layer(F.pad(x, (layer.dilation[0], 0))).chunk(2, 1)
            x = x + (y := torch.tanh(tanh) * torch.sigmoid(gate))
            total = total + skip(y)
        return total


def windows(x):  # Swin's: b (h w1) (w w2) c -> (b h w) (w1 w2) c, rolled and masked
    b, h, w, c = x.shape
    x = torch.roll(x, (-1, -1), (1, 2)).view(b, h // 2, 2, w // 2, 2, c)
    rows = x.permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
    shares = (rows @ rows.mT / math.sqrt(c)).masked_fill(torch.eye(4).bool(), -1e4).softmax(-1)
    back = (shares @ rows).view(b, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5)
    return torch.roll(back.reshape(b, h, w, c), (1, 1), (1, 2))


def space_to_depth(x):
    return F.pixel_shuffle(F.pixel_unshuffle(x, 2) * 0.5, 2) + x.unflatten(1, (2, 2)).amax(2).mean()


def suppressed(boxes, scores):  # greedy, without a branch: each box in the order of its score
    order = scores.argsort(descending=True)
    x1, y1, x2, y2 = boxes[order].unbind(-1)
    wide = (torch.minimum(x2[:, None], x2) - torch.maximum(x1[:, None], x1)).clamp(min=0)
    high = (torch.minimum(y2[:, None], y2) - torch.maximum(y1[:, None], y1)).clamp(min=0)
    area = (x2 - x1) * (y2 - y1)
    covers = wide * high / (area[:, None] + area - wide * high) > 0.5
    keep = torch.ones_like(scores, dtype=torch.bool)
    for i in range(scores.shape[0]):
        above = torch.arange(scores.shape[0]) < i
        keep = keep & ~((covers[i] & above & keep).any() & (torch.arange(scores.shape[0]) == i))
    return torch.where(keep, scores[order], torch.zeros(()))


def beam(logits):  # the two best paths of three steps
    best, paths = torch.zeros(1), torch.zeros(1, 0, dtype=torch.long)
    for step in range(logits.shape[0]):
        total = best[:, None] + logits[step].log_softmax(-1)
        best, flat = total.flatten().topk(2)
        width = logits.shape[-1]
        paths = torch.cat([paths[flat // width], (flat % width)[:, None]], 1)
    return best, paths


def viterbi(x, moves):
    score, back = x[0], []
    for step in x[1:]:
        found = (score[:, None] + moves).max(0)
        score, back = found.values + step, [*back, found.indices]
    place, path = score.argmax(), []
    for row in reversed(back):
        place = row[place]
        path.append(place)
    return torch.stack(path), score


def sinkhorn(x):
    plan = x.exp()
    for _ in range(4):
        plan = plan / plan.sum(-1, keepdim=True)
        plan = plan / plan.sum(-2, keepdim=True)
    return plan


def chamfer(a, b):
    apart = torch.cdist(a, b)
    return apart.amin(-1).mean(-1) + apart.amin(-2).mean(-1), apart.argmin(-1)


def polar(x):
    z = torch.complex(x[..., 0], x[..., 1])
    turned = z * torch.polar(torch.ones(4), torch.arange(4) * 0.5)
    return torch.view_as_real(turned), turned.abs(), turned.angle()


def lengths(x, sizes):  # what a packed sequence is for, with a mask
    inside = torch.arange(x.shape[1]) < sizes[:, None]
    total = (x * inside[..., None]).sum(1) / sizes[:, None].clamp(min=1)
    return total, x.masked_fill(~inside[..., None], -math.inf).amax(1)


def scattered(x, places):
    total = torch.zeros(x.shape[0], 5).scatter_add(1, places, x)
    best = torch.zeros(x.shape[0], 5).scatter_reduce(1, places, x, "amax", include_self=False)
    return total, best, x.gather(1, places.clamp(max=x.shape[1] - 1))


def statistics(x):
    spread, mean = torch.var_mean(x, -1, correction=0)
    return torch.stack([mean, spread.sqrt(), x.quantile(0.5, -1), x.norm(3, -1)], -1)


def one_hot_path(token, table):
    return F.one_hot(token, 7).float() @ table, F.embedding(token.flip(-1), table).prod(1)


def zero_axes(x):
    total = x.sum()
    return total, total.view(1), x[0, 0] * 2, torch.stack([total, x.max()]).softmax(0)[1]


def bilinear(layer, x, y):
    return layer(x, y), torch.einsum("bi,bj,ij->b", x, y, layer.weight[0]), torch.kron(x, y)


def bucketed(x):
    edges = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0])
    return torch.bucketize(x, edges), torch.searchsorted(edges, x, right=True)


def blur(x):
    kernel = torch.tensor([1.0, 4, 6, 4, 1]) / 16
    flat = x.reshape(-1, 1, *x.shape[-2:])
    rows = F.conv2d(F.pad(flat, (2, 2, 2, 2), mode="reflect"), kernel.view(1, 1, 1, 5))
    return F.conv2d(rows, kernel.view(1, 1, 5, 1)).view_as(x)


def folded_time(layer, x):
    b, t = x.shape[:2]
    return layer(x.flatten(0, 1)).unflatten(0, (b, t)).amax(1)


def straight_through(x):
    hard = (x > 0).float()
    soft = x.sigmoid()
    return hard + soft - soft.detach(), torch.heaviside(x, torch.tensor(0.5)), x.sign() * x.abs()


def boxes() -> tuple[Tensor, Tensor]:
    corner = torch.rand(5, 2)
    return torch.cat([corner, corner + 0.3 + torch.rand(5, 2) * 0.3], 1), torch.rand(5)


CASES = {
    "output of one's own, unknown keywords": (OwnOutput, lambda: (r(2, 6),)),
    "low rank parametrization of tied weights": (LowRank, lambda: (r(2, 8),)),
    "ring buffer": (RingBuffer, lambda: (r(1, 4),)),
    "companded integers": (Quantizer, lambda: (torch.randint(0, 256, (2, 9)).to(torch.int32),)),
    "integers folded": (Checksum, lambda: (torch.randint(0, 200, (3, 5)).to(torch.int32),)),
    "modules in dicts of lists": (Experts, lambda: (r(2, 6),)),
    "forty modules deep": (Nested, lambda: (r(2, 4),)),
    "trees in and out": (
        InTree, lambda: (Tree(r(2, 3), (r(2, 3), {"x": r(4)})), r(2, 3), r(1, 3))),
    "one module, three names": (Shared, lambda: (r(2, 6),)),
    "ensemble by functional_call": (Ensemble, lambda: (r(2, 6),)),
    "channels last": (
        ChannelsLast, lambda: (r(1, 4, 9, 9).contiguous(memory_format=torch.channels_last),)),
    "dilated gates": (Wavenet, lambda: (r(1, 4, 16),)),
    "shifted windows": (lambda: Of(windows), lambda: (r(1, 4, 4, 8),)),
    "pixels shuffled": (lambda: Of(space_to_depth), lambda: (r(1, 4, 4, 4),)),
    "NMS: greedy without a branch": (lambda: Of(suppressed), boxes),
    "beam search": (lambda: Of(beam), lambda: (r(3, 5),)),
    "Viterbi": (lambda: Of(viterbi), lambda: (r(4, 3), r(3, 3))),
    "Sinkhorn": (lambda: Of(sinkhorn), lambda: (r(1, 4, 4),)),
    "chamfer distance": (lambda: Of(chamfer), lambda: (r(1, 5, 3), r(1, 6, 3))),
    "complex: polar": (lambda: Of(polar), lambda: (r(2, 4, 2),)),
    "lengths as a mask": (lambda: Of(lengths), lambda: (r(2, 5, 3), torch.tensor([5, 3]))),
    "scattered and gathered": (
        lambda: Of(scattered), lambda: (r(2, 6), torch.randint(0, 5, (2, 6)))),
    "statistics": (lambda: Of(statistics), lambda: (r(3, 9),)),
    "one-hot beside a lookup": (
        lambda: Of(one_hot_path), lambda: (torch.randint(0, 7, (2, 3)), r(7, 4))),
    "no axes": (lambda: Of(zero_axes), lambda: (r(3, 4),)),
    "bilinear forms": (lambda: Of(bilinear, nn.Bilinear(3, 4, 2)), lambda: (r(2, 3), r(2, 4))),
    "buckets": (lambda: Of(bucketed), lambda: (r(2, 6),)),
    "constant kernels, reflected": (lambda: Of(blur), lambda: (r(1, 3, 8, 8),)),
    "time in the batch": (
        lambda: Of(folded_time, nn.Conv2d(2, 3, 3, padding=1)), lambda: (r(1, 4, 2, 6, 6),)),
    "straight through": (lambda: Of(straight_through), lambda: (r(2, 6),)),
    "one channel of 3,000": (lambda: nn.Linear(3000, 1), lambda: (r(1, 3000),)),
    "3,000 channels of one": (lambda: nn.Conv1d(1, 3000, 1), lambda: (r(1, 1, 1),)),
    "a row of 20,000": (
        lambda: nn.Sequential(nn.Conv1d(1, 2, 9, 4), nn.ReLU(), nn.Conv1d(2, 1, 5, 8)),
        lambda: (r(1, 1, 20000),)),
    "one by one by one": (
        lambda: nn.Sequential(nn.Conv3d(1, 2, 1), nn.BatchNorm3d(2), nn.Softmax(1)),
        lambda: (r(1, 1, 1, 1, 1),)),
}  # fmt: skip
