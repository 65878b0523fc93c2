"""Families of element-by-element arithmetic, logic and comparison."""

from __future__ import annotations

import numpy as np

from npu.maker import UNIT, Maker
from npu.registry import family
from tosaic.ir.graph import Graph, Value
from tosaic.spec.dtypes import BOOL, I8, I16, I32, DType


def pair_of_shapes(m: Maker, most_rank: int = 5) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of one rank that broadcast: neither, one or both have axes of size 1."""
    full = m.shape(m.size(1, most_rank))
    first, second = list(full), list(full)
    for axis in range(len(full)):
        if m.chance(0.25):
            m.pick(first, second)[axis] = 1
    return m.pick((full, full), (full, tuple(second)), (tuple(first), full),
                  (tuple(first), tuple(second)))  # fmt: skip


def operands(m: Maker, kind: DType, **how: float) -> tuple[Value, Value]:
    """Two tensors that broadcast, one of them now and then a constant."""
    first, second = pair_of_shapes(m)
    a, b = m.input(kind, first, **how), m.either(kind, second, **how)
    return m.pick((a, b), (b, a))


def fused_sum(m: Maker, op: str, a: Value, b: Value) -> Value:
    """RESCALE both, add or subtract, RESCALE: the form of a quantized sum."""
    kind = a.dtype
    zeros = (m.zero_point(), m.zero_point()) if kind is I8 else (0, 0)
    top = 19 if kind is I8 else 14
    larger = (1 << 30, 30 - top)
    ratio = float(m.rng.uniform(0.05, 0.99)) * 2.0**top
    multiplier, shift = m.scales(np.array([ratio]), wide=True)
    smaller = (int(multiplier[0]), int(shift[0]))
    left, right = m.pick((UNIT, UNIT), (larger, smaller), (smaller, larger))
    mode = "DOUBLE_ROUND" if m.chance(0.2) else "SINGLE_ROUND"
    x = m.rescale(a, left, I32, (zeros[0], 0), mode)
    y = m.rescale(b, right, I32, (zeros[1], 0), mode)
    return m.settle(m.b.op(op, x, y), kind, per_channel=False)


def _sum(m: Maker, op: str, kind: DType) -> Graph:
    result = fused_sum(m, op, *operands(m, kind))
    if m.chance(0.3):
        result = m.clamp(result)
    elif kind is I8 and m.chance(0.3):
        result = m.table(result)
    return m.finish(result)


@family()
def add_int8(m: Maker) -> Graph:
    return _sum(m, "ADD", I8)


@family()
def sub_int8(m: Maker) -> Graph:
    return _sum(m, "SUB", I8)


@family()
def add_sub_int16(m: Maker) -> Graph:
    return _sum(m, m.pick("ADD", "SUB"), I16)


@family()
def add_sub_int32(m: Maker) -> Graph:
    return m.finish(m.b.op(m.pick("ADD", "SUB"), *operands(m, I32, reach=1e8)))


@family()
def add_free_scales(m: Maker) -> Graph:
    """Scales of all kinds: on U85 one operation, on U55 several."""
    a, b = operands(m, I8)
    scaled = []
    for value in (a, b):
        multiplier, shift = m.scales(np.array([2.0 ** m.rng.uniform(8, 20)]), wide=True)
        scaled.append(m.rescale(value, (int(multiplier[0]), int(shift[0])), I32,
                                (m.zero_point(), 0)))  # fmt: skip
    return m.finish(m.settle(m.b.op(m.pick("ADD", "SUB"), *scaled), I8, per_channel=False))


@family()
def mul_int8(m: Maker) -> Graph:
    a, b = operands(m, I8)
    if m.chance(0.6):
        a, b = (m.rescale(v, UNIT, I32, (m.zero_point(), 0)) for v in (a, b))
    x = m.settle(m.b.MUL(a, b, m.zero(I8)), I8, per_channel=False)
    return m.finish(m.clamp(x) if m.chance(0.3) else x)


@family()
def mul_int16(m: Maker) -> Graph:
    return m.finish(m.settle(m.b.MUL(*operands(m, I16), m.zero(I8)), I16, per_channel=False))


@family()
def mul_int32(m: Maker) -> Graph:
    """The product of all 64 bits is shifted with rounding."""
    shift = m.pick(0, m.size(1, 31))
    reach = 2.0 ** (min(30, 14 + shift // 2))
    return m.finish(m.b.MUL(*operands(m, I32, reach=reach), m.zero(I8, shift)))


@family()
def maximum_minimum_int8(m: Maker) -> Graph:
    zero = m.size(-40, 40)
    a, b = (m.rescale(v, UNIT, I32, (zero, 0)) for v in operands(m, I8, reach=70))
    x = m.b.op(m.pick("MAXIMUM", "MINIMUM"), a, b)
    return m.finish(m.rescale(x, UNIT, I8, (0, zero)))


@family()
def maximum_minimum_int32(m: Maker) -> Graph:
    return m.finish(m.b.op(m.pick("MAXIMUM", "MINIMUM"), *operands(m, I32, reach=1e9)))


@family()
def with_a_number(m: Maker) -> Graph:
    """A constant of one element, negative as often as not, before or behind a tensor."""
    rank = m.size(1, 4)
    kind = m.pick(I8, I32, I32)
    number = m.const(kind, (1,) * rank, reach=100.0)
    x = m.input(kind, m.shape(rank), reach=100.0)
    pair = m.pick((x, number), (number, x))
    if kind is I8:
        return m.finish(fused_sum(m, m.pick("ADD", "SUB"), *pair))
    op = m.pick("ADD", "SUB", "MAXIMUM", "MINIMUM", "MUL")
    if op in ("MAXIMUM", "MINIMUM"):
        pair = (x, m.b.const(np.full((1,) * rank, m.size(-30, 30)), I32))
        m.fewest = 12
    return m.finish(m.b.MUL(*pair, m.zero(I8)) if op == "MUL" else m.b.op(op, *pair))


@family()
def absolute(m: Maker) -> Graph:
    kind = m.pick(I8, I16, I32)
    x = m.input(kind, m.shape(m.size(1, 5)))
    if kind is I32:
        return m.finish(m.b.ABS(x))
    zero = m.size(-30, 30) if kind is I8 else 0
    wide = m.rescale(x, UNIT, I32, (zero, 0))
    return m.finish(m.settle(m.b.ABS(wide), kind, per_channel=False))


@family()
def negate(m: Maker) -> Graph:
    kind = m.pick(I8, I16, I32)
    zeros = (m.size(-20, 20), m.size(-20, 20)) if kind is I8 else (0, 0)
    x = m.input(kind, m.shape(m.size(1, 5)))
    return m.finish(m.b.NEGATE(x, m.zero(kind, zeros[0]), m.zero(kind, zeros[1])))


@family()
def clz(m: Maker) -> Graph:
    shape = m.shape(m.size(1, 4))
    magnitude = 2.0 ** m.rng.uniform(0, 31, shape) * m.rng.choice([1, 1, 1, -1], shape)
    m.fewest = 12
    return m.finish(m.b.CLZ(m.input(I32, shape, magnitude.clip(-(2**31), 2**31 - 1).astype(int))))


@family()
def clamp(m: Maker) -> Graph:
    return m.finish(m.clamp(m.input(m.pick(I8, I16), m.shape(m.size(1, 5)))))


def _amounts(m: Maker, shape: tuple[int, ...], high: int, kind: DType) -> Value:
    data = m.rng.integers(0, high, shape, endpoint=True).astype(kind.array)
    return m.b.const(data, kind) if m.chance(0.4) else m.input(kind, shape, data)


@family()
def shift_right(m: Maker) -> Graph:
    first, second = pair_of_shapes(m)
    kind = m.pick(I8, I16, I32) if m.u85 else I32
    x = m.input(kind, first) if kind is not I32 else m.input(kind, first, reach=2e9)
    rounds = True if not m.u85 else m.pick(True, False)  # U55 rounds always
    amount = _amounts(m, second, 12 if kind is I32 else kind.bits // 2, kind)
    return m.finish(m.b.ARITHMETIC_RIGHT_SHIFT(x, amount, round=rounds))


@family()
def shift_left(m: Maker) -> Graph:
    first, second = pair_of_shapes(m)
    kind = m.pick(I8, I16, I32) if m.u85 else I32
    x = m.input(kind, first) if kind is not I32 else m.input(kind, first, reach=1e6)
    return m.finish(m.b.LOGICAL_LEFT_SHIFT(x, _amounts(m, second, kind.bits // 3, kind)))


@family("u85")
def shift_right_logical(m: Maker) -> Graph:
    first, second = pair_of_shapes(m)
    kind = m.pick(I8, I16, I32)
    x = m.input(kind, first) if kind is not I32 else m.input(kind, first, reach=2e9)
    return m.finish(m.b.LOGICAL_RIGHT_SHIFT(x, _amounts(m, second, kind.bits // 3, kind)))


@family("u85")
def bitwise(m: Maker) -> Graph:
    kind = m.pick(I8, I16, I32)
    op = m.pick("BITWISE_AND", "BITWISE_OR", "BITWISE_XOR", "BITWISE_NOT")
    if op == "BITWISE_NOT":
        return m.finish(m.b.BITWISE_NOT(m.input(kind, m.shape(m.size(1, 5)))))
    return m.finish(m.b.op(op, *operands(m, kind)))


@family("u85")
def intdiv(m: Maker) -> Graph:
    first, second = pair_of_shapes(m)
    divisor = m.rng.integers(1, 300, second) * m.rng.choice([1, -1], second)
    x = m.input(I32, first, reach=1e9)
    y = m.b.const(divisor.astype(np.int32)) if m.chance(0.3) else m.input(I32, second, divisor)
    return m.finish(m.b.INTDIV(x, y))


@family("u85")
def compare(m: Maker) -> Graph:
    """Few values, so that many of them are equal."""
    a, b = operands(m, I32, reach=m.pick(2.0, 4.0))
    return m.finish(*(m.b.op(op, a, b) for op in ("EQUAL", "GREATER", "GREATER_EQUAL")))


@family("u85")
def logical(m: Maker) -> Graph:
    op = m.pick("LOGICAL_AND", "LOGICAL_OR", "LOGICAL_XOR", "LOGICAL_NOT")
    if op == "LOGICAL_NOT":
        return m.finish(m.b.LOGICAL_NOT(m.input(BOOL, m.shape(m.size(1, 5)))))
    first, second = pair_of_shapes(m)
    return m.finish(m.b.op(op, m.input(BOOL, first), m.either(BOOL, second)))


@family("u85")
def select(m: Maker) -> Graph:
    kind = m.pick(I8, I16, I32)
    shape = m.shape(m.size(1, 4))
    if m.chance(0.5):
        mask = m.b.GREATER(m.input(I32, shape), m.input(I32, shape))
    else:
        mask = m.input(BOOL, tuple(1 if m.chance(0.2) else s for s in shape))
    return m.finish(m.b.SELECT(mask, m.input(kind, shape), m.either(kind, shape)))


@family("u85")
def reduce_logical(m: Maker) -> Graph:
    shape = (m.size(6, 12), m.size(2, 4), m.size(8, 20))
    given = m.rng.random(shape) < (0.75 if (every := m.chance(0.5)) else 0.25)
    x = m.input(BOOL, shape, given)
    return m.finish(m.b.op("REDUCE_ALL" if every else "REDUCE_ANY", x, axis=1))
