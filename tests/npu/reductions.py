"""Families of pools, reductions, ARGMAX, RESCALE, CAST and TABLE."""

from __future__ import annotations

import numpy as np

from npu.maker import UNIT, Maker
from npu.registry import family
from tosaic.ir.graph import Graph, Value
from tosaic.spec.dtypes import I8, I16, I32, DType


def _pool_input(m: Maker, kind: DType, most: int, padded: bool) -> tuple[Value, dict[str, object]]:
    sizes, pads, kernel, strides = [], [], [], []
    for _ in "HW":
        k, s = m.size(1, most), m.size(1, 3)
        size, before, after = m.window(m.size(2, 7), k, s, 1, padded)
        sizes.append(size)
        pads += [min(before, k - 1), min(after, k - 1)]
        kernel.append(k)
        strides.append(s)
    x = m.input(kind, (m.pick(1, 1, 2), *sizes, m.size(10, 40)), reach=kind.range[1] * 0.6)
    return x, {"kernel": kernel, "stride": strides, "pad": pads}


@family()
def max_pool(m: Maker) -> Graph:
    x, where = _pool_input(m, m.pick(I8, I16), 5, padded=True)
    return m.finish(m.b.MAX_POOL2D(x, **where))


@family()
def avg_pool(m: Maker) -> Graph:
    kind = m.pick(I8, I8, I16)
    padded = m.chance(0.6)
    x, where = _pool_input(m, kind, 5 if padded else 9, padded)
    zeros = [m.zero(kind, m.size(-40, 40) if kind is I8 else 0) for _ in "io"]
    return m.finish(m.b.AVG_POOL2D(x, *zeros, acc_type=I32, **where))


@family()
def pool_then_table(m: Maker) -> Graph:
    x, where = _pool_input(m, I8, 3, padded=True)
    return m.finish(m.table(m.b.MAX_POOL2D(x, **where)))


@family()
def global_average(m: Maker) -> Graph:
    height, width = m.size(2, 14), m.size(2, 14)
    x = m.input(I8, (1, height, width, m.size(40, 80)))
    mean = m.b.AVG_POOL2D(
        x, m.zero(I8), m.zero(I8), kernel=(height, width), stride=(1, 1), pad=(0, 0, 0, 0),
        acc_type=I32,
    )  # fmt: skip
    m.fewest = 8
    return m.finish(m.settle(m.b.RESHAPE(mean, m.b.shape((1, x.shape[3]))), I8))


@family()
def reduce_sum(m: Maker) -> Graph:
    shape = m.shape(m.size(2, 4), high=12, room=3000)
    axis = m.size(0, len(shape) - 1)
    m.fewest = 4
    if m.chance(0.4):
        return m.finish(m.b.REDUCE_SUM(m.input(I32, shape), axis=axis))
    zero = m.zero_point()
    wide = m.rescale(m.input(I8, shape), UNIT, I32, (zero, 0))
    return m.finish(m.settle(m.b.REDUCE_SUM(wide, axis=axis), I8, per_channel=False))


@family()
def reduce_max_min(m: Maker) -> Graph:
    kind = m.pick(I8, I16, I32) if m.u85 else m.pick(I8, I16)
    shape = m.shape(m.size(2, 4), high=12, room=3000)
    m.fewest = 3
    x = m.input(kind, shape, reach=kind.range[1] / 2)
    return m.finish(m.b.op(m.pick("REDUCE_MAX", "REDUCE_MIN"), x, axis=m.size(0, len(shape) - 1)))


@family()
def argmax(m: Maker) -> Graph:
    kind = m.pick(I8, I16) if m.u85 else I8
    shape = (*(m.size(3, 6) for _ in range(m.size(1, 2))), m.size(4, 120))
    shape = (m.size(2, 3), *shape) if m.u85 and m.chance(0.3) else shape  # U55: one batch
    axis = m.size(0, len(shape) - 1) if m.u85 and m.chance(0.5) else len(shape) - 1
    m.fewest = 2
    x = m.input(kind, shape, reach=m.pick(6, 6, 90))  # with several largest values
    return m.finish(m.b.ARGMAX(x, axis=axis))


# RESCALE, CAST, TABLE


