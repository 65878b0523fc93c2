"""Operators that have no rule of their own and compile by their parts: small modules of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *values: Any) -> Any:
        return self.function(*values)


def _spectrum(x: torch.Tensor) -> torch.Tensor:
    made = torch.stft(x, 16, 8, window=torch.hann_window(16), return_complex=True)
    return made.abs()


def _there_and_back(x: torch.Tensor) -> torch.Tensor:
    window = torch.hann_window(16)
    made = torch.stft(x, 16, 4, window=window, return_complex=True)
    return torch.istft(made * 0.5, 16, 4, window=window)


def _attention() -> nn.Module:
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    made = Function(lambda x: layer(x, x, x, need_weights=False)[0])
    made.layer = layer
    return made


def _recurrent(layer: nn.Module) -> nn.Module:
    made = Function(lambda x: layer(x)[0])
    made.layer = layer
    return made


_SEQUENCE = ((1, 4, 8),)
_PAIR = ((2, 8), (2, 8))
# The operator, how a module is made, and the shapes of its inputs.
COMPOSITES: dict[str, tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...]]] = {
    "aten.lstm.input": (lambda: _recurrent(nn.LSTM(8, 8, batch_first=True)), _SEQUENCE),
    "aten.gru.input": (lambda: _recurrent(nn.GRU(8, 8, batch_first=True)), _SEQUENCE),
    "aten.rnn_tanh.input": (lambda: _recurrent(nn.RNN(8, 8, batch_first=True)), _SEQUENCE),
    "aten.lstm_cell.default": (lambda: _recurrent(nn.LSTMCell(8, 8)), ((1, 8),)),
    "aten.gru_cell.default": (lambda: nn.GRUCell(8, 8), ((1, 8),)),
    "aten.stft.center": (lambda: Function(_spectrum), ((1, 64),)),
    "aten.istft.default": (lambda: Function(_there_and_back), ((1, 64),)),
    "aten.fft_rfft.default": (lambda: Function(lambda x: torch.fft.rfft(x).abs()), ((1, 16),)),
    "aten.fft_fft.default": (lambda: Function(lambda x: torch.fft.fft(x).abs()), ((1, 16),)),
    "aten.fft_irfft.default": (
        lambda: Function(lambda a, b: torch.fft.irfft(torch.complex(a, b))), ((1, 9), (1, 9))
    ),
    "aten.einsum.default": (
        lambda: Function(lambda a, b: torch.einsum("bik,bkj->bij", a, b)), ((1, 4, 8), (1, 8, 4))
    ),
    "aten.multi_head_attention": (_attention, _SEQUENCE),
    "aten.cosine_similarity.default": (
        lambda: Function(torch.nn.functional.cosine_similarity), _PAIR
    ),
    "aten.pairwise_distance.default": (
        lambda: Function(torch.nn.functional.pairwise_distance), _PAIR
    ),
    "aten.bilinear.default": (lambda: nn.Bilinear(8, 8, 4), _PAIR),
}  # fmt: skip


def composite(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """A module that calls an operator, and inputs for it, the same each time."""
    make, shapes = COMPOSITES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval(), tuple(torch.randn(shape) for shape in shapes)
