"""Padding: with a constant, or with elements of the tensor itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, shared
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives import data_movement as moves
from tosaic.lowering.builder import Lowering


@shared(
    "aten.constant_pad_nd.default",
    samples=[
        Sample(((3, 4),), ([1, 2],)),
        Sample(((1, 2, 3, 4),), ([1, 0, 2, 1], 0.5)),
        Sample(((2, 5, 6),), ([-1, 2, 1, -2], -1.0)),
    ],
)
def constant_pad(b: Lowering, self: Value, pad: Sequence[int], value: float = 0) -> Value:
    """A constant in the parameters of the result; a negative amount cuts off."""
    x = self if self.quant is None else b.requantized(self)
    rank = x.type.rank
    around = [pad[2 * i : 2 * i + 2] for i in range(len(pad) // 2)]
    around = [(0, 0)] * (rank - len(around)) + around[::-1]
    for axis, (before, after) in enumerate(around):
        x = moves.piece(b, x, axis, max(-before, 0), x.shape[axis] + min(after, 0))
    grown = [max(n, 0) for pair in around for n in pair]
    if not any(grown):
        return x
    fill = value
    if x.quant is not None:
        scale, zero = x.quant.scale, x.quant.zero_point
        if isinstance(scale, tuple) or isinstance(zero, tuple):
            raise Unsupported("a quantized value with a scale for each channel cannot be padded")
        low, high = x.dtype.range
        fill = min(max(round(value / scale + zero), low), high) if math.isfinite(value) else (
            high if value > 0 else low)  # fmt: skip
    return b.with_quant(b.PAD(x, b.shape(grown), b.const([fill], x.dtype)), x.quant)


def _outside(before: int, size: int, after: int, mode: str) -> list[int]:
    """For each place of a padded axis, the element that stands there."""
    places = np.arange(-before, size + after)
    if mode == "reflect":
        places = size - 1 - np.abs(size - 1 - np.abs(places))
    elif mode == "replicate":
        places = places.clip(0, size - 1)
    elif mode == "circular":
        places = places % size
    else:
        raise Unsupported(f"there is no padding mode {mode}")
    return [int(p) for p in places]


def _padded(b: Lowering, self: Value, padding: Sequence[int], mode: str) -> Value:
    x = self
    for i, (before, after) in enumerate(zip(padding[::2], padding[1::2])):
        axis = x.type.rank - 1 - i
        if before or after:
            x = moves.take(b, x, axis, _outside(before, x.shape[axis], after, mode))
    return x


@shared(
    "aten.pad.default",
    samples=[
        Sample(((2, 3, 4),), ([1, 2], "constant", 1.0)),
        Sample(((1, 2, 4, 5),), ([3, 2, 1, 3], "reflect")),
        Sample(((1, 2, 4, 5),), ([3, 2, 1, 4], "replicate")),
        Sample(((1, 2, 4, 5),), ([3, 2, 1, 4], "circular")),
        Sample(((1, 2, 4, 5),), ([2, 2, 2, 2],)),
    ],
)
def pad(
    b: Lowering,
    self: Value,
    pad: Sequence[int],
    mode: str = "constant",
    value: float | None = None,
) -> Value:
    if mode == "constant":
        return constant_pad(b, self, pad, value or 0)
    return _padded(b, self, pad, mode)


for _name, _mode, _far in (("reflection", "reflect", 3), ("replication", "replicate", 6)):
    _pad = partial(_padded, mode=_mode)
    shared(
        f"aten.{_name}_pad1d.default",
        samples=[Sample(((2, 3, 5),), ([2, 1],)), Sample(((3, 5),), ([0, _far + 1],))],
    )(_pad)
    shared(
        f"aten.{_name}_pad2d.default",
        samples=[Sample(((1, 2, 4, 5),), ([1] * 4,)), Sample(((2, 4, 5),), ([_far, 0, 2, 3],))],
    )(_pad)
    shared(
        f"aten.{_name}_pad3d.default",
        samples=[Sample(((1, 2, 3, 4, 5),), ([1, 2, 1, 0, 2, 1],))],
    )(_pad)
