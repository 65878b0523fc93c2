"""A network that tells which quarter of a picture is bright, its data, and metrics."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn


def pictures(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Noise with a bright spot, and the quarter that it is in."""
    drawn = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 1, 8, 8, generator=drawn) * 0.9
    y = torch.randint(0, 4, (count,), generator=drawn)
    for picture, quarter in zip(x, y.tolist()):
        row, column = 4 * (quarter // 2), 4 * (quarter % 2)
        picture[0, row : row + 4, column : column + 4] += 0.1
    return x, y


class Quarters(nn.Module):
    """Sums of quarters through layers that rounding shows in."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.spread = nn.Conv2d(1, 8, 3, padding=1)
        self.gather = nn.Conv2d(8, 1, 3, padding=1)
        self.pool = nn.AvgPool2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(x + 0.3 * self.gather(self.spread(x).relu())).flatten(1)


def model() -> tuple[nn.Module, tuple[Tensor, ...], list[tuple[Tensor, ...]]]:
    x, _ = pictures(17, 1)
    return Quarters().eval(), (x[:1],), [(each,) for each in x[1:].split(1)]


def samples() -> tuple[Tensor, Tensor]:
    return pictures(200)


def stream():  # type: ignore[no-untyped-def]
    yield from zip(*pictures(70))


def margin(output: Tensor, label: int) -> float:
    """How far the right score is from the best of the others."""
    others = torch.cat([output[:label], output[label + 1 :]])
    return float(output[label] - others.max())


def scaled(pixels: np.ndarray) -> Tensor:
    return torch.from_numpy(pixels).float()[None] / 255


def broken(output: Tensor, label: int) -> float:
    raise ValueError("no such thing")


FILE = Path(__file__)
