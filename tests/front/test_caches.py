"""Key-value caches: buffers that every call writes to at a place, in each way that users write."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from judges.programs import FLOAT, INTEGER, check, compiled

# torch says this of its own code, when a program is copied or decomposed.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")

LONGEST, WIDTH, HEADS = 8, 24, 3


def by_index_copy(cache: Tensor, new: Tensor, place: Tensor) -> None:
    cache.index_copy_(2, place, new)


def by_index_put(cache: Tensor, new: Tensor, place: Tensor) -> None:
    cache[:, :, place] = new


def by_scatter(cache: Tensor, new: Tensor, place: Tensor) -> None:
    cache.scatter_(2, place.view(1, 1, 1, 1).expand_as(new), new)


def by_choice(cache: Tensor, new: Tensor, place: Tensor) -> None:
    here = (torch.arange(LONGEST) == place).view(1, 1, LONGEST, 1)
    cache.copy_(torch.where(here, new, cache))


def by_window(cache: Tensor, new: Tensor, place: Tensor) -> None:
    """The last ones are kept, the newest at the end."""
    cache.copy_(torch.cat([cache[:, :, 1:], new], 2))


WRITES = [by_index_copy, by_index_put, by_scatter, by_choice, by_window]


class Cached(nn.Module):
    def __init__(self, write: Any) -> None:
        super().__init__()
        self.write = write
        self.inward, self.outward = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, HEADS, LONGEST, WIDTH // HEADS))

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        query, key, value = (
            part.view(1, 1, HEADS, -1).transpose(1, 2) for part in self.inward(x).chunk(3, -1)
        )
        self.write(self.keys, key, place)
        self.write(self.values, value, place)
        seen = torch.arange(LONGEST) <= place
        if self.write is by_window:
            seen = torch.arange(LONGEST - 1, -1, -1) <= place
        mixed = F.scaled_dot_product_attention(query, self.keys, self.values, seen[None])
        return self.outward(mixed.transpose(1, 2).flatten(2))


def cached(write: Any) -> nn.Module:
    torch.manual_seed(5)
    return Cached(write).eval()


def steps(count: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    make = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(1, 1, WIDTH, generator=make), torch.tensor([place % LONGEST]))
        for place in range(count)
    ]


@pytest.mark.parametrize("write", WRITES, ids=lambda f: f.__name__)
def test_a_cache_in_float_is_what_pytorch_has_after_every_step(write: Any) -> None:
    target = FLOAT if write in (by_index_copy, by_index_put) else f"{FLOAT}+INT"
    art = check(cached(write), *steps(LONGEST, 1), target=target)
    assert set(art.state) == {"keys", "values"}


@pytest.mark.parametrize(("write", "target"), [
    *((write, INTEGER) for write in WRITES),
    *((write, "ethos-u55-128") for write in (by_index_copy, by_choice, by_window)),
    *((write, "ethos-u85-256") for write in (by_index_put, by_scatter)),
], ids=lambda part: getattr(part, "__name__", part))  # fmt: skip
def test_a_cache_in_int8_follows_pytorch_step_by_step(write: Any, target: str) -> None:
    net = cached(write)
    art = compiled(net, steps(1, 1)[0], target, calibration=steps(3 * LONGEST, 2))
    assert not art.report.refused, art.report
    noise = power = 0.0
    for x, place in steps(LONGEST, 3):
        with torch.no_grad():
            real = net(x, place)
        got = art.run(x, place)
        noise += float((got - real).square().sum())
        power += float(real.square().sum())
    assert noise < 2e-3 * power
    assert (art.state["keys"] - net.keys).abs().max() < 0.05 * net.keys.abs().max()
    assert len(art.state["keys"].unique()) > 60


class Prefilled(nn.Module):
    """Several tokens at once, written to the first places; the rest is left."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("keys", torch.ones(1, LONGEST, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        self.keys[:, : x.shape[1]] = self.key(x)
        return (x @ self.keys.transpose(1, 2)).softmax(-1)


@pytest.mark.parametrize("target", [FLOAT, INTEGER, "ethos-u55-128"])
def test_a_slice_of_a_cache_is_written(target: str) -> None:
    torch.manual_seed(6)
    net, example = Prefilled().eval(), (torch.randn(1, 5, WIDTH),)
    if target == FLOAT:
        check(net, example)
        return
    data = [(torch.randn(1, 5, WIDTH),) for _ in range(8)]
    art = compiled(net, example, target, calibration=data)
    assert not art.report.refused, art.report
    with torch.no_grad():
        real = net(*example)
    assert (art.run(*example) - real).abs().max() < 0.05
    assert (art.state["keys"] - net.keys).abs().max() < 0.1
