"""Calls on more than six axes are lowered on fewer, and give the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from judges.programs import Function, compiled


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def volumes(x: Tensor) -> Tensor:
    """Windows of 2 × 2 × 2, as video transformers cut them."""
    b, d, h, w, c = x.shape
    cut = x.reshape(b, d // 2, 2, h // 2, 2, w // 2, 2, c)
    return cut.permute(0, 1, 3, 5, 2, 4, 6, 7).reshape(-1, 8, c)


def whole(x: Tensor) -> Tensor:
    cut = x.view(1, 2, 2, 2, 2, 2, 2, 8).permute(0, 1, 4, 2, 5, 3, 6, 7)
    return cut.contiguous().view(1, 4, 4, 4, 8)


def shuffled(x: Tensor) -> Tensor:
    """A pixel shuffle over three axes: seven axes that all change places."""
    return x.view(1, 2, 2, 2, 2, 3, 3, 3).permute(0, 1, 5, 2, 6, 3, 7, 4).reshape(1, 2, 6, 6, 6)


def computed(x: Tensor) -> Tensor:
    y = x.reshape(1, 2, 2, 2, 2, 2, 2).permute(0, 1, 3, 5, 2, 4, 6)
    return (y * 2 + y.amax(-1, keepdim=True)).softmax(-1).mean((1, 3)) + y.sum(2).relu().sum((1, 2))


def unfolded(x: Tensor) -> Tensor:
    return x.unfold(1, 2, 2).unfold(2, 2, 1).unfold(3, 2, 2).contiguous().sum((-1, -2, -3))


def moved(x: Tensor) -> Tensor:
    y = x.reshape(2, 2, 1, 2, 2, 2, 1, 2).movedim(1, -1).transpose(0, 3).swapaxes(1, 4)
    return torch.where(y > 0, y, y.exp()).flatten(1).unsqueeze(0)


CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "windows of volumes": (volumes, (1, 4, 4, 4, 8)),
    "windows put together": (whole, (8, 8, 8)),
    "a pixel shuffle": (shuffled, (1, 16, 3, 3, 3)),
    "computing between": (computed, (1, 4, 4, 4)),
    "unfolding": (unfolded, (1, 4, 4, 4)),
    "moved axes": (moved, (4, 4, 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_float_result_is_pytorchs(name: str) -> None:
    function, shape = CASES[name]
    x = noise(*shape)
    art = compiled(Function(function), (x,))
    assert not art.report.refused
    torch.testing.assert_close(art.run(x), function(x))


@pytest.mark.parametrize(
    ("target", "scheme"), [("TOSA-1.0+INT", "int8"), ("ethos-u55-128", "int8"),
                           ("ethos-u85-256", "a16w8")]
)  # fmt: skip
@pytest.mark.parametrize("name", CASES)
def test_all_of_it_runs_in_integers(name: str, target: str, scheme: str) -> None:
    function, shape = CASES[name]
    x = noise(*shape)
    art = compiled(Function(function), (x,), target, scheme=scheme, calibration=[(x,)])
    assert not art.report.refused
    error = (art.run(x) - function(x)).square().sum()
    assert float(10 * torch.log10(function(x).square().sum() / error)) > 25
