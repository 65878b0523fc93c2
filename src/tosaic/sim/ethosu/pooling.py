"""POOL: maxima, sums and averages over windows, sums over channels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tosaic.errors import Unsupported
from tosaic.sim.ethosu.arrays import Array, Ints, value_range
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.operation import Operation, Window
from tosaic.sim.ethosu.output import hand_on
from tosaic.sim.ethosu.registers import Pooling
from tosaic.sim.ethosu.resize import upscaled
from tosaic.sim.ethosu.scales import Scales, of_operation
from tosaic.sim.ethosu.scaling import rescale
from tosaic.sim.ethosu.stream import Config


class PoolingRun:
    """A pooling as one operation of a program."""

    def __init__(self, operation: Operation, config: Config) -> None:
        self.operation, self.config = operation, config
        self.mode, self.macs = Pooling(operation.mode), 0
        assert operation.window is not None
        self.window = operation.window

    def __call__(self, machine: Machine) -> None:
        hand_on(machine, self.operation, self._sums(machine), self._scales(machine))

    def _sums(self, machine: Machine) -> Ints:
        operation = self.operation
        if self.mode is Pooling.NONE:
            return np.zeros(operation.output.shape, np.int64)
        values = upscaled(operation, machine.load(operation.ifm))
        if self.mode in (Pooling.MAX, Pooling.MIN):
            return self._extremes(values)
        if self.mode is Pooling.REDUCE_SUM:
            depth = values.shape[2]
            is_narrow = values.dtype.itemsize <= 2 and depth < 1 << 15  # and 32 bits hold the sum
            kind = np.int32 if is_narrow else np.int64
            total: Ints = values.sum(axis=2, keepdims=True, dtype=kind).astype(np.int64)
            total -= operation.ifm.zero_point * depth
            return total
        shifted: Ints = values.astype(np.int64) - operation.ifm.zero_point
        if self.mode in (Pooling.ARGMAX_X, Pooling.ARGMAX_Y):
            return self._largest(shifted)
        sums = window_sums(shifted, self.window)
        return self._divided(sums, values.shape[:2]) if operation.divide else sums

    def _largest(self, values: Ints) -> Ints:
        """The place of the first largest value in the upper half, the value in the lower."""
        along = 4 if self.mode is Pooling.ARGMAX_X else 3
        windows = _windows(values, self.window)
        if windows.shape[7 - along] != 1 or any(self.window.pad):
            raise Unsupported(f"{self.mode.name} of a window of two dimensions or with padding")
        place = windows.argmax(axis=along)
        largest = windows.max(axis=along)
        packed: Ints = (place << 16) | (largest & 0xFFFF)
        return packed.squeeze(3)

    def _scales(self, machine: Machine) -> Scales | None:
        blocks = self.operation.scales
        if not blocks:
            return None
        streams = [machine.memory.view(b, np.dtype("u1")).tobytes() for b in blocks]
        return of_operation(self.operation, self.config, streams)

    def _extremes(self, values: Array) -> Ints:
        """The largest or smallest of each window; padding never counts."""
        largest = self.mode is Pooling.MAX
        lowest, highest = value_range(values.dtype)
        padded = _padded(values, self.window, lowest if largest else highest)
        windows = _windows(padded, self.window)
        chosen = windows.max(axis=(3, 4)) if largest else windows.min(axis=(3, 4))
        sums: Ints = chosen.astype(np.int64) - self.operation.ifm.zero_point
        return sums

    def _divided(self, sums: Ints, size: tuple[int, ...]) -> Ints:
        counts = window_sums(np.ones((*size, 1), np.int64), self.window)
        multiplier, shift = _reciprocal(np.maximum(counts, 1))
        return rescale(sums, multiplier, shift, self.operation.output.scaling.rounding)


def _reciprocal(counts: Ints) -> tuple[Ints, Ints]:
    """2^shift / count with the multiplier in 31 bits, as TOSA defines it."""
    bits = np.array([int(n - 1).bit_length() for n in counts.reshape(-1)]).reshape(counts.shape)
    numerator = ((np.int64(1) << 30) + 1) << bits
    return numerator // counts, 30 + bits


def _padded(values: Array, window: Window, fill: int) -> Array:
    top, left, bottom, right = window.pad
    if not any(window.pad):
        return values
    return np.pad(values, ((top, bottom), (left, right), (0, 0)), constant_values=fill)


def _windows(padded: Array, window: Window) -> Array:
    """Rows, columns, channels, and the two axes of the kernel."""
    slide: Any = sliding_window_view  # its types know one axis only
    found: Array = slide(padded, window.reach, axis=(0, 1))
    (sy, sx), (dy, dx) = window.stride, window.dilation
    strided: Array = found[::sy, ::sx, :, ::dy, ::dx]
    return strided


def window_sums(values: Ints, window: Window) -> Ints:
    """The sum of each window, one axis after the other."""
    padded = _padded(values, window, 0)
    for axis in (0, 1):
        size, stride, gap = window.size[axis], window.stride[axis], window.dilation[axis]
        if size == 1 and stride == 1:
            continue
        if size > 16 and gap == 1:
            total = np.cumsum(padded, axis=axis)
            total = np.concatenate([np.zeros_like(total.take([0], axis)), total], axis)
            length = total.shape[axis]
            padded = total.take(range(size, length), axis) - total.take(range(length - size), axis)
        else:
            length = padded.shape[axis] - (size - 1) * gap
            shifted = [padded.take(range(i * gap, i * gap + length), axis) for i in range(size)]
            padded = np.sum(shifted, axis=0)
        padded = padded.take(range(0, padded.shape[axis], stride), axis)
    return padded
