"""Families of several layers: cascades, residual blocks, branches and loops."""

from __future__ import annotations

import numpy as np

from npu.convolutions import layer
from npu.elementwise import fused_sum
from npu.maker import UNIT, Maker
from npu.registry import family
from tosaic.ir.graph import Graph
from tosaic.spec.dtypes import BOOL, I8, I16, I32


@family()
def cascade(m: Maker) -> Graph:
    """Convolutions on a larger picture, so that Vela works on stripes of several at once."""
    size = m.pick(16, 20, 24, 33)
    x = m.input(I8, (1, size, m.size(8, 20), m.size(2, 8)))
    for _ in range(m.size(2, 4)):
        x = layer(m, x, m.size(4, 24), m.pick(1, 3, 3, 5))
        if m.chance(0.5):
            x = m.clamp(x)
    return m.finish(x)


@family()
def separable(m: Maker) -> Graph:
    """Expansion, depthwise and projection, as in MobileNet."""
    channels = m.size(4, 12)
    x = m.input(I8, (1, 2 * m.size(4, 9) + 1, 2 * m.size(4, 9) + 1, channels))
    y = m.clamp(layer(m, x, 3 * channels, 1))
    stride = m.pick(1, 2)
    y = m.clamp(layer(m, y, 0, 3, stride, op="DEPTHWISE_CONV2D"))
    y = layer(m, y, channels, 1)
    return m.finish(fused_sum(m, "ADD", x, y) if stride == 1 else y)


@family()
def residual(m: Maker) -> Graph:
    x = m.input(I8, (1, m.size(5, 12), m.size(5, 12), m.size(3, 24)))
    for _ in range(m.size(1, 2)):
        y = layer(m, m.clamp(layer(m, x, m.size(4, 24), 3)), x.shape[3], m.pick(1, 3))
        x = fused_sum(m, m.pick("ADD", "SUB"), x, y)
        x = m.clamp(x) if m.chance(0.5) else x
    return m.finish(x)


@family()
def squeeze_excite(m: Maker) -> Graph:
    """A global mean gates the channels: pool, two products, a table and MUL."""
    channels = m.size(8, 40)
    x = layer(m, m.input(I8, (1, 6, 7, m.size(3, 12))), channels, m.pick(1, 3))
    mean = m.b.AVG_POOL2D(
        x, m.zero(I8), m.zero(I8), kernel=(6, 7), stride=(1, 1), pad=(0, 0, 0, 0), acc_type=I32
    )
    gate = m.table(layer(m, m.clamp(layer(m, mean, m.size(4, 12), 1)), channels, 1))
    a, b = (m.rescale(v, UNIT, I32, (m.size(-9, 9), 0)) for v in (x, gate))
    return m.finish(m.settle(m.b.MUL(a, b, m.zero(I8)), I8, per_channel=False))


@family()
def encoder_decoder(m: Maker) -> Graph:
    """Down by a pool, up by nearest neighbours, joined with what was there before."""
    x = layer(m, m.input(I8, (1, 2 * m.size(3, 6), 2 * m.size(3, 6), 3)), m.size(4, 16), 3)
    low = m.b.MAX_POOL2D(x, kernel=(2, 2), stride=(2, 2), pad=(0, 0, 0, 0))
    low = layer(m, low, m.size(4, 16), 3)
    shapes = [m.b.shape(s) for s in ([4, 2, 4, 2], [-1, -1], [1, 1])]
    high = m.b.RESIZE(low, *shapes, mode="NEAREST_NEIGHBOR", out=I8)
    return m.finish(layer(m, m.b.CONCAT(x, high, axis=3), m.size(4, 12), m.pick(1, 3)))


@family()
def several_results(m: Maker) -> Graph:
    x = m.input(I8, (1, m.size(4, 9), m.size(4, 9), m.size(3, 20)))
    y = layer(m, x, m.size(4, 20), 3)
    z = layer(m, y, m.size(4, 20), 1)
    return m.finish(y, z, m.b.TABLE(z, m.b.const(m.rng.permutation(np.arange(-128, 128)), I8)))


@family()
def unsigned_boundary(m: Maker) -> Graph:
    """uint8 outside, int8 within; behind a zero point of 0 Vela would lose half of the range."""
    x = m.input(I8, (1, m.size(4, 9), m.size(4, 9), m.size(3, 12)))
    x = m.rescale(x, UNIT, I8, (128, m.size(-3, 3)), unsigned=(True, False))
    middle = m.pick(-7, -1, 4, 9)
    x = layer(m, x, m.size(4, 20), m.pick(1, 3), zero_point=m.size(-9, 9), zero_points=(0, middle))
    return m.finish(m.rescale(x, UNIT, I8, (middle, 128), unsigned=(False, True)))


