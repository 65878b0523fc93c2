"""Equal forms of TRANSPOSE: over fewer axes, in steps, or as a product with a 0/1 matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tosaic.ir.graph import Array, Op, Value
from tosaic.rewrite.axes import merged_axes
from tosaic.rewrite.match import Matcher, form, rewrite, sizes
from tosaic.spec.dtypes import I8, I16, I32, I48

_FEW = 16  # channels that a product may pick apart: its work grows with their number
_CHANNELS = 256  # that a product may put in another order
_PIECES = 4  # that a transposition may be cut into
_SUMS = {I8: I32, I16: I48}  # types that a product can pick, and what it adds them up in
_BLOCKS = (8, 4, 2, 1)  # neighbours that are moved together; more are more work for products


@form("TRANSPOSE")
def slice_later(m: Matcher, op: Op) -> Value | None:
    """A piece of the transposition: most operators read a piece for nothing, a TRANSPOSE not."""
    piece = m.made_by(op.ins[0], "SLICE")
    start, size = (sizes(v) for v in piece.ins[1:]) if piece is not None else (None, None)
    if piece is None or start is None or size is None or not m.only(op.ins[0]):
        return None
    perms = op.attrs["perms"]
    transposed = m.b.TRANSPOSE(piece.ins[0], perms=perms)
    ends = [m.b.shape([numbers[p] for p in perms]) for numbers in (start, size)]
    return m.b.SLICE(transposed, *ends)


@form("TRANSPOSE")
def merge_axes(m: Matcher, op: Op) -> Value | None:
    """Neighbours that stay neighbours are moved as one axis."""
    extents, perms = merged_axes(op.ins[0].shape, op.attrs["perms"])
    if len(extents) == op.ins[0].type.rank:
        return None
    transposed = m.b.TRANSPOSE(m.b.RESHAPE(op.ins[0], m.b.shape(extents)), perms=perms)
    return m.b.RESHAPE(transposed, m.b.shape(op.outs[0].shape))


@rewrite("TRANSPOSE")
def merge_many_axes(m: Matcher, op: Op) -> Value | None:
    """The same for a tensor of more than four axes, which a device's compiler is not made for."""
    many = 0 < m.traits.most_axes < op.ins[0].type.rank
    return merge_axes(m, op) if m.forms and many else None


@form("TRANSPOSE")
def turn_in_steps(m: Matcher, op: Op) -> Value | None:
    """A block of axes past its neighbours at a time: three axes, of which two change places."""
    extents, perms = merged_axes(op.ins[0].shape, op.attrs["perms"])
    if len(extents) <= m.traits.transposed_axes:
        return None
    value, order = op.ins[0], list(range(len(extents)))
    for place, axis in enumerate(perms):
        found = order.index(axis)
        groups = order[:place], order[place:found], order[found : found + 1], order[found + 1 :]
        before, between, block, behind = (math.prod(extents[a] for a in g) for g in groups)
        order = [*groups[0], *groups[2], *groups[1], *groups[3]]
        if found == place:
            continue
        if behind == 1 and before > 1:
            value = _transposed(m, value, (before, between, block), (0, 2, 1))
            continue
        value = _transposed(m, value, (before * between, block, behind), (1, 0, 2))
        if before > 1:  # the block went to the very front, and back to its place
            value = _transposed(m, value, (block, before, between * behind), (1, 0, 2))
    return m.b.RESHAPE(value, m.b.shape(op.outs[0].shape))


@form("TRANSPOSE")
def split_few(m: Matcher, op: Op) -> Value | None:
    """[N, C, M] as [C, N, M] for small C: a SLICE for each channel, which are joined."""
    extents, perms = merged_axes(op.ins[0].shape, op.attrs["perms"])
    if perms != [1, 0, 2] or extents[1] > _PIECES:
        return None
    count, channels, size = extents
    rows = m.b.RESHAPE(op.ins[0], m.b.shape(extents))
    parts = [
        m.b.RESHAPE(
            m.b.SLICE(rows, m.b.shape((0, channel, 0)), m.b.shape((count, 1, size))),
            m.b.shape((1, count, size)),
        )
        for channel in range(channels)
    ]
    return m.b.RESHAPE(m.b.CONCAT(*parts, axis=0), m.b.shape(op.outs[0].shape))


