"""A cell that a loop of Python calls step by step, which several tests make a loop of the graph."""

import torch
from torch import Tensor, nn


class Cells(nn.Module):
    """A cell over the items of a sequence; nobody reads the last of its second state."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(features, hidden), nn.Linear(hidden, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.cell.hidden_size
        state = torch.zeros(x.shape[0], hidden), torch.zeros(x.shape[0], hidden)
        seen = []
        for item in x.unbind(1):
            state = self.cell(item, state)
            seen.append(self.head(state[0]))
        return torch.stack(seen, 1), state[0]
