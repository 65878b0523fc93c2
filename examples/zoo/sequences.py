"""Sequences of features as a recogniser hears them: a few oscillators, gestures, a little noise."""

import math

import torch
from torch import Tensor

STEPS, FEATURES = 8, 16


def sequences(count: int, seed: int, steps: int = STEPS, features: int = FEATURES) -> Tensor:
    """[count, steps, features], each with pitches, phases and a loudness of its own."""
    make = torch.Generator().manual_seed(seed)
    time = torch.arange(steps)[None, :, None] / steps
    rate = 0.5 + 3.5 * torch.rand(count, 1, features, generator=make)
    phase = 2 * math.pi * torch.rand(count, 1, features, generator=make)
    swing = torch.sin(2 * math.pi * rate * time + phase)
    middle, width = (torch.rand(count, 1, 1, generator=make) for _ in range(2))
    gesture = torch.exp(-(((time - middle) / (0.1 + 0.3 * width)) ** 2))
    shape = torch.randn(count, 1, features, generator=make)
    loud = 0.5 + torch.rand(count, 1, 1, generator=make)
    noise = torch.randn(count, steps, features, generator=make)
    return loud * (swing + 1.5 * shape * gesture) + 0.1 * noise
