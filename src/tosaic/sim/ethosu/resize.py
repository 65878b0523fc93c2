"""Inputs doubled on their way in, and RESIZE of U85: bilinear, nearest, the lower neighbour."""

from __future__ import annotations

import numpy as np

from tosaic.errors import Unsupported
from tosaic.sim.ethosu.arrays import Array, Ints
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.operation import Operation, Steps
from tosaic.sim.ethosu.output import finish
from tosaic.sim.ethosu.registers import Resize, Upscale

_FRACTION = 16
"""Sums come with so many bits below one; the shift of the output takes them away."""


class ResizeRun:
    """A resize as one operation of a program."""

    macs = 0

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        if operation.mode > Resize.NEAREST:
            raise Unsupported(f"the resize mode {operation.mode}")
        self.mode = Resize(operation.mode)
        if self.mode is Resize.REPLICATE:
            raise Unsupported("the resize mode REPLICATE")
        assert operation.resize is not None
        height, width, _ = operation.output.shape
        rows, columns, _ = operation.ifm.shape
        self.rows = self._neighbours(operation.resize[0], height, rows)
        self.columns = self._neighbours(operation.resize[1], width, columns)

    def _neighbours(self, steps: Steps, count: int, size: int) -> tuple[Ints, Ints, Ints]:
        """For each place the lower neighbour, the upper one, and how far it is from the lower."""
        position = np.arange(count) * steps.step + steps.offset
        lower = position // steps.scale
        rest = position - lower * steps.scale
        if self.mode is Resize.NEAREST:
            lower = lower + (2 * rest >= steps.scale)
        return np.clip(lower, 0, size - 1), np.clip(lower + 1, 0, size - 1), rest

    def __call__(self, machine: Machine) -> None:
        operation = self.operation
        values = machine.load(operation.ifm).astype(np.int64) - operation.ifm.zero_point
        top, bottom, down = self.rows
        left, right, across = self.columns
        if self.mode is Resize.NEAREST:
            sums = values[top][:, left]
        else:
            assert operation.resize is not None
            by_row, by_column = (axis.scale for axis in operation.resize)
            down, across = down[:, None, None], across[:, None]
            upper = values[top][:, left] * (by_column - across) + values[top][:, right] * across
            lower = values[bottom][:, left] * (by_column - across)
            lower += values[bottom][:, right] * across
            sums = upper * (by_row - down) + lower * down
        finish(machine, operation.output, sums << _FRACTION)


def upscaled_size(operation: Operation) -> tuple[int, int]:
    """Height and width that the kernel sees, without padding."""
    window, (height, width, _) = operation.window, operation.ifm.shape
    if not operation.upscale or window is None:
        return height, width
    rows, columns, _ = operation.output.shape
    top, left, bottom, right = window.pad
    return (
        (rows - 1) * window.stride[0] + window.reach[0] - top - bottom,
        (columns - 1) * window.stride[1] + window.reach[1] - left - right,
    )


def upscaled(operation: Operation, values: Array) -> Array:
    """Each value four times, or among zeros, cut to what the kernel sees."""
    if operation.upscale is Upscale.NONE:
        return values
    height, width = upscaled_size(operation)
    if operation.upscale is Upscale.NEAREST:
        doubled = values.repeat(2, axis=0).repeat(2, axis=1)
    else:
        rows, columns, depth = values.shape
        doubled = np.full((2 * rows, 2 * columns, depth), operation.ifm.zero_point, values.dtype)
        doubled[::2, ::2] = values
    return doubled[:height, :width]
