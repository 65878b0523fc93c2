"""pixel_shuffle, pixel_unshuffle and channel_shuffle."""

from __future__ import annotations

import math

from tosaic.front.registry import Sample, shared
from tosaic.ir.graph import Value
from tosaic.lowering.builder import Lowering


@shared(
    "aten.pixel_shuffle.default",
    samples=[
        Sample(((1, 8, 2, 3),), (2,)),
        Sample(((2, 9, 2, 2),), (3,)),
        Sample(((4, 3, 2),), (2,)),
    ],
)
def pixel_shuffle(b: Lowering, self: Value, upscale_factor: int) -> Value:
    r, (channels, height, width) = upscale_factor, self.shape[-3:]
    outer, kept = self.shape[:-3], channels // r**2
    blocks = b.reshape(self, (math.prod(outer), kept, r, r, height, width))
    pixels = b.permute(blocks, (0, 1, 4, 2, 5, 3))
    return b.reshape(pixels, (*outer, kept, height * r, width * r))


@shared(
    "aten.pixel_unshuffle.default",
    samples=[
        Sample(((1, 2, 4, 6),), (2,)),
        Sample(((2, 1, 6, 3),), (3,)),
        Sample(((1, 4, 2),), (2,)),
    ],
)
def pixel_unshuffle(b: Lowering, self: Value, downscale_factor: int) -> Value:
    r, (channels, height, width) = downscale_factor, self.shape[-3:]
    outer, rows, columns = self.shape[:-3], height // r, width // r
    pixels = b.reshape(self, (math.prod(outer), channels, rows, r, columns, r))
    blocks = b.permute(pixels, (0, 1, 3, 5, 2, 4))
    return b.reshape(blocks, (*outer, channels * r**2, rows, columns))


@shared(
    "aten.channel_shuffle.default",
    samples=[Sample(((1, 6, 2, 3),), (2,)), Sample(((2, 8, 3, 2),), (4,))],
)
def channel_shuffle(b: Lowering, self: Value, groups: int) -> Value:
    batch, channels, *pixels = self.shape
    grouped = b.reshape(self, (batch, groups, channels // groups, *pixels))
    transposed = b.permute(grouped, (0, 2, 1, *range(3, 3 + len(pixels))))
    return b.reshape(transposed, self.shape)
