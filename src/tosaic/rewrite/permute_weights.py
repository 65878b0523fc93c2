"""Depth-to-space behind a product: its weights are permuted so that it writes pixels in place.

A transposition from [H, W, channels] to [H, rows, W, columns, channels] needs no work where one
product for each of the rows is written beside the others, since a CONCAT along the columns has
them in that order; channels are ordered by the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.ir.graph import Array, Op, Value
from tosaic.rewrite.axes import merged_axes
from tosaic.rewrite.epilogue import again, chain, product_of
from tosaic.rewrite.match import Matcher, form

_MOST_PARTS = 8
_MOST_FRONT = 64
_PRODUCTS = ("CONV2D", "DEPTHWISE_CONV2D")


def _places(shape: Sequence[int], perms: Sequence[int], image: Sequence[int]) -> Array | None:
    """Channels of an image by row, then all else, then what goes before the rows; or None."""
    axes = [axis for axis, size in enumerate(shape) if size != 1]
    order = [p for p in perms if shape[p] != 1]
    if image[0] != 1 or min(image[1:3]) < 2 or len(axes) < 4:
        return None
    high, wide, *split = axes
    if (shape[high], shape[wide]) != tuple(image[1:3]) or order.index(high) > order.index(wide):
        return None
    before, after = order.index(high), order.index(wide)
    outer, rows, inner = order[:before], order[before + 1 : after], order[after + 1 :]
    if not rows:
        return None
    permuted = [split.index(axis) for axis in (*rows, *inner, *outer)]
    places = np.arange(image[3]).reshape([shape[a] for a in split]).transpose(permuted)
    count = int(np.prod([shape[a] for a in outer]))
    return places.reshape(int(np.prod([shape[a] for a in rows])), -1, count)


@form("TRANSPOSE")
def place_channels(m: Matcher, op: Op) -> Value | None:
    """The parts of a product in their rows and columns; a transposition of two axes may be left."""
    reshape = m.made_by(op.ins[0], "RESHAPE") if m.only(op.ins[0]) else None
    if reshape is None or reshape.ins[0].type.rank != 4 or not m.only(reshape.ins[0]):
        return None
    last = reshape.ins[0].producer
    found = chain(m, last, *_PRODUCTS) if last is not None and last in m.place else None
    places = _places(op.ins[0].shape, op.attrs["perms"], reshape.ins[0].shape)
    if found is None or places is None or len(places) > _MOST_PARTS:
        return None
    product, *functions = found
    if not (product.operand("weight").is_const and product.operand("bias").is_const):
        return None
    source = product.ins[0]
    if product.name == "DEPTHWISE_CONV2D":
        times = places[0].size // source.shape[3]
        if any((part.reshape(times, -1) // product.operand("weight").shape[3]
                != np.arange(source.shape[3])).any() for part in places):  # fmt: skip
            return None
        source = m.b.CONCAT(*[source] * times, axis=3) if times > 1 else source
    parts = [
        again(m, product_of(m, product, source, part.reshape(-1)), functions, part.reshape(-1))
        for part in places
    ]
    whole, outer = m.b.CONCAT(*parts, axis=2), places.shape[2]
    if outer > 1:
        rows = m.b.RESHAPE(whole, m.b.shape((op.outs[0].type.size // outer, outer)))
        whole = m.b.TRANSPOSE(rows, perms=(1, 0))
    return m.b.RESHAPE(whole, m.b.shape(op.outs[0].shape))


@form("TRANSPOSE")
def front_channels(m: Matcher, op: Op) -> Value | None:
    """[places, parts, channels] as [parts, places, channels]: a product for each part."""
    extents, perms = merged_axes(op.ins[0].shape, op.attrs["perms"])
    reshape = m.made_by(op.ins[0], "RESHAPE") if m.only(op.ins[0]) else None
    if reshape is None or perms != [1, 0, 2] or not m.only(reshape.ins[0]):
        return None
    last = reshape.ins[0].producer
    found = chain(m, last, "CONV2D") if last is not None and last in m.place else None
    _, count, size = extents
    if found is None or found[0].outs[0].shape[3] != count * size or count > _MOST_FRONT:
        return None
    product, *functions = found
    if not (product.operand("weight").is_const and product.operand("bias").is_const):
        return None
    parts = []
    for index in range(count):
        channels = np.arange(index * size, (index + 1) * size)
        parts.append(
            again(m, product_of(m, product, product.ins[0], channels), functions, channels)
        )
    whole = m.b.CONCAT(*parts, axis=0 if parts[0].shape[0] > 1 else 1)
    return m.b.RESHAPE(whole, m.b.shape(op.outs[0].shape))
