"""Key-value caches, buffers that change, detections that are kept: what a module remembers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LONGEST, WIDTH = 8, 12


class Cache(nn.Module):
    """Attention of one token over a cache of earlier ones; ``write`` is the style."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("keys", torch.zeros(1, LONGEST, WIDTH))
        self.register_buffer("values", torch.zeros(1, LONGEST, WIDTH))

    def write(self, cache: Tensor, new: Tensor, place: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        query, key, value = self.inward(x).chunk(3, -1)
        keys = self.write(self.keys, key, place)
        values = self.write(self.values, value, place)
        scores = query @ keys.transpose(1, 2) / WIDTH**0.5
        seen = torch.arange(LONGEST) <= place
        scores = scores.masked_fill(~seen, -1e4)
        return x + self.outward(scores.softmax(-1) @ values)


class CacheWhere(Cache):
    def write(self, cache, new, place):
        here = (torch.arange(LONGEST) == place).view(1, LONGEST, 1)
        cache.copy_(torch.where(here, new, cache))
        return cache


class CacheIndexPut(Cache):
    def write(self, cache, new, place):
        cache[:, place] = new
        return cache


class CacheSlice(Cache):
    def write(self, cache, new, place):
        start = place.item()
        torch._check(start >= 0)
        torch._check(start < LONGEST)
        cache[:, start : start + 1] = new
        return cache


class CacheIndexCopy(Cache):
    def write(self, cache, new, place):
        return cache.index_copy_(1, place.view(1), new)


class CacheOneHot(Cache):
    def write(self, cache, new, place):
        here = F.one_hot(place.view(1), LONGEST).to(new.dtype).view(1, LONGEST, 1)
        cache.mul_(1 - here).add_(here * new)
        return cache


class CacheRoll(Cache):
    def write(self, cache, new, place):
        cache.copy_(torch.roll(cache, -1, 1))
        cache[:, -1:] = new
        return cache


class CacheReturned(nn.Module):
    """The cache comes in and goes out, as exported language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x, past):
        query, key, value = self.inward(x).chunk(3, -1)
        keys, values = torch.cat([past[0], key], 1), torch.cat([past[1], value], 1)
        out = F.scaled_dot_product_attention(query, keys, values)
        return out, (keys[:, 1:], values[:, 1:])


class Counter(nn.Module):
    """A moving average and a count of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        self.mean = self.mean * 0.9 + x.mean(0) * 0.1
        return x - self.mean


class DelayLine(nn.Module):
    """A causal convolution that keeps the last samples."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 6, 5)
        self.register_buffer("tail", torch.zeros(1, 4, 4), persistent=False)

    def forward(self, x):
        whole = torch.cat([self.tail, x], -1)
        self.tail.copy_(whole[..., -4:])
        return self.conv(whole).relu()


class StatefulGru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(6, 8)
        self.register_buffer("hidden", torch.zeros(1, 8))

    def forward(self, x):
        self.hidden.copy_(self.cell(x, self.hidden))
        return self.hidden * 2


def overlap(boxes: Tensor, box: Tensor) -> Tensor:
    low = torch.maximum(boxes[:, :2], box[:2])
    high = torch.minimum(boxes[:, 2:], box[2:])
    both = (high - low).clamp(min=0).prod(-1)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    return both / (area + (box[2:] - box[:2]).prod() - both + 1e-6)


class NmsLoop(nn.Module):
    """The best of the rest, a fixed number of times."""

    def forward(self, boxes, scores):
        kept = []
        for _ in range(3):
            best = scores.argmax()
            box = boxes[best]
            kept.append(torch.cat([box, scores[best].view(1)]))
            scores = torch.where(overlap(boxes, box) > 0.5, torch.zeros_like(scores), scores)
        return torch.stack(kept)


class NmsMatrix(nn.Module):
    """Every pair at once, as SOLO's matrix NMS does."""

    def forward(self, boxes, scores):
        order = scores.argsort(descending=True)
        boxes, scores = boxes[order], scores[order]
        pairs = torch.stack([overlap(boxes, boxes[i]) for i in range(boxes.shape[0])])
        worst = pairs.triu(1).amax(0)
        return scores * (1 - worst)


class NmsMaxPool(nn.Module):
    """Peaks of a heat map, as CenterNet's."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 2, 3, padding=1)

    def forward(self, x):
        heat = self.head(x).sigmoid()
        peaks = heat * (F.max_pool2d(heat, 3, 1, 1) == heat)
        scores, places = peaks.flatten(1).topk(4)
        return scores, places % 8, places // 8


class NmsDynamic(nn.Module):
    """As many as there are above a threshold: no size is known."""

    def forward(self, boxes, scores):
        return boxes[scores > 0.5]


def token() -> tuple[Tensor, Tensor]:
    return torch.randn(1, 1, WIDTH), torch.tensor(3)


def boxes() -> tuple[Tensor, Tensor]:
    corner = torch.rand(6, 2)
    return torch.cat([corner, corner + 0.2 + torch.rand(6, 2) * 0.3], 1), torch.rand(6)


CASES = {
    "cache: torch.where on a mask": (CacheWhere, token),
    "cache: index_put": (CacheIndexPut, token),
    "cache: a slice at item()": (CacheSlice, token),
    "cache: index_copy_": (CacheIndexCopy, token),
    "cache: one-hot arithmetic": (CacheOneHot, token),
    "cache: rolled": (CacheRoll, token),
    "cache: in and out as a tuple": (
        CacheReturned,
        lambda: (torch.randn(1, 1, WIDTH), (torch.randn(1, 7, WIDTH), torch.randn(1, 7, WIDTH))),
    ),
    "state: moving average and count": (Counter, lambda: (torch.randn(4, 6),)),
    "state: causal convolution": (DelayLine, lambda: (torch.randn(1, 4, 3),)),
    "state: GRU cell": (StatefulGru, lambda: (torch.randn(1, 6),)),
    "NMS: loop of argmax": (NmsLoop, boxes),
    "NMS: matrix": (NmsMatrix, boxes),
    "NMS: max pooling": (NmsMaxPool, lambda: (torch.randn(1, 3, 8, 8),)),
    "NMS: boolean mask": (NmsDynamic, boxes),
}
