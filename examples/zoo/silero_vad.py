"""Silero VAD (16 kHz): is there speech in 512 samples of sound, given what came before them?

A short-time Fourier transform as a convolution, four convolutions, one step of an LSTM. The input
is 64 samples of context and 512 new ones, and the state (h, c) that the last step gave. The
weights are those of silero-vad (MIT).
"""

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .voices import CONTEXT, FRAME, recording
from .wheels import safetensors

Inputs = tuple[Tensor, Tensor, Tensor]


class SileroVAD(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, 128, bias=False)
        self.conv1 = nn.Conv1d(129, 128, 3, 1, 1)
        self.conv2 = nn.Conv1d(128, 64, 3, 2, 1)
        self.conv3 = nn.Conv1d(64, 64, 3, 2, 1)
        self.conv4 = nn.Conv1d(64, 128, 3, 1, 1)
        self.lstm_cell = nn.LSTMCell(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)

    def forward(self, audio: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The probability of speech, and the next state."""
        x = self.stft_conv(F.pad(audio[:, None], (0, 64), "reflect"))
        real, imaginary = x.chunk(2, 1)
        x = torch.sqrt(real**2 + imaginary**2)
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = F.relu(conv(x))
        h, c = self.lstm_cell(x[:, :, 0], (h, c))
        return torch.sigmoid(self.final_conv(F.relu(h)[:, :, None]))[:, :, 0], h, c


def silero_vad() -> nn.Module:
    """As it was trained."""
    net = SileroVAD()
    path = "silero_vad/data/silero_vad_16k.safetensors"
    net.load_state_dict(safetensors("silero-vad", path))
    return net.eval()


@cache
@torch.no_grad()
def followed(seconds: int, seed: int) -> tuple[Inputs, Tensor]:
    """The inputs of all steps of a recording, with the states that come about, and which of them
    are speech."""
    audio, speech = recording(seconds, seed)
    net, state = silero_vad(), (torch.zeros(1, 128), torch.zeros(1, 128))
    steps = []
    for window in F.pad(audio, (CONTEXT, 0)).unfold(0, CONTEXT + FRAME, FRAME):
        steps.append((window[None], *state))
        _, *after = net(*steps[-1])
        state = after[0], after[1]
    audio, h, c = (torch.cat(each) for each in zip(*steps))
    return (audio, h, c), speech


def steps(count: int, seed: int) -> Inputs:
    """Some steps of a recording, spread over it."""
    (audio, h, c), _ = followed(max(12, count // 24), seed)
    order = torch.randperm(len(audio), generator=torch.Generator().manual_seed(seed))[:count]
    return audio[order], h[order], c[order]
