"""Small networks with what makes a device file hard: islands, structures, odd types."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Island(nn.Module):
    """A sort too long for an NPU between two parts for it; nested outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = torch.relu(self.conv(x))
        z, _ = torch.sort(y.flatten(1).repeat(1, 5), dim=1)
        return {"scores": self.head(torch.relu(z[:, ::5]).view(y.shape).mean((2, 3))), "maps": (y,)}


class Plain(nn.Module):
    """Everything runs on an NPU."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.stem(x))
        return self.head((y + torch.relu(self.depthwise(y))).mean((2, 3)))


class Several(nn.Module):
    """Inputs out of order, one that nothing reads, an output twice."""

    def forward(self, a: Tensor, unread: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        total = torch.relu(b) + a
        return total, a - b, total


class Indices(nn.Module):
    """Results that PyTorch holds in 64 bits, and masks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(x)
        return torch.argmax(y, 1), torch.where(mask, y, y * 0.5)


def seeded(net: nn.Module) -> nn.Module:
    """A network with the same weights in every process."""
    torch.manual_seed(11)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.3)
    return net.eval()


def pictures(count: int, size: int = 8, seed: int = 5) -> list[tuple[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(1, 3, size, size, generator=generator),) for _ in range(count)]
