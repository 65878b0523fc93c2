"""Wav2Letter (Collobert et al. 2016): from features of sound to letters, by convolutions in time.

The layers are those of the paper; their widths are a quarter, so that tests are quick.
"""

from torch import Tensor, nn
from torch.nn import functional as F


class Wav2Letter(nn.Module):
    def __init__(self, features: int = 39, letters: int = 29, width: int = 64, wide: int = 256):
        super().__init__()

        def layer(cin: int, cout: int, kernel: int, stride: int = 1) -> nn.Sequential:
            conv = nn.Conv1d(cin, cout, kernel, stride, kernel // 2)
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
            return nn.Sequential(conv, nn.LeakyReLU(0.2))

        self.layers = nn.Sequential(
            layer(features, width, 48, 2),
            *(layer(width, width, 7) for _ in range(7)),
            layer(width, wide, 32),
            layer(wide, wide, 1),
        )
        self.letters = nn.Conv1d(wide, letters, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Log probabilities of letters, as CTC takes them."""
        return F.log_softmax(self.letters(self.layers(x)), 1)


def wav2letter() -> nn.Module:
    return Wav2Letter().eval()
