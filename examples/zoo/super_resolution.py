"""Super-resolution by pixel shuffle (Shi et al. 2016) on the residual of a bilinear enlargement."""

from torch import Tensor, nn
from torch.nn import functional as F


class SuperResolution(nn.Module):
    def __init__(self, factor: int = 2, width: int = 32) -> None:
        super().__init__()
        self.factor = factor
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 5, padding=2),
            nn.PReLU(width),
            nn.Conv2d(width, width, 3, padding=1),
            nn.PReLU(width),
            nn.Conv2d(width, width, 3, padding=1),
            nn.PReLU(width),
            nn.Conv2d(width, 3 * factor**2, 3, padding=1),
            nn.PixelShuffle(factor),
        )

    def forward(self, x: Tensor) -> Tensor:
        large = F.interpolate(
            x, scale_factor=float(self.factor), mode="bilinear", align_corners=False
        )
        y: Tensor = large + self.features(x)
        return y
