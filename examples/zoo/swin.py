"""Two blocks of Swin (Liu et al. 2021): attention within windows, then within shifted windows."""

import torch
from torch import Tensor, nn

from .tokens import Attention, FeedForward, enliven


def windows(x: Tensor, size: int) -> Tensor:
    """[N, H, W, C] as [N · windows, size², C]."""
    n, h, w, c = x.shape
    split = x.view(n, h // size, size, w // size, size, c)
    return split.permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, c)


def picture(x: Tensor, size: int, h: int, w: int) -> Tensor:
    """Windows as the picture that they were cut from."""
    split = x.view(-1, h // size, w // size, size, size, x.shape[-1])
    return split.permute(0, 1, 3, 2, 4, 5).reshape(-1, h, w, x.shape[-1])


def apart(side: int, size: int, shift: int) -> Tensor:
    """−100 between places of a window that were no neighbours before the shift."""
    region = torch.zeros(1, side, side, 1)
    edges = (slice(0, -size), slice(-size, -shift), slice(-shift, None))
    for row, rows in enumerate(edges):
        for column, columns in enumerate(edges):
            region[:, rows, columns] = 3 * row + column
    cut = windows(region, size).squeeze(-1)
    differs = cut[:, None, :, None] != cut[:, None, None, :]
    return torch.where(differs, -100.0, 0.0)  # [windows, 1, size², size²]


class WindowBlock(nn.Module):
    def __init__(self, side: int, width: int, heads: int, size: int, shift: int) -> None:
        super().__init__()
        self.size, self.shift = size, shift
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width, heads)
        self.forwards = FeedForward(width, 4 * width)
        self.offsets = nn.Parameter(torch.randn((2 * size - 1) ** 2, heads))
        place = torch.stack(torch.meshgrid(*2 * [torch.arange(size)], indexing="ij")).flatten(1)
        apart_by = place[:, :, None] - place[:, None] + size - 1
        self.register_buffer("between", apart_by[0] * (2 * size - 1) + apart_by[1])
        self.register_buffer("apart", apart(side, size, shift) if shift else None)

    def forward(self, x: Tensor) -> Tensor:
        _, h, w, _ = x.shape
        y = self.norms[0](x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        mask = self.offsets[self.between].permute(2, 0, 1)[None]
        if self.apart is not None:
            mask = mask + self.apart
        y = picture(self.attention(windows(y, self.size), mask), self.size, h, w)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.forwards(self.norms[1](x))


class Swin(nn.Module):
    """Patches, a block in windows, one in shifted windows, and four places merged into one."""

    def __init__(self, side: int = 8, width: int = 48, heads: int = 3, size: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(
            WindowBlock(side, width, heads, size, 0),
            WindowBlock(side, width, heads, size, size // 2),
        )
        self.merge = nn.Sequential(
            nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.norm(self.patches(x).permute(0, 2, 3, 1)))
        corners = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        y: Tensor = self.merge(torch.cat(corners, -1))
        return y


def swin() -> nn.Module:
    return enliven(Swin())