@family()
def joined_results(m: Maker) -> Graph:
    """Operators that write straight to their part of a CONCAT, along any axis."""
    shape = (1, m.size(3, 7), m.size(3, 7), m.size(2, 20))
    makers = (
        lambda: layer(m, m.input(I8, shape), shape[3], m.pick(1, 3)),
        lambda: fused_sum(m, m.pick("ADD", "SUB"), m.input(I8, shape), m.input(I8, shape)),
        lambda: m.table(m.input(I8, shape)),
        lambda: m.b.MAX_POOL2D(m.input(I8, shape), kernel=(3, 3), stride=(1, 1), pad=(1,) * 4),
        lambda: m.settle(m.b.MUL(m.input(I8, shape), m.input(I8, shape), m.zero(I8)), I8,
                         per_channel=False),
        lambda: m.settle(m.input(I8, shape), I8, per_channel=False),
    )  # fmt: skip
    parts = [m.pick(*makers)() for _ in range(m.size(2, 4))]
    return m.finish(m.b.CONCAT(*parts, axis=m.size(1, 3)))


@family()
def padded_results(m: Maker) -> Graph:
    """PAD with any number between two convolutions."""
    x = layer(m, m.input(I8, (1, m.size(3, 7), m.size(3, 7), m.size(2, 12))), m.size(3, 18), 1)
    sizes = [0, 0, *(m.size(0, 2) for _ in range(4)), *m.pick((0, 0), (1, 2))]
    x = m.b.PAD(x, m.b.shape(sizes), m.zero(I8, m.pick(0, m.size(-128, 127))))
    return m.finish(layer(m, x, m.size(4, 12), m.pick(1, 3)))


@family()
def elementwise_chain(m: Maker) -> Graph:
    """U85 chains such operations without a trip to memory."""
    shape = m.picture()
    x = m.input(I8, shape)
    for _ in range(m.size(2, 4)):
        y = m.input(I8, shape)
        if m.chance(0.4):
            x = m.settle(m.b.MUL(x, y, m.zero(I8)), I8, per_channel=False)
        else:
            x = fused_sum(m, m.pick("ADD", "SUB"), x, y)
        if m.chance(0.3):
            x = m.table(x)
    return m.finish(x)


@family()
def int16_network(m: Maker) -> Graph:
    x = m.input(I16, (1, m.size(5, 10), m.size(5, 10), m.size(2, 12)))
    y = layer(m, layer(m, x, m.size(4, 16), 3), x.shape[3], 1)
    x = fused_sum(m, "ADD", x, y)
    if m.chance(0.5):
        x = m.rescale(m.table(x), (1 << 30, 37), I16)
    return m.finish(x)


@family("u85")
def branch(m: Maker) -> Graph:
    """COND_IF on a flag that is given."""
    m.dedicated = False
    shape = m.shape(m.size(2, 4))
    x, y = m.input(I32, shape), m.input(I32, shape)
    condition = m.input(BOOL, (1,))
    arms = []
    for op in ("ADD", m.pick("SUB", "MAXIMUM")):
        arm = m.b.child(f"arm_{op.lower()}")
        a, b = (arm.input(I32, shape, n) for n in ("a", "b"))
        arm.output(arm.op(op, a, b))
        arms.append(arm.graph)
    return m.finish(m.b.COND_IF(condition, x, y, regions=arms))


@family("u85")
def loop(m: Maker) -> Graph:
    """WHILE_LOOP that adds a given tensor a few times."""
    m.dedicated = False
    shape = m.shape(m.size(2, 3), room=400)
    count = m.b.const([0], I32)
    x, y = m.input(I32, shape), m.input(I32, shape)
    test, body = m.b.child("loop_test"), m.b.child("loop_body")
    limit = m.size(2, 4)
    for part in (test, body):
        for name, kind in (("count", (1,)), ("total", shape), ("step", shape)):
            part.input(I32, kind, f"{name}_{part.graph.name}")
    test.output(test.GREATER(test.const([limit], I32), test.graph.inputs[0]))
    index, total, step = body.graph.inputs
    body.output(body.ADD(index, body.const([1], I32)), body.ADD(total, step),
                body.IDENTITY(step))  # fmt: skip
    return m.finish(m.b.WHILE_LOOP(count, x, y, regions=(test.graph, body.graph))[1])
