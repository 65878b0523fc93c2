"""SqueezeNet 1.1 (Iandola et al. 2016): fire modules, concatenation, pools that round up."""

import torch
from torch import Tensor, nn


class Fire(nn.Module):
    def __init__(self, cin: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Conv2d(cin, squeezed, 1), nn.ReLU(inplace=True))
        self.one = nn.Sequential(nn.Conv2d(squeezed, expanded, 1), nn.ReLU(inplace=True))
        self.three = nn.Sequential(
            nn.Conv2d(squeezed, expanded, 3, padding=1), nn.ReLU(inplace=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.squeeze(x)
        return torch.cat([self.one(y), self.three(y)], 1)


class SqueezeNet(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 3, 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(64, 16, 64),
            Fire(128, 16, 64),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(128, 32, 128),
            Fire(256, 32, 128),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(256, 48, 192),
            Fire(384, 48, 192),
            Fire(384, 64, 256),
            Fire(512, 64, 256),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(0.5), nn.Conv2d(512, classes, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.classifier(self.features(x))
        return y.flatten(1)
