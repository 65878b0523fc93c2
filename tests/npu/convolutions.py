"""Families of convolutions and matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu.maker import Maker
from npu.registry import family
from tosaic.ir.graph import Graph, Value
from tosaic.spec.dtypes import I4, I8, I16, I32, I48, DType


def convolve(
    m: Maker,
    x: Value,
    weight: Value | np.ndarray,
    kind: DType = I8,
    op: str = "CONV2D",
    zero_points: tuple[int, int] = (0, 0),
    **attrs: Any,
) -> Value:
    """The accumulator of a convolution with a random bias."""
    acc = I48 if x.dtype is I16 else I32
    held = weight if isinstance(weight, Value) else m.b.const(weight, kind)
    channels = held.shape[0] if op != "DEPTHWISE_CONV2D" else held.shape[2] * held.shape[3]
    bias = m.bias(acc, channels, 1e6 if acc is I48 else 1e4)
    zeros = m.zero(x.dtype, zero_points[0]), m.zero(held.dtype, zero_points[1])
    return m.b.op(op, x, held, bias, *zeros, acc_type=acc, **attrs)


def layer(
    m: Maker,
    x: Value,
    channels: int,
    kernel: int = 3,
    stride: int = 1,
    to: DType | None = None,
    op: str = "CONV2D",
    zero_point: int = 0,
    **settle: Any,
) -> Value:
    """A convolution that keeps the picture's size (stride 1), settled to the input's type."""
    inside = x.shape[3]
    shape = (channels, kernel, kernel, inside)
    if op == "DEPTHWISE_CONV2D":
        shape = (kernel, kernel, inside, 1)
    pads = []
    for size in x.shape[1:3]:
        outs = -(-size // stride)
        total = max(0, (outs - 1) * stride + kernel - size)
        pads += [total // 2, total - total // 2]
        if (size - 1 + total - (kernel - 1)) % stride:
            raise ValueError(f"{size} pixels do not suit kernel {kernel} and stride {stride}")
    acc = convolve(
        m, x, m.weights(I8, shape), op=op, zero_points=(zero_point, 0), pad=pads,
        stride=(stride, stride), dilation=(1, 1),
    )  # fmt: skip
    return m.settle(acc, to or x.dtype, **settle)


def spatial(m: Maker, stride: int, dilation: int, most: int = 5) -> dict[str, Any]:
    """Input sizes and attributes of a convolution with two random window shapes."""
    sizes, pads, kernel, strides, dilations = [], [], [], [], []
    for _ in "HW":
        k, s, d = m.size(1, most), m.size(1, stride), m.size(1, dilation)
        size, before, after = m.window(m.size(1, 8), k, s, d)
        if size < d:  # Vela takes the input apart by dilation: no part may be empty
            d = 1
            size, before, after = m.window(m.size(1, 8), k, s, d)
        sizes.append(size)
        pads += [before, after]
        kernel.append(k)
        strides.append(s)
        dilations.append(d)
    return {
        "size": sizes, "kernel": kernel, "pad": pads, "stride": strides, "dilation": dilations
    }  # fmt: skip


def enough(m: Maker, where: dict[str, Any], channels: int) -> int:
    """Output channels, so many that a result of few pixels still has many values."""
    pixels = 1
    for i, size in enumerate(where["size"]):
        pad = where["pad"][2 * i : 2 * i + 2]
        reach = (where["kernel"][i] - 1) * where["dilation"][i]
        pixels *= (size - 1 + sum(pad) - reach) // where["stride"][i] + 1
    return max(m.size(1, channels), -(-40 // pixels))


def random_conv(
    m: Maker, stride: int = 1, dilation: int = 1, most: int = 5, kind: DType = I8,
    activation: DType = I8, batch: int = 1, weight_zp: int = 0,
) -> Value:  # fmt: skip
    where = spatial(m, stride, dilation, most)
    (height, width), (kh, kw) = where.pop("size"), where["kernel"]
    outs = enough(m, where | {"size": (height, width)}, 40)
    del where["kernel"]
    inside = m.size(1, 40)
    x = m.input(activation, (batch, height, width, inside))
    weight = m.weights(kind, (outs, kh, kw, inside))
    zero_point = m.zero_point() if activation is I8 else 0
    return convolve(m, x, weight, kind, zero_points=(zero_point, weight_zp), **where)


@family()
def conv2d(m: Maker) -> Graph:
    acc = random_conv(m)
    return m.finish(m.settle(acc, I8))


@family()
def conv2d_strided(m: Maker) -> Graph:
    return m.finish(m.settle(random_conv(m, stride=3), I8))


@family()
def conv2d_dilated(m: Maker) -> Graph:
    return m.finish(m.settle(random_conv(m, stride=2, dilation=3, most=4), I8))


@family()
def conv2d_batched(m: Maker) -> Graph:
    return m.finish(m.settle(random_conv(m, most=3, batch=m.size(2, 3)), I8))


@family()
def conv2d_large_kernel(m: Maker) -> Graph:
    return m.finish(m.settle(random_conv(m, most=14), I8))


@family()
def conv2d_clamp(m: Maker) -> Graph:
    return m.finish(m.clamp(m.settle(random_conv(m, stride=2), I8)))


@family()
def conv2d_table(m: Maker) -> Graph:
    return m.finish(m.table(m.settle(random_conv(m, most=3), I8, rounding="SINGLE_ROUND")))


@family()
def conv2d_wide_result(m: Maker) -> Graph:
    """Accumulators as they are, or settled to 16 or 32 bits."""
    acc = random_conv(m, stride=2, most=3)
    return m.finish(m.pick(lambda: acc, lambda: m.settle(acc, I16), lambda: m.settle(acc, I32))())


@family()
def conv2d_weight_zero_point(m: Maker) -> Graph:
    return m.finish(m.settle(random_conv(m, most=3, weight_zp=m.size(-9, 9)), I8))


@family()
def conv2d_int16(m: Maker) -> Graph:
    acc = random_conv(m, stride=2, dilation=2, most=4, activation=I16)
    x = m.settle(acc, m.pick(I16, I16, I8, I32))
    return m.finish(m.clamp(x) if x.dtype is I16 and m.chance(0.3) else x)


@family()
def conv2d_int4(m: Maker) -> Graph:
    return m.finish(m.settle(random_conv(m, stride=2, kind=I4, most=4), I8))


@family()
def conv2d_sparse(m: Maker) -> Graph:
    """Two of every four weights along the input channels are zero."""
    inside, outs, k = 4 * m.size(1, 16), m.size(4, 40), m.pick(1, 3)
    weight = m.weights(I8, (outs, k, k, inside // 4, 4))
    order = m.rng.random(weight.shape).argsort(axis=-1)
    weight = np.where(order < 2, 0, weight).reshape(outs, k, k, inside).astype(np.int8)
    x = m.input(I8, (1, m.size(k, 8), m.size(k, 8), inside))
    acc = convolve(m, x, weight, pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1))
    return m.finish(m.settle(acc, I8))


@family()
def conv2d_palette(m: Maker) -> Graph:
    """Weights of few values, which U85's fast format keeps as indices of 2 or 4 bits."""
    k, inside, outs = m.pick(1, 2, 3), m.size(8, 70), m.size(12, 60)
    values = np.unique(m.draw(I8, (m.pick(2, 3, 4, 9, 14),)).clip(-127, 127))
    weight = m.rng.choice(values, (outs, k, k, inside)).astype(np.int8)
    x = m.input(I8, (1, m.size(k, 6), m.size(k, 6), inside))
    acc = convolve(m, x, weight, pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1))
    return m.finish(m.settle(acc, I8))


