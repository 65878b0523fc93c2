"""Streams of biases and scales: ten bytes for each output channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tosaic.errors import InvalidInput
from tosaic.sim.ethosu.arrays import Ints
from tosaic.sim.ethosu.operation import Operation
from tosaic.sim.ethosu.stream import Config

ENTRY = 10


@dataclass(frozen=True, slots=True)
class Scales:
    """For each output channel: what is added to its sum, and how the sum is scaled."""

    bias: Ints
    multiplier: Ints
    shift: Ints

    def __getitem__(self, channels: slice) -> Scales:
        return Scales(self.bias[channels], self.multiplier[channels], self.shift[channels])


def decode(data: bytes, channels: int, bias_bits: int) -> Scales:
    """U55 and U65 have biases of 40 bits, U85 of 32 or 48; what is left is the multiplier's."""
    if len(data) < channels * ENTRY:
        raise InvalidInput(
            f"{channels} channels have {channels * ENTRY} bytes of scales, there are {len(data)}"
        )
    table = np.frombuffer(data, np.uint8, channels * ENTRY).reshape(channels, ENTRY)
    split = bias_bits // 8
    end = 9 if bias_bits == 40 else 8
    bias = _number(table[:, :split], signed=True)
    multiplier = _number(table[:, split:end], signed=bias_bits == 40)
    if bias_bits != 40:  # the topmost bit is not the multiplier's
        multiplier &= (1 << 8 * (end - split) - 1) - 1
    return Scales(bias, multiplier, table[:, end].astype(np.int64) & 0x3F)


def of_operation(operation: Operation, config: Config, streams: Sequence[bytes]) -> Scales:
    """The scales of all output channels; cores of U65 take turns over single ones."""
    channels = operation.output.shape[2]
    if config.is_u85:
        return decode(streams[0], channels, 32 if operation.accumulator == 32 else 48)
    cores = len(streams)
    whole = [np.zeros(channels, np.int64) for _ in range(3)]
    for core, stream in enumerate(streams):
        part = decode(stream, len(range(core, channels, cores)), 40)
        for target, source in zip(whole, (part.bias, part.multiplier, part.shift)):
            target[core::cores] = source
    return Scales(*whole)


def _number(columns: NDArray[np.uint8], signed: bool) -> Ints:
    width = columns.shape[1]
    value = columns.astype(np.int64) << np.arange(0, 8 * width, 8)
    total: Ints = value.sum(axis=1)
    if signed:
        total -= (total >> 8 * width - 1) << 8 * width
    return total
