"""Steps of the hunt that are TOSA operators and moves, drawn at random.

What Vela compiles rightly alone it may compile wrongly beside others, which families of single
operators do not show. ``npu.hunt`` puts such steps together.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from npu.convolutions import convolve
from npu.maker import UNIT, Maker
from tosaic.errors import Unsupported
from tosaic.ir.graph import Value
from tosaic.spec.dtypes import I8, I16, I32, DType

Step = Callable[[Maker, Value], Value]


def need(holds: bool) -> None:
    """Unsupported where a step does not suit a value: another one is drawn."""
    if not holds:
        raise Unsupported("the step does not suit the value")


def narrow(m: Maker, sums: Value, kind: DType) -> Value:
    return m.settle(sums, kind, per_channel=False, rounding="SINGLE_ROUND")


def beside(m: Maker, x: Value) -> Value:
    """An operand of the same type: an earlier value of the size, an input or a constant."""
    shape = tuple(n if m.chance(0.8) else 1 for n in x.shape)
    known = [v for op in m.b.graph.ops for v in op.outs] + m.b.graph.inputs
    alike = [v for v in known if v.dtype is x.dtype and v.type.size == math.prod(shape)]
    if alike and m.chance(0.5):
        value = m.pick(*alike)
        return value if value.shape == shape else m.b.RESHAPE(value, m.b.shape(shape))
    return m.either(x.dtype, shape)


# Moves


def piece(m: Maker, x: Value) -> Value:
    starts = [m.size(0, n - 1) if m.chance(0.5) else 0 for n in x.shape]
    sizes = [m.size(1, n - s) if s or m.chance(0.3) else n for n, s in zip(x.shape, starts)]
    need(tuple(sizes) != x.shape)
    return m.b.SLICE(x, m.b.shape(starts), m.b.shape(sizes))


def join(m: Maker, x: Value) -> Value:
    axis = m.size(0, x.type.rank - 1)
    shape = (*x.shape[:axis], m.size(1, 4), *x.shape[axis + 1 :])
    other = x if m.chance(0.2) else m.either(x.dtype, shape)
    return m.b.CONCAT(*m.pick((x, other), (other, x), (other, x, other)), axis=axis)


def surround(m: Maker, x: Value) -> Value:
    pads = [m.size(0, 2) if m.chance(0.3) else 0 for _ in range(2 * x.type.rank)]
    need(any(pads))
    return m.b.PAD(x, m.b.shape(pads), m.zero(x.dtype, m.size(-5, 5)))


def repeat(m: Maker, x: Value) -> Value:
    return m.b.TILE(x, m.b.shape([m.size(1, 3) if m.chance(0.4) else 1 for _ in x.shape]))


def permute(m: Maker, x: Value) -> Value:
    return m.b.TRANSPOSE(x, perms=tuple(int(i) for i in m.rng.permutation(x.type.rank)))


def turn(m: Maker, x: Value) -> Value:
    made = x.producer
    need(made is None or made.name != "REVERSE")  # two of them are rewritten to none
    return m.b.REVERSE(x, axis=m.size(0, x.type.rank - 1))


def reshape(m: Maker, x: Value) -> Value:
    shape, axis = list(x.shape), m.size(0, x.type.rank - 1)
    if m.chance(0.5) and axis:
        shape[axis - 1 : axis + 1] = [shape[axis - 1] * shape[axis]]
    else:
        need(len(shape) < 6)
        part = m.pick(*(n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0))
        shape[axis : axis + 1] = [part, shape[axis] // part]
    return m.b.RESHAPE(x, m.b.shape(shape))


# Operators


def _window(m: Maker, x: Value, kernel: list[int], stride: list[int], gaps: list[int]) -> list[int]:
    """Padding with which the last window ends at the edge."""
    pads = []
    for size, taps, step, gap in zip(x.shape[1:3], kernel, stride, gaps):
        reach = (taps - 1) * gap + 1
        before, after = m.size(0, reach - 1), m.size(0, reach - 1)
        after += max(0, reach - size - before - after)
        pads += [before, after + -(size + before + after - reach) % step]
    return pads


def convolution(m: Maker, x: Value) -> Value:
    need(x.type.rank == 4 and x.dtype in (I8, I16))
    kernel, stride = [m.size(1, 3), m.size(1, 3)], [m.size(1, 3), m.size(1, 3)]
    gaps, pads = [m.pick(1, 1, 2, 3), m.pick(1, 1, 2, 3)], list[int]()
    pads = _window(m, x, kernel, stride, gaps)
    name, channels = m.pick("CONV2D", "DEPTHWISE_CONV2D"), x.shape[3]
    shape = (m.size(1, 9), *kernel, channels) if name == "CONV2D" else (
        *kernel, channels, m.pick(1, 1, 2)
    )  # fmt: skip
    acc = convolve(m, x, m.weights(I8, shape), op=name, pad=pads, stride=stride, dilation=gaps)
    return narrow(m, acc, x.dtype)


def transposed(m: Maker, x: Value) -> Value:
    need(x.type.rank == 4 and x.dtype in (I8, I16))
    kernel, stride = [m.size(1, 4), m.size(1, 4)], m.pick((1, 1), (2, 2))
    cut = [-m.size(0, k - 1) for k in kernel for _ in range(2)]
    weight = m.weights(I8, (m.size(1, 7), *kernel, x.shape[3]))
    acc = convolve(m, x, weight, op="TRANSPOSE_CONV2D", out_pad=cut, stride=stride)
    return narrow(m, acc, x.dtype)


def pool(m: Maker, x: Value) -> Value:
    need(x.type.rank == 4 and x.dtype in (I8, I16))
    kernel, stride = [m.size(1, 3), m.size(1, 3)], [m.size(1, 3), m.size(1, 3)]
    pads = _window(m, x, kernel, stride, [1, 1])
    need(all(p < k for p, k in zip(pads, np.repeat(kernel, 2))))
    if m.chance(0.5):
        return m.b.MAX_POOL2D(x, kernel=kernel, stride=stride, pad=pads)
    zero = m.zero(x.dtype)
    return m.b.AVG_POOL2D(x, zero, zero, kernel=kernel, stride=stride, pad=pads, acc_type=I32)


def matrices(m: Maker, x: Value) -> Value:
    need(x.type.rank == 3 and x.dtype is I8)
    other = m.input(I8, (x.shape[0], x.shape[2], m.size(1, 6)))
    return narrow(m, m.b.MATMUL(x, other, m.zero(I8), m.zero(I8), out=I32), I8)


def rescale(m: Maker, x: Value) -> Value:
    kind = m.pick(I8, I16, I32)
    if kind is I32:
        need(x.dtype is not I32)
        return m.rescale(x, m.pick(UNIT, (1 << 30, 26)), I32)
    return m.settle(x, kind, per_channel=m.chance(0.2), rounding="SINGLE_ROUND")


def limit(m: Maker, x: Value) -> Value:
    need(x.dtype in (I8, I16))
    return m.clamp(x)


def table(m: Maker, x: Value) -> Value:
    need(x.dtype is I8)
    return m.table(x)


def negate(m: Maker, x: Value) -> Value:
    points = (m.size(-5, 5), m.size(-5, 5)) if x.dtype is I8 and m.chance(0.5) else (0, 0)
    return m.b.NEGATE(x, *(m.zero(x.dtype, point) for point in points))


def by_itself(m: Maker, x: Value) -> Value:
    """A product that reads a tensor twice."""
    need(x.dtype in (I8, I16))
    return narrow(m, m.b.MUL(x, x, m.zero(I8)), x.dtype)


def of_bits(m: Maker, x: Value) -> Value:
    """A choice, or logic on bits, which U85 has."""
    other = m.input(x.dtype, x.shape)
    if m.chance(0.5):
        return m.b.op(m.pick("BITWISE_AND", "BITWISE_OR", "BITWISE_XOR"), x, other)
    pair = [m.input(I32, x.shape) for _ in range(2)]
    return m.b.SELECT(m.b.GREATER(*pair), x, other)


def shift(m: Maker, x: Value) -> Value:
    amount = m.b.const(np.full((1,) * x.type.rank, m.size(1, 4)), x.dtype)
    return m.b.op(m.pick("LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT"), x, amount)


def enlarge(m: Maker, x: Value) -> Value:
    need(x.type.rank == 4 and x.dtype in (I8, I16))
    shapes = [m.b.shape(numbers) for numbers in ((4, 2, 4, 2), (-1, -1), (1, 1))]
    return m.b.RESIZE(x, *shapes, mode="NEAREST_NEIGHBOR", out=x.dtype)


def of_two(m: Maker, x: Value) -> Value:
    """A sum, product or extreme, of int8 and int16 with RESCALE round it."""
    other = beside(m, x)
    operands = m.pick((x, other), (other, x))
    if x.dtype is I32:
        return m.b.op(m.pick("ADD", "SUB", "MAXIMUM", "MINIMUM"), *operands)
    if m.chance(0.4):
        return narrow(m, m.b.MUL(*operands, m.zero(I8)), x.dtype)
    return narrow(m, m.b.ADD(*(m.rescale(v, UNIT, I32) for v in operands)), x.dtype)


def crossed(m: Maker, x: Value) -> Value:
    """Each element with each other of an axis, and then one of the two again."""
    need(x.dtype is I32 and x.type.rank < 4)
    axis = m.size(0, x.type.rank - 1)
    down = m.b.RESHAPE(x, m.b.shape((*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])))
    across = m.b.RESHAPE(x, m.b.shape((*x.shape[:axis], 1, *x.shape[axis:])))
    sums = m.b.REDUCE_SUM(m.b.SUB(down, across), axis=axis + 1)
    if not m.u85:
        return m.b.SUB(sums, down)
    zero = m.b.const(np.zeros((1,) * sums.type.rank), I32)
    return m.b.SELECT(m.b.GREATER(sums, zero), down, zero)


def reduced(m: Maker, x: Value) -> Value:
    axis = m.size(0, x.type.rank - 1)
    if x.dtype is I32:
        return m.b.REDUCE_SUM(x, axis=axis)
    if m.chance(0.4):
        return narrow(m, m.b.REDUCE_SUM(m.rescale(x, UNIT, I32), axis=axis), x.dtype)
    return m.b.op(m.pick("REDUCE_MAX", "REDUCE_MIN"), x, axis=axis)


MOVES: tuple[Step, ...] = (piece, piece, join, surround, repeat, permute, turn, reshape)
OPERATORS: tuple[Step, ...] = (
    convolution, transposed, pool, matrices, rescale, rescale, limit, table, of_two, of_two,
    crossed, reduced, negate, by_itself, of_bits, shift, enlarge,
)  # fmt: skip
