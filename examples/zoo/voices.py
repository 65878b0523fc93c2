"""Sounds like speech, and sounds that are none: vowels by formants, hisses, pauses, hum, music."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

RATE, FRAME, CONTEXT = 16_000, 512, 64
# The first three resonances of vowels, in Hz.
VOWELS = (
    (730, 1090, 2440),
    (270, 2290, 3010),
    (300, 870, 2240),
    (530, 1840, 2480),
    (660, 1720, 2410),
)


def _resonance(frequency: float, width: float) -> Tensor:
    """How a resonance answers a pulse."""
    time = torch.arange(512) / RATE
    return torch.exp(-math.pi * width * time) * torch.sin(2 * math.pi * frequency * time)


def _syllable(make: torch.Generator, voice: float) -> Tensor:
    """A hiss of some length, then a vowel that glides into another."""

    def between(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=make))

    length = int(between(0.12, 0.28) * RATE)
    time = torch.arange(length) / RATE
    pitch = voice * (1 + between(-0.15, 0.15) + 0.2 * between(-1, 1) * time / time[-1])
    phase = torch.cumsum(pitch / RATE, 0)
    pulses = (phase.floor().diff(prepend=phase[:1] * 0) > 0).float()
    pulses = pulses + 0.02 * torch.randn(length, generator=make)
    first, second = (VOWELS[int(torch.randint(len(VOWELS), (), generator=make))] for _ in range(2))
    spoken = torch.zeros(length)
    for vowel, share in ((first, 1 - time / time[-1]), (second, time / time[-1])):
        for number, frequency in enumerate(vowel):
            kernel = _resonance(frequency, 60 + 40 * number) / (1 + number)
            sound = F.conv1d(F.pad(pulses, (511, 0))[None, None], kernel.flip(0)[None, None])[0, 0]
            spoken += share * sound
    spoken *= torch.sin(math.pi * time / time[-1]).clamp(min=0) ** 0.5
    hiss = torch.randn(int(between(0.02, 0.08) * RATE), generator=make).diff(prepend=torch.zeros(1))
    return torch.cat([0.15 * hiss, spoken / spoken.abs().max()])


def _other(kind: int, length: int, make: torch.Generator) -> Tensor:
    """A pause: near silence, noise, a mains hum, or a tone."""
    noise, time = torch.randn(length, generator=make), torch.arange(length) / RATE
    if kind == 0:
        return 0.002 * noise
    if kind == 1:
        return 0.05 * noise
    if kind == 2:
        return 0.1 * torch.sin(2 * math.pi * 50 * time) + 0.01 * noise
    return 0.2 * torch.sin(2 * math.pi * 440 * time) + 0.005 * noise


def recording(seconds: int, seed: int) -> tuple[Tensor, Tensor]:
    """A recording of whole frames, and for each frame whether someone speaks in it."""
    make = torch.Generator().manual_seed(seed)
    parts: list[tuple[Tensor, bool]] = []
    total, turn = 0, 0
    while total < seconds * RATE:
        voice, loud = (float(v) for v in torch.rand(2, generator=make))
        syllables = [_syllable(make, 90 + 130 * voice) for _ in range(6)]
        pause = _other(turn % 4, int((0.6 + 0.8 * voice) * RATE), make)
        said = (0.1 + 0.6 * loud) * torch.cat(syllables)
        parts += [(pause, False), (said + 0.002 * torch.randn(len(said), generator=make), True)]
        total, turn = total + len(pause) + len(said), turn + 1
    audio = torch.cat([sound for sound, _ in parts]).clamp(-1, 1)
    spoken = torch.cat([torch.full((len(sound),), float(is_said)) for sound, is_said in parts])
    whole = seconds * RATE // FRAME * FRAME
    return audio[:whole], spoken[:whole].reshape(-1, FRAME).mean(1) > 0.5
