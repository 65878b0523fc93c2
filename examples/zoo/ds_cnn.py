"""DS-CNN (Zhang et al. 2017, "Hello Edge"), small: keyword spotting on 49 frames of 10 MFCCs."""

from torch import Tensor, nn

from .layers import conv_bn


class DSCNN(nn.Module):
    def __init__(self, classes: int = 12, channels: int = 64, blocks: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, channels, (10, 4), (2, 2), (5, 1), bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
        )
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    conv_bn(channels, channels, 3, groups=channels), conv_bn(channels, channels, 1)
                )
                for _ in range(blocks)
            )
        )
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks(self.stem(x))
        logits: Tensor = self.classifier(y.mean((2, 3)))
        return logits
