"""When is floating-point arithmetic on integers exact? Static bounds, and the settings they need.

A float sum of integers is exact in every order of summation when no partial sum can reach
2^24 (float32) or 2^53 (float64). The bounds here hold for every order: they add up the most
positive and the most negative terms separately.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

FLOAT32_EXACT = 1 << 24
FLOAT64_EXACT = 1 << 53
_ELEMENTS = 1 << 17


@dataclass(frozen=True, slots=True)
class Interval:
    """Per output channel, the values that an accumulator can take: int64 tensors."""

    low: Tensor
    high: Tensor

    @property
    def peak(self) -> int:
        """The largest magnitude in the interval."""
        return int(torch.maximum(self.low.abs(), self.high.abs()).max())

    def shifted(self, offset: Tensor) -> Interval:
        return Interval(self.low + offset, self.high + offset)

    def within(self, low: int, high: int) -> bool:
        return int(self.low.min()) >= low and int(self.high.max()) <= high


def sum_interval(weight: Tensor, low: int, high: int) -> Interval:
    """The values of every partial sum of `weight[oc] · x`, each x in [low, high] or left out.

    `weight` is an integer tensor with output channels first.
    """
    signed: list[tuple[Tensor, Tensor]] = []
    flat = weight.reshape(len(weight), -1)
    small = weight.dtype in (torch.int8, torch.int16) and flat.shape[1] < 1 << 16
    kind = torch.int32 if small else torch.int64
    # Some at a time: what is made of them stays in the caches.
    for rows in torch.split(flat, max(1, _ELEMENTS // max(1, flat.shape[1]))):
        wide = rows.to(kind)
        total = wide.sum(1, dtype=kind)
        positive = wide.clamp(min=0).sum(1, dtype=kind)
        signed.append((positive, total - positive))
    positive, negative = (torch.cat(parts) for parts in zip(*signed))
    return sums_between(positive, negative, low, high)


def sums_between(positive: Tensor, negative: Tensor, low: int, high: int) -> Interval:
    """The same from the sums of the positive and of the negative weights of each channel."""
    low, high = min(low, 0), max(high, 0)
    positive, negative = positive.to(torch.int64), negative.to(torch.int64)
    return Interval(positive * low + negative * high, positive * high + negative * low)


@contextmanager
def strict_float32() -> Iterator[None]:
    """Keep user settings that trade float32 precision for speed away from our kernels.

    bf16 or tf32 modes drop bits of the inputs, and NNPACK's Winograd kernels are not exact on
    integers. Entering and leaving costs a few µs. The settings are the process's own: the first
    thread to enter makes them, the last one to leave puts back what was there.
    """
    with _strict.lock:
        if not _strict.users:
            _strict.previous = _set_float32(_STRICT)
        _strict.users += 1
    try:
        yield
    finally:
        with _strict.lock:
            _strict.users -= 1
            if not _strict.users:
                _set_float32(_strict.previous)


_Settings = tuple[str, str, bool]
_STRICT: _Settings = ("ieee", "ieee", False)


@dataclass(slots=True)
class _Strict:
    """Who needs strict arithmetic, and what to put back after the last of them."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    previous: _Settings = _STRICT


_strict = _Strict()


def _set_float32(wanted: _Settings) -> _Settings:
    """Set the precision of convolutions and products and the use of NNPACK; what they were."""
    backends: Any = torch.backends  # its modules are replaced by objects that types do not know
    convolution, matmul = backends.mkldnn.conv, backends.mkldnn.matmul
    previous = convolution.fp32_precision, matmul.fp32_precision
    if previous != wanted[:2]:
        convolution.fp32_precision, matmul.fp32_precision = wanted[:2]
    return *previous, *backends.nnpack.set_flags(wanted[2])
