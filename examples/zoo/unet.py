"""A U-Net (Ronneberger et al. 2015) that climbs by transposed convolutions, then bilinearly."""

import torch
from torch import Tensor, nn

from .layers import conv_bn


def double(cin: int, cout: int) -> nn.Sequential:
    return nn.Sequential(conv_bn(cin, cout), conv_bn(cout, cout))


class UNet(nn.Module):
    def __init__(self, classes: int = 4, width: int = 12) -> None:
        super().__init__()
        self.down1 = double(3, width)
        self.down2 = double(width, 2 * width)
        self.down3 = double(2 * width, 4 * width)
        self.bottom = double(4 * width, 8 * width)
        self.pool = nn.MaxPool2d(2)
        self.up3 = nn.ConvTranspose2d(8 * width, 4 * width, 2, 2)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.join3 = double(8 * width, 4 * width)
        self.join2 = double(4 * width, 2 * width)
        self.join1 = double(3 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.down1(x)
        two = self.down2(self.pool(one))
        three = self.down3(self.pool(two))
        y = self.bottom(self.pool(three))
        y = self.join3(torch.cat([three, self.up3(y)], 1))
        y = self.join2(torch.cat([two, self.up2(y)], 1))
        y = self.join1(torch.cat([one, self.up1(y)], 1))
        logits: Tensor = self.head(y)
        return logits
