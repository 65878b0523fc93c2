"""A DeepLabV3-style segmenter (Chen et al. 2017): dilated convolutions, a pyramid, bilinear."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .layers import conv_bn


class Pyramid(nn.Module):
    """Atrous spatial pyramid pooling: one place seen at several distances, and as a whole."""

    def __init__(self, cin: int, cout: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        self.near = conv_bn(cin, cout, 1)
        self.far = nn.ModuleList(conv_bn(cin, cout, 3, dilation=rate) for rate in rates)
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(cin, cout, 1), nn.ReLU())
        self.join = conv_bn(cout * (len(rates) + 2), cout, 1)

    def forward(self, x: Tensor) -> Tensor:
        whole = F.interpolate(self.whole(x), x.shape[2:], mode="bilinear", align_corners=False)
        branches = [self.near(x), *(far(x) for far in self.far), whole]
        y: Tensor = self.join(torch.cat(branches, 1))
        return y


class DeepLab(nn.Module):
    def __init__(self, classes: int = 6, width: int = 16) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            conv_bn(3, width, 3, 2),
            conv_bn(width, 2 * width, 3, 2),
            conv_bn(2 * width, 4 * width, 3, 2),
            conv_bn(4 * width, 4 * width, 3, dilation=2),
            conv_bn(4 * width, 4 * width, 3, dilation=4),
        )
        self.pyramid = Pyramid(4 * width, 2 * width, (2, 4, 6))
        self.head = nn.Conv2d(2 * width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.head(self.pyramid(self.backbone(x)))
        return F.interpolate(y, x.shape[2:], mode="bilinear", align_corners=False)
