"""Sounds with a pitch: harmonics that fade, a little vibrato, breath."""

import math

import torch
from torch import Tensor

RATE, FRAME = 16_000, 1024


def notes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Frames of 1,024 samples as CREPE takes them (mean 0, deviation 1), and their pitch in Hz."""
    make = torch.Generator().manual_seed(seed)

    def between(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, generator=make)

    pitch = torch.exp(between(math.log(70.0), math.log(1000.0)))
    time = torch.arange(FRAME) / RATE
    phase = 2 * math.pi * pitch * time + between(0, 0.3) * torch.sin(2 * math.pi * 5 * time)
    fade, frames = between(0.3, 0.8), torch.zeros(count, FRAME)
    for harmonic in range(1, 9):
        audible = (harmonic * pitch < RATE / 2).float()
        frames += audible * fade**harmonic * torch.sin(harmonic * phase + between(0, 6.3))
    frames += between(0.0, 0.05) * torch.randn(count, FRAME, generator=make)
    frames -= frames.mean(1, keepdim=True)
    return frames / frames.std(1, keepdim=True), pitch[:, 0]


def frames(count: int, seed: int) -> Tensor:
    return notes(count, seed)[0]
