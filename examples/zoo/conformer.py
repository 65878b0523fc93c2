"""A block of Conformer (Gulati et al. 2020): half a feed-forward part, attention, a convolution
over time, the other half. Speech as 80 mel bands every 10 ms, two strides before the block.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from .pictures import images
from .tokens import Attention, FeedForward, enliven


class Convolution(nn.Module):
    """A gate, a depthwise convolution over time, SiLU."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inward = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.batch_norm = nn.BatchNorm1d(width)
        self.outward = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.glu(self.inward(self.norm(x).transpose(1, 2)), 1)
        y = F.silu(self.batch_norm(self.depthwise(y)))
        return self.outward(y).transpose(1, 2)


class Conformer(nn.Module):
    def __init__(
        self, bands: int = 80, width: int = 144, heads: int = 4, kernel: int = 15, signs: int = 30
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv1d(bands, width, 3, 2, 1), nn.ReLU(), nn.Conv1d(width, width, 3, 2, 1), nn.ReLU()
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.halves = nn.ModuleList(FeedForward(width, 4 * width, nn.SiLU) for _ in range(2))
        self.attention = Attention(width, heads)
        self.convolution = Convolution(width, kernel)
        self.signs = nn.Linear(width, signs)

    def forward(self, mel: Tensor) -> Tensor:
        """Logarithms of the probabilities of letters, as CTC takes them."""
        x = self.stem(mel).transpose(1, 2)
        x = x + 0.5 * self.halves[0](self.norms[0](x))
        x = x + self.attention(self.norms[1](x))
        x = x + self.convolution(x)
        x = self.norms[3](x + 0.5 * self.halves[1](self.norms[2](x)))
        return F.log_softmax(self.signs(x), -1)


def conformer() -> nn.Module:
    return enliven(Conformer())


def speech(count: int, seed: int) -> Tensor:
    """96 frames whose bands change as slowly as those of speech do."""
    return images(count, seed, (80, 96), 1)[:, 0]
