"""A classifier that thinks longer where it is in doubt (BranchyNet, Teerapittayanon et al. 2016).

The first layers have a classifier of their own; only where it is unsure the deep ones run, in a
branch of ``torch.cond``.
"""

import torch
from torch import Tensor, nn

from .layers import conv_bn


class EarlyExit(nn.Module):
    def __init__(self, classes: int = 10, width: int = 16, sure: float = 0.5) -> None:
        super().__init__()
        self.sure = sure
        self.stem = nn.Sequential(conv_bn(3, width, 3, 2), conv_bn(width, 2 * width, 3, 2))
        self.exit = nn.Linear(2 * width, classes)
        self.deep = nn.Sequential(
            nn.Conv2d(2 * width, 4 * width, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(4 * width, 4 * width, 3, 1, 1), nn.ReLU(),
        )  # fmt: skip
        self.classifier = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        features = self.stem(x)
        early = self.exit(features.mean((2, 3)))
        is_sure = torch.softmax(early, 1).amax() > self.sure

        def answer(features: Tensor, early: Tensor) -> tuple[Tensor]:
            return (early.clone(),)

        def think(features: Tensor, early: Tensor) -> tuple[Tensor]:
            deep = self.deep(features).mean((2, 3))
            return (0.5 * early + self.classifier(deep),)

        (logits,) = torch.cond(is_sure, answer, think, (features, early))
        return logits


def early_exit() -> nn.Module:
    return EarlyExit()
