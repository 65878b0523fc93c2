"""Families that move data: concatenation, slices, padding, transposition, resizing, gathering."""

from __future__ import annotations

import numpy as np

from npu.convolutions import layer
from npu.maker import Maker
from npu.registry import family
from tosaic.ir.graph import Graph, Value
from tosaic.spec.dtypes import I8, I16, I32


@family()
def concat(m: Maker) -> Graph:
    kind, shape = m.pick(I8, I16, I32), m.shape(m.size(1, 5))
    axis = m.size(0, len(shape) - 1)
    parts = []
    for _ in range(m.size(2, 4)):
        part = list(shape)
        part[axis] = m.size(1, 7)
        parts.append(m.either(kind, part) if parts else m.input(kind, part))
    return m.finish(m.b.CONCAT(*parts, axis=axis))


@family()
def concat_of_convs(m: Maker) -> Graph:
    x = m.input(I8, (1, m.size(3, 9), m.size(3, 9), m.size(2, 20)))
    branches = [layer(m, x, m.size(3, 24), m.pick(1, 3)) for _ in range(m.size(2, 3))]
    joined = m.b.CONCAT(*branches, axis=3)
    return m.finish(layer(m, joined, m.size(4, 20), 1) if m.chance(0.5) else joined)


def _sliced(m: Maker, x: Value) -> Value:
    sizes = [m.size(-(-s // 2), s) for s in x.shape]
    starts = [m.size(0, s - n) for s, n in zip(x.shape, sizes, strict=True)]
    return m.b.SLICE(x, m.b.shape(starts), m.b.shape(sizes))


@family()
def slices(m: Maker) -> Graph:
    kind = m.pick(I8, I16, I32)
    x = m.input(kind, m.shape(m.size(1, 5), high=12))
    return m.finish(_sliced(m, x))


@family()
def slice_into_conv(m: Maker) -> Graph:
    x = layer(m, m.input(I8, (1, 10, 9, m.size(1, 9))), m.size(10, 40), 3)
    return m.finish(layer(m, _sliced(m, x), m.size(4, 30), m.pick(1, 3)))


@family()
def pad(m: Maker) -> Graph:
    kind, shape = m.pick(I8, I16, I32), m.shape(m.size(1, 4), room=600)
    padding = [m.size(0, 2) for _ in range(2 * len(shape))]
    value = m.b.const(m.draw(kind, (1,)), kind)
    m.fewest = 4
    return m.finish(m.b.PAD(m.input(kind, shape), m.b.shape(padding), value))


@family()
def transpose(m: Maker) -> Graph:
    rank = m.size(2, 5)
    kind = m.pick(I8, I8, I16, I32) if rank < 5 else I8
    perms = m.rng.permutation(rank).tolist()
    return m.finish(m.b.TRANSPOSE(m.input(kind, m.shape(rank)), perms=perms))


@family()
def transpose_round_conv(m: Maker) -> Graph:
    """Channels first outside, channels last within."""
    x = m.input(I8, (1, m.size(2, 12), m.size(4, 9), m.size(4, 9)))
    y = layer(m, m.b.TRANSPOSE(x, perms=(0, 2, 3, 1)), m.size(4, 30), m.pick(1, 3))
    return m.finish(m.b.TRANSPOSE(y, perms=m.pick((0, 3, 1, 2), (0, 2, 1, 3), (0, 3, 2, 1))))


@family()
def reshape_chain(m: Maker) -> Graph:
    a, b, c, d = (m.size(2, 6) for _ in range(4))
    x = m.input(m.pick(I8, I16), (a * b, c, d))
    x = m.b.TRANSPOSE(m.b.RESHAPE(x, m.b.shape((a, b, c, d))), perms=m.rng.permutation(4).tolist())
    flat, rows = (x.shape[0] * x.shape[1], x.shape[2] * x.shape[3]), (a * b * c * d,)
    x = m.b.RESHAPE(x, m.b.shape(m.pick(flat, rows)))
    return m.finish(m.settle(x, x.dtype, per_channel=False))


@family()
def reverse(m: Maker) -> Graph:
    rank = m.size(1, 4) if m.u85 else m.size(2, 4)
    axis = m.size(0, rank - (1 if m.u85 else 2))
    kind = m.pick(I8, I16, I32) if m.u85 else m.pick(I8, I16)
    return m.finish(m.b.REVERSE(m.input(kind, m.shape(rank)), axis=axis))


@family()
def tile(m: Maker) -> Graph:
    rank = m.size(1, 4)
    x = m.input(m.pick(I8, I16, I32), m.shape(rank, high=6, room=300))
    return m.finish(m.b.TILE(x, m.b.shape([m.size(1, 3) for _ in range(rank)])))


def _resize(m: Maker, x: Value, mode: str, scale: list[int], offset: list[int], border: list[int]
) -> Value:  # fmt: skip
    wanted = x.dtype if mode == "NEAREST_NEIGHBOR" else I32
    shapes = [m.b.shape(s) for s in (scale, offset, border)]
    return m.b.RESIZE(x, *shapes, mode=mode, out=wanted)


@family()
def resize_nearest(m: Maker) -> Graph:
    x = m.input(m.pick(I8, I16), (1, m.size(2, 7), m.size(2, 7), m.size(4, 30)))
    if not m.u85 or m.chance(0.5):
        k = m.pick(2, 2, 4, 8)
        scale, offset, border = m.pick(
            ([2 * k, 2] * 2, [1 - k] * 2, [k - 1] * 2), ([k, 1] * 2, [0] * 2, [0] * 2)
        )
    else:
        scale, offset, border = _free_sampling(m, x)
    return m.finish(_resize(m, x, "NEAREST_NEIGHBOR", scale, offset, border))


def _free_sampling(m: Maker, x: Value) -> tuple[list[int], list[int], list[int]]:
    """Any ratio, with a border that makes a whole number of results."""
    scale, offset, border = [], [], []
    for size in x.shape[1:3]:
        n, d = m.size(2, 12), m.size(1, 5)
        low = m.size(-n + 1, n - 1)
        spare = (-((size - 1) * n - low)) % d
        scale += [n, d]
        offset.append(low)
        border.append(spare if spare < n else spare - d * -(-(spare - n + 1) // d))
    return scale, offset, border


@family("u85")
def resize_bilinear(m: Maker) -> Graph:
    x = m.input(I8, (1, m.size(2, 6), m.size(2, 6), m.size(4, 24)))
    if m.chance(0.6):
        k = m.pick(2, 2, 4, 3)
        scale, offset, border = m.pick(
            ([2 * k, 2] * 2, [1 - k] * 2, [k - 1] * 2), ([k, 1] * 2, [0] * 2, [0] * 2)
        )
    else:
        scale, offset, border = _free_sampling(m, x)
    wide = _resize(m, x, "BILINEAR", scale, offset, border)
    form = m.pick("power", "power", "free", "raw")
    if form == "raw":
        return m.finish(wide)
    if form == "power":
        bits = int(np.ceil(np.log2(scale[0] * scale[2])))
        return m.finish(m.rescale(wide, (1 << 30, 30 + bits), I8))
    return m.finish(m.settle(wide, I8, per_channel=False, rounding="SINGLE_ROUND"))


@family("u85")
def gather(m: Maker) -> Graph:
    batch, rows, channels, wanted = m.size(1, 3), m.size(3, 20), m.size(4, 40), m.size(4, 20)
    values = m.input(m.pick(I8, I16, I32), (batch, rows, channels))
    index = m.rng.integers(0, rows, (batch, wanted))
    held = m.b.const(index, I32) if m.chance(0.3) else m.input(I32, index.shape, index)
    return m.finish(m.b.GATHER(values, held))


@family("u85")
def scatter(m: Maker) -> Graph:
    batch, rows, channels = m.size(1, 3), m.size(4, 20), m.size(4, 40)
    given = m.size(2, rows)
    kind = m.pick(I8, I16, I32)
    index = np.stack([m.rng.permutation(rows)[:given] for _ in range(batch)])
    held = m.b.const(index, I32) if m.chance(0.3) else m.input(I32, index.shape, index)
    values = m.input(kind, (batch, rows, channels))
    return m.finish(m.b.SCATTER(values, held, m.input(kind, (batch, given, channels))))
