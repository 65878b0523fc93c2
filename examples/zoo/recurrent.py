"""Classifiers of sequences by recurrent layers: two of them, each in both directions."""

import torch
from torch import Tensor, nn

from .sequences import FEATURES


class Recurrent(nn.Module):
    """What an LSTM or a GRU has understood after the last step, and on average."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], hidden: int = 16) -> None:
        super().__init__()
        self.layers = kind(
            FEATURES, hidden, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2
        )
        self.classifier = nn.Linear(4 * hidden, 12)
        for name, weights in self.layers.named_parameters():
            if "weight" in name:  # as lively as those of trained layers
                nn.init.normal_(weights, 0, 1.5 / weights.shape[1] ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        y, last = self.layers(x)
        hidden = last[0] if isinstance(last, tuple) else last
        ends = torch.cat([hidden[-2], hidden[-1]], 1)
        logits: Tensor = self.classifier(torch.cat([ends, y.mean(1)], 1))
        return logits


def lstm_classifier() -> nn.Module:
    return Recurrent(nn.LSTM).eval()


def gru_classifier() -> nn.Module:
    return Recurrent(nn.GRU).eval()