@family()
def conv2d_many_channels(m: Maker) -> Graph:
    """More input and output channels than one block of weights holds."""
    inside, outs, k = m.size(66, 160), m.pick(m.size(40, 90), m.size(260, 300)), m.pick(1, 1, 2)
    x = m.input(I8, (1, m.size(k, 4), m.size(k, 4), inside))
    acc = convolve(
        m, x, m.weights(I8, (outs, k, k, inside)), zero_points=(m.zero_point(), 0),
        pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1),
    )  # fmt: skip
    return m.finish(m.settle(acc, I8))


def random_depthwise(m: Maker, activation: DType = I8, stride: int = 3) -> Value:
    where = spatial(m, stride, 2)
    (height, width), (kh, kw) = where.pop("size"), where["kernel"]
    multiplier = m.pick(1, 1, 1, 2, 3)
    channels = enough(m, where | {"size": (height, width)}, 40)
    del where["kernel"]
    x = m.input(activation, (m.pick(1, 1, 2), height, width, channels))
    weight = m.weights(I8, (kh, kw, channels, multiplier))
    zero_point = m.zero_point() if activation is I8 else 0
    return convolve(m, x, weight, op="DEPTHWISE_CONV2D", zero_points=(zero_point, 0), **where)


@family()
def depthwise(m: Maker) -> Graph:
    x = m.settle(random_depthwise(m), I8)
    return m.finish(m.clamp(x) if m.chance(0.4) else x)


