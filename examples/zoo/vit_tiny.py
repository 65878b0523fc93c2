"""ViT-Tiny (Dosovitskiy et al. 2021, Touvron et al. 2021): a picture's patches as tokens."""

import torch
from torch import Tensor, nn

from .tokens import Block, enliven


class ViT(nn.Module):
    def __init__(
        self, side: int = 64, patch: int = 16, width: int = 192, depth: int = 12, heads: int = 3,
        classes: int = 100,
    ) -> None:  # fmt: skip
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.randn(1, 1, width))  # the token that is read in the end
        self.places = nn.Parameter(0.5 * torch.randn(1, 1 + (side // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads, 4 * width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        first = self.first.expand(x.shape[0], -1, -1)
        tokens = self.blocks(torch.cat([first, patches], 1) + self.places)
        scores: Tensor = self.classifier(self.norm(tokens)[:, 0])
        return scores


def vit_tiny() -> nn.Module:
    return enliven(ViT())
