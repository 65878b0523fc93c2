"""Inputs doubled in height and width on their way in."""

from __future__ import annotations

import numpy as np

from tosaic.sim.ethosu.arrays import Array
from tosaic.sim.ethosu.operation import Operation
from tosaic.sim.ethosu.registers import Upscale


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
