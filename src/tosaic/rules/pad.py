"""Padding: with a constant, or with elements of the tensor itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tosaic.errors import Unsupported
from tosaic.front import moves
from tosaic.front.lower import Lowering
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value


@rule(
    "aten.constant_pad_nd.default",
    policy="SHARED",
    samples=[
        Sample(((3, 4),), ([1, 2],)),
        Sample(((1, 2, 3, 4),), ([1, 0, 2, 1], 0.5)),
        Sample(((2, 5, 6),), ([-1, 2, 1, -2], -1.0)),
    ],
)
def constant_pad(b: Lowering, self: Value, pad: Sequence[int], value: float = 0) -> Value:
    """A constant in the parameters of the result; a negative amount cuts off."""
    x = self if self.quant is None or b.wanted is None else b.settle(self, *b.wanted)
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
            raise Unsupported("values with a scale for each channel are not padded")
        low, high = x.dtype.range
        fill = min(max(round(value / scale + zero), low), high) if math.isfinite(value) else (
            high if value > 0 else low)  # fmt: skip
    return b.marked(b.PAD(x, b.shape(grown), b.const([fill], x.dtype)), x.quant)


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


def _padded(b: Lowering, x: Value, pad: Sequence[int], mode: str) -> Value:
    for i in range(len(pad) // 2):
        axis = x.type.rank - 1 - i
        if pad[2 * i] or pad[2 * i + 1]:
            places = _outside(pad[2 * i], x.shape[axis], pad[2 * i + 1], mode)
            x = moves.take(b, x, axis, places)
    return x


@rule(
    "aten.pad.default",
    policy="SHARED",
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


@rule(
    "aten.reflection_pad1d.default",
    policy="SHARED",
    samples=[Sample(((2, 3, 5),), ([2, 1],)), Sample(((3, 5),), ([0, 4],))],
)
@rule(
    "aten.reflection_pad2d.default",
    policy="SHARED",
    samples=[Sample(((1, 2, 4, 5),), ([1, 1, 1, 1],)), Sample(((2, 4, 5),), ([3, 0, 2, 3],))],
)
@rule(
    "aten.reflection_pad3d.default",
    policy="SHARED",
    samples=[Sample(((1, 2, 3, 4, 5),), ([1, 2, 1, 0, 2, 1],))],
)
def reflection_pad(b: Lowering, self: Value, padding: Sequence[int]) -> Value:
    return _padded(b, self, padding, "reflect")


@rule(
    "aten.replication_pad1d.default",
    policy="SHARED",
    samples=[Sample(((2, 3, 5),), ([2, 1],)), Sample(((3, 5),), ([0, 7],))],
)
@rule(
    "aten.replication_pad2d.default",
    policy="SHARED",
    samples=[Sample(((1, 2, 4, 5),), ([1, 1, 1, 1],)), Sample(((2, 4, 5),), ([6, 0, 2, 3],))],
)
@rule(
    "aten.replication_pad3d.default",
    policy="SHARED",
    samples=[Sample(((1, 2, 3, 4, 5),), ([1, 2, 1, 0, 2, 1],))],
)
def replication_pad(b: Lowering, self: Value, padding: Sequence[int]) -> Value:
    return _padded(b, self, padding, "replicate")