@form("TRANSPOSE")
def shuffle_channels(m: Matcher, op: Op) -> Value | None:
    """[N, A, B] as [N, B, A] for few A · B: a product that puts channels in another order."""
    order = channel_order(op)
    if order is None or op.ins[0].dtype not in _SUMS:
        return None
    channels = len(order)
    weights = np.zeros((channels, 1, 1, channels))
    weights[range(channels), 0, 0, order] = 1
    rows = m.b.RESHAPE(op.ins[0], m.b.shape((1, 1, op.ins[0].type.size // channels, channels)))
    return m.b.RESHAPE(_picked(m, rows, weights), m.b.shape(op.outs[0].shape))


@form("GATHER")
def gather_by_product(m: Matcher, op: Op) -> Value | None:
    """Rows at constant places, if they are few: a product over rows that are channels."""
    values, indices = op.ins
    batch, count, size = values.shape
    most = max(count, indices.shape[1])
    if batch != 1 or indices.const is None or most > _CHANNELS or values.dtype not in _SUMS:
        return None
    places = indices.const.array.reshape(-1)
    weights = np.zeros((len(places), 1, 1, count))
    weights[range(len(places)), 0, 0, places] = 1
    rows = m.b.TRANSPOSE(values, perms=(0, 2, 1))
    picked = _picked(m, m.b.RESHAPE(rows, m.b.shape((1, 1, size, count))), weights)
    last = m.b.RESHAPE(picked, m.b.shape((1, size, len(places))))
    return m.b.TRANSPOSE(last, perms=(0, 2, 1))


def channel_order(op: Op) -> Array | None:
    """Where each channel of a TRANSPOSE within the last axes was before, if they are few."""
    extents, perms = merged_axes(op.ins[0].shape, op.attrs["perms"])
    if perms != [0, 2, 1] or math.prod(extents[1:]) > _CHANNELS:
        return None
    order: Array = np.arange(math.prod(extents[1:])).reshape(extents[1:]).T.reshape(-1)
    return order


def _transposed(m: Matcher, value: Value, shape: Sequence[int], perms: Sequence[int]) -> Value:
    return m.b.TRANSPOSE(m.b.RESHAPE(value, m.b.shape(shape)), perms=perms)


@form("TRANSPOSE")
def gather_channels(m: Matcher, op: Op) -> Value | None:
    """[C, N] as [N, C]: a kernel of C rows picks one element of each row at a time."""
    extents, perms = merged_axes(op.ins[0].shape, op.attrs["perms"])
    if perms != [1, 0] or extents[0] > _FEW or op.ins[0].dtype not in _SUMS:
        return None
    channels, count = extents
    block = next(n for n in _BLOCKS if count % n == 0)
    weights = np.zeros((block, channels, channels, 1, block))
    for place in range(block):
        weights[place, range(channels), range(channels), 0, place] = 1
    rows = m.b.RESHAPE(op.ins[0], m.b.shape((1, channels, count // block, block)))
    picked = _picked(m, rows, weights.reshape(block * channels, channels, 1, block))
    return m.b.RESHAPE(picked, m.b.shape(op.outs[0].shape))


@form("TRANSPOSE")
def split_channels(m: Matcher, op: Op) -> Value | None:
    """[N, C] as [C, N]: a product for each channel, which picks it from a block of elements."""
    extents, perms = merged_axes(op.ins[0].shape, op.attrs["perms"])
    if perms != [1, 0] or extents[1] > _FEW or op.ins[0].dtype not in _SUMS:
        return None
    count, channels = extents
    block = next(n for n in _BLOCKS if count % n == 0)
    rows = m.b.RESHAPE(op.ins[0], m.b.shape((1, 1, count // block, block * channels)))
    weights = np.zeros((channels, block, 1, 1, block, channels))
    for channel in range(channels):
        weights[channel, range(block), 0, 0, range(block), channel] = 1
    shape = (channels, block, 1, 1, block * channels)
    parts = [_picked(m, rows, each) for each in weights.reshape(shape)]
    return m.b.RESHAPE(m.b.CONCAT(*parts, axis=1), m.b.shape(op.outs[0].shape))


def _picked(m: Matcher, x: Value, weights: Array) -> Value:
    """A convolution with weights of 0 and 1, of which each result has a single 1."""
    return m.b.levels(m.b.layer("CONV2D", x, weights, acc=_SUMS[x.dtype]), x.dtype)
