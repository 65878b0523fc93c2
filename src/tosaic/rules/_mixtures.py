"""Linear interpolation without RESIZE, as convolutions.

Weights are whole numbers, as those of TOSA's RESIZE are, and every sum is exact: results are
equal to it bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Array, Quant, Value
from tosaic.ir.multipliers import multiplier_and_shift
from tosaic.lowering.alternatives.data_movement import piece, take
from tosaic.lowering.builder import Lowering
from tosaic.rules._byte_products import bytes_of
from tosaic.rules._convolve import Convolution, convolved
from tosaic.rules._sums import accumulator
from tosaic.spec import dtypes as d

_LARGEST = 127  # weight of an int8 convolution
_MOST_PHASES = 64
_MOST_PARTS = 8  # convolutions whose weights are added up


@dataclass(frozen=True, slots=True)
class Axis:
    """Output i of ``out`` lies at (i · step + offset) / unit of an axis with ``size`` elements."""

    size: int
    out: int
    unit: int
    step: int
    offset: int

    @property
    def places(self) -> Array:
        return np.arange(self.out) * self.step + self.offset

    def matrix(self) -> Array:
        """The weights of each element in each result; they add up to the unit."""
        below, part = np.divmod(self.places, self.unit)
        weights = np.zeros((self.out, self.size), np.int64)
        rows = np.arange(self.out)
        np.add.at(weights, (rows, below.clip(0, self.size - 1)), self.unit - part)
        np.add.at(weights, (rows, (below + 1).clip(0, self.size - 1)), part)
        return weights

    @property
    def phases(self) -> int:
        """After so many results the weights are the same again."""
        return self.unit // math.gcd(self.unit, self.step)

    @property
    def stride(self) -> int:
        return self.step // math.gcd(self.unit, self.step)


def phased(b: Lowering, x: Value, height: Axis, width: Axis) -> Value:
    """A depthwise convolution with a channel for each phase, and the phases side by side."""
    axes, channels = (height, width), x.shape[3]
    phases, units = height.phases * width.phases, height.unit * width.unit
    if phases > _MOST_PHASES or (units > _LARGEST and not _is_added_up(x, units)):
        raise Unsupported(f"an interpolation with {phases} kinds of results")
    kernels = []
    for axis, a in enumerate(axes, 1):
        x, weights = _windows(b, x, axis, a)
        kernels.append(weights)
    joint = np.einsum("pi,qj->ijpq", *kernels).reshape(
        kernels[0].shape[1], kernels[1].shape[1], 1, phases)  # fmt: skip
    shape = (*joint.shape[:2], channels, phases)
    stride, parts = (height.stride, width.stride), -(-int(joint.max()) // _LARGEST)
    kernels = [np.broadcast_to((joint + part) // parts, shape) for part in range(parts)]
    sums = [b.const(kernel, d.I8) for kernel in kernels]
    y = (
        _summed(b, x, sums[0], stride, 1.0 / units)
        if parts == 1
        else _added(b, x, sums, stride, units)
    )
    batch, rows, columns, _ = y.shape
    apart = b.reshape(y, (batch, rows, columns, channels, height.phases, width.phases))
    beside = b.permute(apart, (0, 1, 4, 2, 5, 3))
    y = b.reshape(beside, (batch, rows * height.phases, columns * width.phases, channels))
    for axis, a in enumerate(axes, 1):
        y = piece(b, y, axis, 0, a.out)
    return y


def _windows(b: Lowering, x: Value, axis: int, a: Axis) -> tuple[Value, Array]:
    """The input with its edges repeated, so that all windows are inside, and their weights."""
    below, part = np.divmod(np.arange(a.phases) * a.step + a.offset, a.unit)
    least, most = int(below.min()), int(below.max()) + 1
    weights = np.zeros((a.phases, most - least + 1), np.int64)
    rows = np.arange(a.phases)
    weights[rows, below - least] += a.unit - part
    weights[rows, below - least + 1] += part
    count = -(-a.out // a.phases)
    reach = np.arange(least, (count - 1) * a.stride + most + 1)
    return take(b, x, axis, [int(i) for i in reach.clip(0, a.size - 1)]), weights


def _summed(
    b: Lowering, x: Value, kernel: Value, stride: tuple[int, int], factor: float,
    out: d.DType | None = None,
) -> Value:  # fmt: skip
    """Sums of levels times weights, times a factor; their zero point comes out as it went in."""
    quant, kind = x.quant, accumulator(x)
    with b.wanting((Quant(1.0), out or x.dtype)):
        y = convolved(b, x, Convolution(
            "DEPTHWISE_CONV2D", kernel, b.const(np.zeros(1), kind), 0, 0, stride,
            ((0, 0), (0, 0)), (1, 1), Quant(factor), math.prod(kernel.shape[:2]), 16,
        ))  # fmt: skip
    return b.with_quant(y, quant)


def _is_added_up(x: Value, units: int) -> bool:
    """Whether sums of weights that int8 holds fit int32, and are few."""
    return x.dtype is d.I16 and units <= _MOST_PARTS * _LARGEST


def _added(
    b: Lowering, x: Value, kernels: Sequence[Value], stride: tuple[int, int], units: int
) -> Value:
    """The same with weights that are sums of several, each of which int8 holds."""
    wide = [b.with_quant(_summed(b, x, kernel, stride, 1.0, d.I32), None) for kernel in kernels]
    return _divided(b, reduce(b.ADD, wide), units, x)


def _divided(b: Lowering, sums: Value, units: int, x: Value) -> Value:
    """int32 sums as levels of the input, by the factor that a RESCALE of int48 has."""
    multiplier, shift = multiplier_and_shift(1.0 / units, 15 if x.dtype is d.I16 else 31)
    return b.with_quant(b.rescale(sums, [multiplier / 2.0**shift], 0, x.dtype), x.quant)


def crossed(b: Lowering, x: Value, height: Axis, width: Axis) -> Value:
    """One axis after the other as channels of a 1×1 convolution; int16 byte by byte."""
    if max(height.unit, width.unit) > _LARGEST:
        raise Unsupported("the weights of this interpolation do not fit int8")
    units, plain = height.unit * width.unit, b.permute(x, (0, 1, 3, 2))
    if x.dtype is d.I8:
        sums = _crossed(b, plain, height, width)
    else:
        high, low = (_crossed(b, part, height, width) for part in bytes_of(b, plain))
        lowest = b.number(128 * units, low)  # lower bytes count from -128, weights add up to units
        sums = b.ADD(b.LOGICAL_LEFT_SHIFT(high, b.number(8, high)), b.ADD(low, lowest))
    return b.with_quant(b.permute(_divided(b, sums, units, x), (0, 3, 1, 2)), x.quant)


def _crossed(b: Lowering, x: Value, height: Axis, width: Axis) -> Value:
    """Sums of int8 [N, H, C, W] as int32 [N, W, C, H]; those of one axis fit int16."""
    y = b.with_quant(b.rescale(_product(b, x, width), [1.0], 0, d.I16), None)
    y = _product(b, b.permute(y, (0, 3, 2, 1)), height)
    return b.rescale(y, [1.0], 0, d.I32)


def _product(b: Lowering, x: Value, axis: Axis) -> Value:
    weights = axis.matrix().reshape(axis.out, 1, 1, axis.size)
    return b.layer("CONV2D", x, weights, acc=d.I48 if x.dtype is d.I16 else d.I32)


def axes_of(shape: Sequence[int], sizes: Sequence[int], grids: Sequence[Any]) -> list[Axis]:
    """Both axes of an image and the grids of its resize."""
    return [Axis(n, o, g.unit, g.step, g.offset) for n, o, g in zip(shape[1:3], sizes, grids)]