@family()
def depthwise_large_kernel(m: Maker) -> Graph:
    """Kernels of more elements than the NPU takes in one round."""
    kernel, channels, stride = (m.size(3, 7), m.size(4, 9)), m.size(3, 40), m.size(1, 2)
    sizes = [k + stride * m.size(1, 4) for k in kernel]
    x = m.input(m.pick(I8, I8, I16), (1, *sizes, channels))
    acc = convolve(
        m, x, m.weights(I8, (*kernel, channels, 1)), op="DEPTHWISE_CONV2D", pad=(0, 0, 0, 0),
        zero_points=(m.zero_point() if x.dtype is I8 else 0, 0), stride=(stride, stride),
        dilation=(1, 1),
    )  # fmt: skip
    return m.finish(m.settle(acc, x.dtype))


@family()
def depthwise_int16(m: Maker) -> Graph:
    return m.finish(m.settle(random_depthwise(m, I16), I16))


@family()
def transpose_conv(m: Maker) -> Graph:
    activation = m.pick(I8, I8, I16) if m.u85 else I8
    stride = (m.size(1, 4), m.size(1, 4)) if m.u85 else m.pick((1, 1), (2, 2))
    kernel = m.size(1, 5), m.size(1, 5)
    lowest = [max(1 - k, -2) for k in kernel]
    pads = []
    for low in lowest:
        pads += [m.size(low, 2 if m.u85 else 0), m.size(low, 1)]
    x = m.input(activation, (1, m.size(3, 7), m.size(3, 7), m.size(1, 24)))
    weight = m.weights(I8, (m.size(3, 24), *kernel, x.shape[3]))
    zero_point = m.zero_point() if activation is I8 else 0
    acc = convolve(
        m, x, weight, op="TRANSPOSE_CONV2D", zero_points=(zero_point, 0), out_pad=pads,
        stride=stride,
    )  # fmt: skip
    return m.finish(m.settle(acc, activation))


@family()
def fully_connected(m: Maker) -> Graph:
    inside, outs, batch = m.size(3, 300), m.size(20, 160), m.size(1, 6)
    shape = m.pick((batch, 1, 1, inside), (1, batch, 1, inside), (1, 1, batch, inside))
    activation = m.pick(I8, I8, I16)
    x = m.b.RESHAPE(m.input(activation, (batch, inside)), m.b.shape(shape))
    acc = convolve(
        m, x, m.weights(I8, (outs, 1, 1, inside)), pad=(0, 0, 0, 0), stride=(1, 1),
        zero_points=(m.zero_point() if activation is I8 else 0, 0), dilation=(1, 1),
    )  # fmt: skip
    return m.finish(m.b.RESHAPE(m.settle(acc, activation), m.b.shape((batch, outs))))


@family()
def conv3d(m: Maker) -> Graph:
    depth = m.size(1, 3) if m.u85 else 1
    kernel = (depth, m.size(1, 3), m.size(1, 3))
    inside, outs = m.size(1, 20), m.size(8, 24)
    pads = [m.size(0, k - 1) for k in kernel for _ in "ab"]
    sizes = [m.size(k, k + 4) for k in kernel]
    x = m.input(I8, (1, *sizes, inside))
    acc = convolve(
        m, x, m.weights(I8, (outs, *kernel, inside)), op="CONV3D", pad=pads, stride=(1, 1, 1),
        zero_points=(m.zero_point(), 0), dilation=(1, 1, 1),
    )  # fmt: skip
    return m.finish(m.settle(acc, I8))


@family()
def matmul(m: Maker) -> Graph:
    kind = m.pick(I8, I8, I16) if m.u85 else I8
    high = 16 if m.u85 else 6
    batch, rows, inner, columns = m.size(1, 3), m.size(3, high), m.size(1, 40), m.size(8, 20)
    a, b = m.input(kind, (batch, rows, inner)), m.input(kind, (batch, inner, columns))
    zeros = [m.zero(kind, m.zero_point() if kind is I8 else 0) for _ in "ab"]
    return m.finish(m.settle(m.b.MATMUL(a, b, *zeros), kind, per_channel=False))


@family("u85")
def conv2d_given_weights(m: Maker) -> Graph:
    """The weights are an input of the graph."""
    k, inside, outs = m.pick(1, 2, 3), m.size(1, 20), m.size(6, 24)
    x = m.input(I8, (1, m.size(k, 8), m.size(k, 8), inside))
    weight = m.input(I8, (outs, k, k, inside))
    acc = convolve(
        m, x, weight, zero_points=(m.zero_point(), 0), pad=(0, 0, 0, 0), stride=(1, 1),
        dilation=(1, 1),
    )  # fmt: skip
    return m.finish(m.settle(acc, I8, per_channel=False))
