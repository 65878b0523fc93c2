"""Steps of the hunt that are layers of vision networks, on maps that do not fit a small arena.

There Vela cascades convolutions by stripes and buffers their weights. Channels are odd in number,
weights are int4 or shared, and earlier maps are added and joined long after they were made.
"""

from __future__ import annotations

import numpy as np

from npu.convolutions import convolve
from npu.maker import UNIT, Maker
from npu.operators import Step, need
from tosaic.ir.graph import Value
from tosaic.spec.dtypes import I4, I8, I16, I32

LARGEST = 30000  # elements of a map


def picture(m: Maker) -> Value:
    """An input: an image or an inner map."""
    size = m.pick(8, 12, 17, 24, 32)
    return m.input(m.pick(I8, I8, I8, I16), (m.pick(1, 1, 1, 2), size, m.pick(size, 9, 20),
                                             m.pick(1, 2, 3, 4, 8, 13, 16, 24)))  # fmt: skip


def _channels(m: Maker) -> int:
    return m.pick(1, 2, 3, 8, 15, 16, 17, 24, 32, 33, 40, 48, 64, m.size(1, 70))


def _pads(x: Value, kernel: tuple[int, int], stride: int, gap: int) -> list[int]:
    """Padding with which a map keeps its size, divided by the stride."""
    pads = []
    for size, taps in zip(x.shape[1:3], kernel):
        reach, outs = (taps - 1) * gap, -(-size // stride)
        total = max(0, (outs - 1) * stride + reach + 1 - size)
        pads += [total // 2, total - total // 2]
        need((size + total - reach - 1) % stride == 0)
    return pads


def _settled(m: Maker, acc: Value, x: Value) -> Value:
    return m.settle(acc, x.dtype, rounding="SINGLE_ROUND")


def layer(m: Maker, x: Value) -> Value:
    """A convolution, plain or depthwise, and perhaps an activation."""
    need(x.type.rank == 4 and x.dtype in (I8, I16))
    side, stride, gap = m.pick(1, 1, 3, 3, 3, 5, 7), m.pick(1, 1, 1, 2), m.pick(1, 1, 1, 2)
    kernel = m.pick((side, side), (side, side), (1, side), (side, 1))
    name, inside = m.pick("CONV2D", "CONV2D", "DEPTHWISE_CONV2D"), x.shape[3]
    shape = (_channels(m), *kernel, inside) if name == "CONV2D" else (
        *kernel, inside, m.pick(1, 1, 1, 2)
    )  # fmt: skip
    kind = I4 if x.dtype is I8 and m.chance(0.2) else I8
    points = (m.size(-9, 9) if x.dtype is I8 else 0, m.size(-3, 3) if kind is I8 else 0)
    acc = convolve(
        m, x, m.weights(kind, shape), kind, name, points if m.chance(0.3) else (0, 0),
        pad=_pads(x, kernel, stride, gap), stride=(stride, stride), dilation=(gap, gap),
    )  # fmt: skip
    made = _settled(m, acc, x)
    if m.chance(0.4):
        return m.clamp(made)
    return m.table(made) if made.dtype is I8 and m.chance(0.2) else made


def block(m: Maker, x: Value) -> Value:
    """Two layers and what came in, added."""
    made = layer(m, layer(m, x))
    need(made.shape[:3] == x.shape[:3])
    if made.shape != x.shape:
        weights = m.weights(I8, (x.shape[3], 1, 1, made.shape[3]))
        made = _settled(m, convolve(m, made, weights, pad=(0,) * 4, stride=(1, 1),
                                    dilation=(1, 1)), x)  # fmt: skip
    return _sum(m, x, made)


def _sum(m: Maker, a: Value, b: Value) -> Value:
    top = 19 if a.dtype is I8 else 14
    ratio = m.scales(np.array([float(m.rng.uniform(0.05, 0.99)) * 2.0**top]), wide=True)
    scales = m.pick((UNIT, UNIT), ((1 << 30, 30 - top), tuple(int(v[0]) for v in ratio)))
    wide = [m.rescale(v, scale, I32) for v, scale in zip((a, b), scales)]
    made = m.settle(m.b.ADD(*wide), a.dtype, per_channel=False, rounding="SINGLE_ROUND")
    return m.clamp(made) if m.chance(0.3) else made


def added(m: Maker, x: Value) -> Value:
    """A sum with any earlier map of the shape."""
    return _sum(m, x, m.pick(*_alike(m, x, x.shape)))


def joined(m: Maker, x: Value) -> Value:
    """Channels beside those of an earlier map of the size."""
    need(x.type.rank == 4)
    other = m.pick(*_alike(m, x, x.shape[:3]))
    return m.b.CONCAT(*m.pick((x, other), (other, x)), axis=3)


def _alike(m: Maker, x: Value, shape: tuple[int, ...]) -> list[Value]:
    made = [v for op in m.b.graph.ops for v in op.outs]
    found = [v for v in made if v.dtype is x.dtype and v.shape[: len(shape)] == shape
             and v.type.rank == x.type.rank and v is not x]  # fmt: skip
    need(bool(found))
    return found


def pooled(m: Maker, x: Value) -> Value:
    need(x.type.rank == 4 and x.dtype in (I8, I16))
    size = m.pick((2, 2), (3, 3), tuple(x.shape[1:3]))
    stride = m.pick(1, 2) if size[0] < 4 else 1
    pads = _pads(x, size, stride, 1) if size[0] < 4 else [0] * 4
    need(max(pads) < size[0])
    how = {"kernel": size, "stride": (stride, stride), "pad": pads}
    if m.chance(0.5):
        return m.b.MAX_POOL2D(x, **how)
    return m.b.AVG_POOL2D(x, m.zero(x.dtype), m.zero(x.dtype), acc_type=I32, **how)


def gated(m: Maker, x: Value) -> Value:
    """A global mean through two products and a table, times the map."""
    need(x.type.rank == 4 and x.dtype is I8)
    mean = m.b.AVG_POOL2D(x, m.zero(I8), m.zero(I8), kernel=x.shape[1:3], stride=(1, 1),
                          pad=(0,) * 4, acc_type=I32)  # fmt: skip
    hidden = m.size(1, 12)
    for shape in ((hidden, 1, 1, x.shape[3]), (x.shape[3], 1, 1, hidden)):
        mean = _settled(m, convolve(m, mean, m.weights(I8, shape), pad=(0,) * 4, stride=(1, 1),
                                    dilation=(1, 1)), x)  # fmt: skip
    product = m.b.MUL(x, m.table(mean), m.zero(I8))
    return m.settle(product, I8, per_channel=False, rounding="SINGLE_ROUND")


def enlarged(m: Maker, x: Value) -> Value:
    need(x.type.rank == 4 and x.dtype in (I8, I16))
    shapes = [m.b.shape(numbers) for numbers in ((4, 2, 4, 2), (-1, -1), (1, 1))]
    return m.b.RESIZE(x, *shapes, mode="NEAREST_NEIGHBOR", out=x.dtype)


def shuffled(m: Maker, x: Value) -> Value:
    """Channels by groups in turn."""
    need(x.type.rank == 4)
    count = m.pick(*(n for n in range(1, x.shape[3] + 1) if x.shape[3] % n == 0))
    split = m.b.RESHAPE(x, m.b.shape((*x.shape[:3], count, x.shape[3] // count)))
    return m.b.RESHAPE(m.b.TRANSPOSE(split, perms=(0, 1, 2, 4, 3)), m.b.shape(x.shape))


def grouped(m: Maker, x: Value) -> Value:
    """A convolution for each half of the channels."""
    need(x.type.rank == 4 and x.shape[3] > 1)
    half, made = x.shape[3] // 2, []
    for start, size in ((0, half), (half, x.shape[3] - half)):
        starts, sizes = (0, 0, 0, start), (*x.shape[:3], size)
        made.append(layer(m, m.b.SLICE(x, m.b.shape(starts), m.b.shape(sizes))))
    need(made[0].shape[:3] == made[1].shape[:3])
    return m.b.CONCAT(*made, axis=3)


STEPS: tuple[Step, ...] = (
    layer, layer, layer, block, added, joined, pooled, gated, enlarged, shuffled, grouped
)  # fmt: skip
