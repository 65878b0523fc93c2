"""A network that improves its answer step by step, in a loop of ``while_loop``.

One small block with its own weights sees the picture's features and the answer so far, as in
deep-equilibrium networks (Bai et al. 2019); the loop ends after some steps.
"""

import torch
from torch import Tensor, nn

from .layers import conv_bn


class Refinement(nn.Module):
    def __init__(self, width: int = 16, rounds: int = 4) -> None:
        super().__init__()
        self.rounds = rounds
        self.stem = nn.Sequential(conv_bn(3, width, 3, 2), conv_bn(width, width, 3, 2))
        self.block = nn.Conv2d(width, width, 3, padding=1)
        self.mask = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """A mask of a quarter of the size."""
        features = self.stem(x)

        def goes_on(step: Tensor, state: Tensor, given: Tensor) -> Tensor:
            return step < self.rounds

        def improve(step: Tensor, state: Tensor, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            state = torch.tanh(0.5 * self.block(state) + given)
            return step + 1, state, given.clone()

        step = torch.zeros((), dtype=torch.int32)
        _, state, _ = torch.while_loop(
            goes_on, improve, (step, torch.zeros_like(features), features)
        )
        return torch.sigmoid(self.mask(state))


def refinement() -> nn.Module:
    return Refinement()