@family()
def rescale(m: Maker) -> Graph:
    """Every pair of types, both roundings, multipliers of 16 and 32 bits, any zero points."""
    given, wanted = m.pick(I8, I16, I32), m.pick(I8, I16, I32)
    x = m.input(given, m.shape(m.size(1, 4)))
    zeros = (m.zero_point() if given is I8 else 0, m.size(-20, 20) if wanted is I8 else 0)
    return m.finish(m.settle(x, wanted, zero_points=zeros))


@family()
def rescale_per_channel(m: Maker) -> Graph:
    """Factors that are far apart, zero among them."""
    x = m.input(m.pick(I8, I32), m.picture(), reach=100)
    multiplier, shift = m.scales(2.0 ** m.rng.uniform(-3, 0.3, x.shape[3]), wide=True)
    multiplier[: len(multiplier) // 12] = 0
    zeros = (m.size(-9, 9) if x.dtype is I8 else 0, 0)
    return m.finish(m.rescale(x, (multiplier, shift), m.pick(I8, I16), zeros))


@family()
def rescale_halves(m: Maker) -> Graph:
    """Many results lie exactly between two integers, so that the rounding shows."""
    given = m.pick(I8, I16, I32)
    x = m.input(given, m.shape(m.size(1, 4)), reach=120 if given is not I8 else None)
    results = []
    for mode in ("SINGLE_ROUND", "DOUBLE_ROUND"):  # which differ above a shift of 31
        shift = m.pick(29, 31, 32, 33)
        lost = m.size(max(2, shift - 30), 3)
        results.append(m.rescale(x, (1 << shift - lost, shift), m.pick(I8, I16), rounding=mode))
    return m.finish(*results)


@family()
def rescale_unsigned(m: Maker) -> Graph:
    """uint8 and uint16 at the graph's boundary, signed within."""
    inward = m.chance(0.5)
    outer, inner = m.pick((I8, I8), (I8, I16), (I16, I16), (I16, I8))
    given, wanted = (outer, inner) if inward else (inner, outer)
    x = m.input(given, m.shape(m.size(1, 4)))
    middle = {I8: 128, I16: 32768}
    zeros = [0, 0]
    zeros[0 if inward else 1] = middle[outer] - (m.size(-5, 5) if outer is I8 else 0)
    ratio = wanted.range[1] / given.range[1] * m.rng.uniform(0.5, 0.95)
    multiplier, shift = m.scales(np.array([ratio]), wide=True)
    return m.finish(
        m.rescale(x, (int(multiplier[0]), int(shift[0])), wanted, (zeros[0], zeros[1]),
                  unsigned=(inward, not inward))
    )  # fmt: skip


@family()
def cast(m: Maker) -> Graph:
    """To wider types; on U85 to narrower ones too, which wraps."""
    given, wanted = m.pick((I8, I16), (I8, I32), (I16, I32))
    if m.u85 and m.chance(0.5):
        given, wanted = wanted, given
    return m.finish(m.b.CAST(m.input(given, m.shape(m.size(1, 4))), out=wanted))


@family()
def table_int8(m: Maker) -> Graph:
    return m.finish(m.table(m.input(I8, m.shape(m.size(1, 5)))))


@family()
def table_int16(m: Maker) -> Graph:
    """The interpolated value with its 7 bits of fraction, or rescaled to 16 bits."""
    x = m.table(m.input(I16, m.shape(m.size(1, 4))))
    form = m.pick("raw", "fused", "fused", "free")
    if form == "fused":
        x = m.rescale(x, (1 << 30, 37), I16)
    elif form == "free":
        x = m.settle(x, m.pick(I8, I16), per_channel=False, rounding="SINGLE_ROUND")
    return m.finish(x)


@family()
def table_chain(m: Maker) -> Graph:
    """More tables than the NPU holds at once."""
    x = m.input(I8, m.picture())
    for _ in range(m.size(3, 6)):
        y = m.b.TABLE(x, m.b.const(m.rng.permutation(np.arange(-128, 128)), I8))
        x = y if m.chance(0.7) else m.b.MAX_POOL2D(y, kernel=(1, 1), stride=(1, 1), pad=(0,) * 4)
    return m.finish(x)
