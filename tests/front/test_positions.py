"""Positions that are known only when a program runs: caches in every style, gathers, NMS loops."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import tosaic

TARGETS = ("TOSA-1.0+FP", "TOSA-1.0+INT", "ethos-u55-128", "ethos-u85-256")
LENGTH, WIDTH = 6, 8


class Cache(nn.Module):
    """Keeps a key for each position, and scores a query with all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("keys", torch.zeros(1, LENGTH, WIDTH))
        self.register_buffer("places", torch.arange(LENGTH))

    def scores(self, x):
        return (self.keys * x.unsqueeze(1)).sum(-1)


class ByMask(Cache):
    def forward(self, x, at):
        new = self.key(x).unsqueeze(1)
        self.keys.copy_(torch.where((self.places == at).view(1, -1, 1), new, self.keys))
        return self.scores(x)


class BySubscript(Cache):
    def forward(self, x, at):
        self.keys[:, at] = self.key(x)
        return self.scores(x)


class ByIndexCopy(Cache):
    def forward(self, x, at):
        self.keys.index_copy_(1, at.reshape(1), self.key(x).unsqueeze(1))
        return self.scores(x)


class BySlice(Cache):
    def forward(self, x, at):
        start = at.item()
        torch._check(start >= 0)
        torch._check(start < LENGTH)
        self.keys[:, start : start + 1] = self.key(x).unsqueeze(1)
        return self.scores(x)


class ByScatter(Cache):
    def forward(self, x, at):
        index = at.reshape(1, 1, 1).expand(1, 1, WIDTH)
        self.keys.copy_(self.keys.scatter(1, index, self.key(x).unsqueeze(1)))
        return self.scores(x)


class ByShift(Cache):
    def forward(self, x, at):
        self.keys.copy_(torch.cat([self.keys[:, 1:], self.key(x).unsqueeze(1)], 1))
        return self.scores(x) + 0 * at


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "style", [ByMask, BySubscript, ByIndexCopy, BySlice, ByScatter, ByShift]
)  # fmt: skip
def test_a_cache_of_any_style_follows_pytorch_step_by_step(style, target):
    torch.manual_seed(0)
    net = style().eval()
    steps = [(torch.randn(1, WIDTH), torch.tensor(n % LENGTH)) for n in range(2 * LENGTH)]
    art = tosaic.compile(copy.deepcopy(net), steps[0], target=target, calibration=steps)
    if target != "TOSA-1.0+FP":  # where integers are computed on the CPU
        assert not art.report.refused
    ours = torch.stack([art.run(*step) for step in steps])
    with torch.no_grad():
        real = torch.stack([net(*step) for step in steps])
    assert (ours - real).abs().max() <= 0.12 * real.abs().max()
    tolerance = 1e-5 if target.endswith("FP") else 0.05
    assert (ours - real).square().mean().sqrt() <= tolerance * real.square().mean().sqrt() + 1e-6


class Reads(nn.Module):
    """A way to read or write at a position."""

    def __init__(self, way) -> None:
        super().__init__()
        self.way = way

    def forward(self, x, at):
        return self.way(x, at)


def _written(x, *index, value=0.5):
    made = x.clone()
    made[index] = value
    return made


WAYS = {
    "x[i]": lambda x, i: x[i],
    "x[i + 1]": lambda x, i: x[i + 1],
    "x[:, i]": lambda x, i: x[:, i],
    "x[..., i]": lambda x, i: x[..., i],
    "x[i, 2]": lambda x, i: x[i, 2] + x,
    "x[i, :, None]": lambda x, i: x[i, :, None] + x[None, 1:, i],
    "x[i, i]": lambda x, i: x[i, i] * x,
    "x[int(i)]": lambda x, i: x[int(i)],
    "item and select": lambda x, i: x.select(0, i.item()),
    "narrow": lambda x, i: torch.narrow(x, 0, i, 2),
    "x[argmax]": lambda x, i: x[x.sum(1).argmax()] + 0 * i,
    "x[i] = number": lambda x, i: _written(x, i),
    "x[:, i] = tensor": lambda x, i: _written(x, slice(None), i, value=x[:, 0]),
    "x[i, 1:3] = tensor": lambda x, i: _written(x, i, slice(1, 3), value=x[0, :2]),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_tensor_of_no_axes_is_a_position(way):
    torch.manual_seed(0)
    net, x = Reads(WAYS[way]), torch.randn(5, 5)
    sets = [(x, torch.tensor(n)) for n in range(4)]
    art = tosaic.compile(net, sets[0], target="TOSA-1.0+INT", calibration=sets)
    assert not art.report.refused
    for given in sets:
        ours, real = art.run(*given), net(*given)
        assert ours.shape == real.shape
        assert (ours - real).abs().max() <= 0.04 * x.abs().max() * 2


class Suppression(nn.Module):
    """Greedy non-maximum suppression of one axis: the best box, and nothing near it, thrice."""

    def forward(self, boxes):
        kept = []
        for _ in range(3):
            best = boxes[boxes[:, 0].argmax()]
            kept.append(best)
            near = (boxes[:, 1] - best[1]).abs() < 0.5
            boxes = torch.where(near[:, None], torch.full_like(boxes, -4.0), boxes)
        return torch.stack(kept)


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_of_argmax_and_subscript_runs_whole(target):
    torch.manual_seed(1)
    sets = [(torch.randn(9, 4),) for _ in range(8)]
    art = tosaic.compile(Suppression(), sets[0], target=target, calibration=sets)
    assert not art.report.refused
    assert (art.run(*sets[0]) - Suppression()(*sets[0])).abs().max() < 0.05


def test_a_module_is_left_with_the_forward_that_it_had():
    net = BySubscript()
    own = net.forward
    tosaic.compile(net, (torch.randn(1, WIDTH), torch.tensor(1)), target="TOSA-1.0+FP")
    assert "forward" not in vars(net)
    net.forward = own
    tosaic.compile(net, (torch.randn(1, WIDTH), torch.tensor(1)), target="TOSA-1.0+FP")
    assert vars(net)["forward"] == own
