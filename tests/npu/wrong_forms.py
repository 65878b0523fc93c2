"""Forms that Vela 5.2 compiles wrongly beside others, and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npu.configurations import Configuration
from npu.convolutions import convolve
from npu.maker import UNIT, Maker
from tosaic.ir.graph import Value
from tosaic.spec.dtypes import I8, I16, I32, I48, DType

U55 = Configuration("u55-128", "Ethos_U55_High_End_Embedded", "Shared_Sram")
SMALL = Configuration("u55-32", "Ethos_U55_High_End_Embedded", "Shared_Sram")
U85 = Configuration("u85-256", "Ethos_U85_SYS_DRAM_Mid", "Sram_Only")
Make = Callable[[Maker], Value | tuple[Value, ...]]


def cut(m: Maker, x: Value, starts: tuple[int, ...], sizes: tuple[int, ...]) -> Value:
    return m.b.SLICE(x, m.b.shape(starts), m.b.shape(sizes))


def sliced(m: Maker, kind: DType = I8, batch: int = 1) -> Value:
    """[N, 6, 5, 4] out of something larger."""
    return cut(m, m.input(kind, (batch, 8, 7, 6)), (0, 1, 2, 1), (batch, 6, 5, 4))


def widened(m: Maker, x: Value) -> Value:
    return m.rescale(x, (1 << 30, 30), I32, (3, 0))


def narrowed(m: Maker, x: Value) -> Value:
    return m.settle(x, I8, per_channel=False, rounding="SINGLE_ROUND")


def by_channel(m: Maker, x: Value) -> Value:
    scales = m.scales(np.linspace(0.4, 0.9, x.shape[-1]), True)
    return m.rescale(x, scales, I8, (0, 0))


def window(m: Maker, x: Value, op: str = "CONV2D", gap: int = 1) -> Value:
    """A padded convolution whose kernel has rows and columns."""
    shape = (5, 3, 3, x.shape[3]) if op == "CONV2D" else (3, 3, x.shape[3], 1)
    pads = (gap, gap, gap, gap)
    acc = convolve(m, x, m.draw(I8, shape), op=op, pad=pads, stride=(1, 1), dilation=(gap, gap))
    return narrowed(m, acc)


def enlarged(m: Maker, x: Value) -> Value:
    weight = m.draw(I8, (3, 3, 3, x.shape[3]))
    acc = convolve(m, x, weight, op="TRANSPOSE_CONV2D", out_pad=(-1, -1, -1, -1), stride=(2, 2))
    return narrowed(m, acc)


def deep(m: Maker) -> Value:
    """A convolution over three axes of a piece."""
    x = cut(m, m.input(I8, (1, 5, 6, 6, 4)), (0, 0, 0, 0, 1), (1, 5, 6, 6, 2))
    weight = m.draw(I8, (3, 3, 3, 3, 2))
    acc = convolve(m, x, weight, op="CONV3D", pad=(1, 1, 1, 1, 1, 1), stride=(1, 1, 1),
                   dilation=(1, 1, 1))  # fmt: skip
    return narrowed(m, acc)


def largest(m: Maker) -> Value:
    x = cut(m, m.input(I8, (2, 2, 4, 6, 5)), (0, 0, 1, 0, 0), (2, 2, 2, 6, 5))
    return m.b.REDUCE_MAX(x, axis=2)


def product(m: Maker) -> Value:
    x = cut(m, m.input(I8, (2, 6, 9)), (0, 1, 3), (2, 4, 5))
    return narrowed(m, m.b.MATMUL(x, m.input(I8, (2, 5, 7)), m.zero(I8), m.zero(I8), out=I32))


def joined(m: Maker, kind: DType) -> Value:
    return m.b.CONCAT(m.input(kind, (1, 4, 5, 3)), m.input(kind, (1, 4, 5, 6)), axis=3)


def tiled(m: Maker, kind: DType) -> Value:
    return m.b.TILE(m.input(kind, (2, 1, 6)), m.b.shape((1, 4, 1)))


def surrounded(m: Maker, kind: DType) -> Value:
    return m.b.PAD(m.input(kind, (4, 5, 6)), m.b.shape((1, 0, 0, 2, 0, 0)), m.zero(kind, 2))


def last_wide(m: Maker) -> Value:
    """A RESCALE to 32 bits as the second of a CONCAT."""
    return m.b.CONCAT(m.input(I32, (3, 5)), widened(m, m.input(I8, (3, 4))), axis=1)


def two_slices(m: Maker) -> Value:
    """Two sums of parts of one RESCALE."""
    x = widened(m, m.input(I8, (4, 6, 5)))
    parts = [cut(m, x, (start, 0, 0), (2, 6, 5)) for start in (0, 2)]
    sums = [m.b.REDUCE_SUM(m.b.ADD(p, m.b.const([[[7]]], I32)), axis=0) for p in parts]
    return m.b.SUB(*sums)


def more_axes(m: Maker) -> Value:
    x = cut(m, m.input(I8, (4, 2, 6, 2, 3)), (0, 0, 0, 1, 2), (2, 2, 6, 1, 1))
    return m.b.TABLE(m.b.RESHAPE(x, m.b.shape((1, 2, 2, 6, 1, 1))), m.const(I8, (256,)))


def two_shapes(m: Maker) -> tuple[Value, Value]:
    x = m.input(I32, (2, 9))
    return m.b.RESHAPE(x, m.b.shape((2, 9, 1))), m.b.RESHAPE(x, m.b.shape((2, 1, 9)))


def chosen(m: Maker) -> Value:
    """SELECT reads a tensor that is read with another shape before."""
    down, across = two_shapes(m)
    return m.b.SELECT(m.b.GREATER(down, m.b.const([[[0]]], I32)), across, m.b.const([[[5]]], I32))


def crossed(m: Maker) -> Value:
    """Rows less columns of one tensor, and the tensor again."""
    down, across = two_shapes(m)
    return m.b.SUB(m.b.REDUCE_SUM(m.b.ABS(m.b.SUB(down, across)), axis=2), down)


def enlarged_twice(m: Maker) -> Value:
    """An image of twice the size as int32, and a constant with it."""
    shapes = [m.b.shape(numbers) for numbers in ((4, 2, 4, 2), (-1, -1), (1, 1))]
    x = m.b.RESIZE(m.input(I8, (1, 4, 6, 5)), *shapes, mode="NEAREST_NEIGHBOR", out=I8)
    return m.b.ADD(m.rescale(x, UNIT, I32), m.b.const([[[[1]]]], I32))


def negated_twice(m: Maker, x: Value) -> tuple[Value, Value]:
    return m.b.NEGATE(x, m.zero(I32), m.zero(I32)), m.b.NEGATE(x, m.zero(I32), m.zero(I32))


def by_one(m: Maker) -> Value:
    """A RESCALE by 1 from int48."""
    x, weight = m.input(I16, (1, 4, 6, 5), reach=900), m.draw(I8, (5, 1, 1, 5), reach=3)
    acc = m.b.CONV2D(x, m.b.const(weight, I8), m.zero(I48), m.zero(I16), m.zero(I8),
                     pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), acc_type=I48)  # fmt: skip
    return m.rescale(acc, (1 << 14, 14), I16, scale32=False)


def left_out(m: Maker) -> Value:
    """An enlarged image of what a RESCALE by 1 makes."""
    y = by_one(m)
    shapes = [m.b.shape(numbers) for numbers in ((4, 2, 4, 2), (-1, -1), (1, 1))]
    return m.b.RESIZE(y, *shapes, mode="NEAREST_NEIGHBOR", out=I16)


def widest(m: Maker) -> Value:
    x = m.b.MAX_POOL2D(m.input(I8, (1, 6, 8, 5)), kernel=(2, 2), stride=(2, 2), pad=(0, 0, 0, 0))
    return m.rescale(x, (1 << 30, 24), I16)


def negated(m: Maker) -> Value:
    x = m.b.NEGATE(m.input(I8, (3, 4, 50)), m.zero(I8), m.zero(I8))
    return m.rescale(x, (1 << 30, 26), I16)


def shifted(m: Maker) -> Value:
    x = m.b.LOGICAL_LEFT_SHIFT(m.input(I8, (5, 12)), m.b.const([[3]], I8))
    return m.b.CLAMP(x, min_val=-100, max_val=90)


def squared(m: Maker) -> Value:
    """What a RESCALE made, in another shape, by itself."""
    x = m.b.RESHAPE(narrowed(m, m.input(I32, (48,))), m.b.shape((6, 8)))
    return narrowed(m, m.b.MUL(x, x, m.zero(I8)))


def wrapped(m: Maker) -> Value:
    x = m.b.CAST(m.input(I32, (1, 4, 8, 3), reach=5000), out=I8)
    return m.b.TABLE(x, m.const(I8, (256,)))


def turned(m: Maker) -> Value:
    x = m.b.TABLE(m.input(I8, (5, 12)), m.const(I8, (256,)))
    return m.b.CLAMP(m.b.REVERSE(x, axis=1), min_val=-100, max_val=90)


def unsigned(m: Maker) -> Value:
    x = m.settle(m.input(I8, (1, 5, 5, 6)), I8, per_channel=False, zero_points=(3, 0))
    return m.rescale(x, UNIT, I8, (0, 128), unsigned=(False, True))


def far_apart(m: Maker) -> Value:
    x = m.b.PAD(m.input(I8, (1, 4, 6, 3)), m.b.shape((0, 0, 5, 5, 0, 0, 0, 0)), m.zero(I8))
    acc = convolve(m, x, m.draw(I8, (5, 2, 1, 3)), pad=(0, 0, 0, 0), stride=(1, 1),
                   dilation=(5, 1))  # fmt: skip
    return narrowed(m, acc)


def many_for_one(m: Maker, x: Value, pad: int = 0) -> Value:
    """A depthwise convolution with two results for each channel."""
    acc = convolve(m, x, m.draw(I8, (2, 2, x.shape[3], 2)), op="DEPTHWISE_CONV2D",
                   pad=(pad, 0, pad, 0), stride=(1, 1), dilation=(1, 1))  # fmt: skip
    return narrowed(m, acc)


def many_beside(m: Maker) -> Value:
    made = many_for_one(m, m.input(I8, (1, 4, 5, 3)))
    return m.b.CONCAT(made, m.input(I8, (1, 3, 4, 6)), axis=2)


def magnitudes(m: Maker) -> Value:
    """The sizes of what a convolution gives, behind another tensor."""
    acc = convolve(m, m.input(I8, (1, 4, 5, 3)), m.draw(I8, (6, 2, 2, 3)), pad=(0, 0, 0, 0),
                   stride=(1, 1), dilation=(1, 1))  # fmt: skip
    return m.b.CONCAT(m.input(I32, (1, 2, 4, 6)), m.b.ABS(acc), axis=1)


def shaped_twice(m: Maker) -> Value:
    """Two sums with a tensor that a RESCALE of int32 makes, in another shape."""
    x = m.b.RESHAPE(m.rescale(m.input(I32, (14, 1)), (1888071304, 43), I16), m.b.shape((2, 7)))
    sums = [m.b.ADD(m.rescale(x, (1 << 30, 16), I32), m.rescale(m.input(I16, (2, 7)), f, I32))
            for f in ((1695652268, 35), (1395652268, 35))]  # fmt: skip
    return m.b.CONCAT(*(m.rescale(v, (1 << 30, 45), I16) for v in sums), axis=1)


def outer(m: Maker) -> Value:
    """The products of a vector's elements with one another."""
    x = m.input(I8, (7,))
    rows, columns = (
        m.b.RESHAPE(m.rescale(x, UNIT, I32, (3, 0)), m.b.shape(s)) for s in ((7, 1), (1, 7))
    )
    return m.b.MUL(rows, columns, m.zero(I8))


def two_tables(m: Maker) -> Value:
    """A table of int16, a product and a sum with a constant, and a table again."""
    x = m.rescale(m.table(m.input(I16, (2, 3, 40))), (1 << 30, 37), I16)
    x = m.rescale(m.b.MUL(x, m.input(I16, (2, 3, 40)), m.zero(I8)), (1656089507, 46), I16)
    pair = m.rescale(x, (1 << 30, 16), I32), m.rescale(m.const(I16, (1, 1, 1)), (1 << 30, 17), I32)
    x = m.rescale(m.b.ADD(*pair), (1182836864, 44), I16)
    return m.rescale(m.table(x), (1 << 30, 37), I16)


def reshaped_twice(m: Maker) -> Value:
    """Sums [1, 16, 1] and a table [16, 1] become [16] before they are added."""
    x = m.rescale(m.b.REDUCE_SUM(m.input(I32, (1, 16, 8), reach=50), axis=2), UNIT, I8)
    x = m.rescale(m.table(m.b.RESHAPE(x, m.b.shape((16,)))), (1 << 30, 20), I32)
    y = m.b.RESHAPE(m.table(m.input(I8, (16, 1))), m.b.shape((16,)))
    return m.b.ADD(x, m.rescale(y, (1 << 30, 21), I32))


def chosen_turned(m: Maker) -> tuple[Value, Value]:
    """SELECT reads a tensor with axes of one element moved, and another reads it in two axes."""
    x, shape = m.input(I16, (7, 2, 1, 1, 1)), (14, 1, 1)
    turned = m.b.TRANSPOSE(x, perms=(0, 1, 4, 2, 3))
    mask = m.b.GREATER(m.input(I32, (1, 2, 1, 1, 1)), m.b.const(np.zeros((1,) * 5), I32))
    other = m.b.RESHAPE(x, m.b.shape(shape))
    return other, m.b.SELECT(mask, turned, m.input(I16, (7, 2, 1, 1, 1)))


def looped(m: Maker) -> tuple[Value, Value]:
    """A loop adds 5 to a value three times, whose own numbers are negated before."""
    x = m.b.ABS(m.input(I32, (4, 6)))
    return m.b.NEGATE(x, m.zero(I32), m.zero(I32)), raised(m, x)


def looped_input(m: Maker) -> tuple[Value, Value, Value]:
    """A loop changes an input that others read in two shapes."""
    x = m.input(I32, (4, 6))
    flat = m.b.RESHAPE(x, m.b.shape((24,)))
    return m.b.NEGATE(x, m.zero(I32), m.zero(I32)), raised(m, x), m.b.ABS(flat)


def looped_twice(m: Maker) -> tuple[Value, Value]:
    """Two loops change one value."""
    x = m.b.ABS(m.input(I32, (4, 6)))
    return raised(m, x), raised(m, x)


def divided(m: Maker) -> tuple[Value, Value]:
    """A quotient and a difference of a rescaled tensor in another shape."""
    x = m.rescale(m.input(I8, (240,)), UNIT, I32, (-128, 0))
    x = m.b.RESHAPE(x, m.b.shape((2, 3, 40)))
    by = m.input(I32, (1, 1, 40), m.rng.integers(1, 9, (1, 1, 40)))
    return m.b.INTDIV(x, by), m.b.SUB(x, m.input(I32, (2, 3, 40)))


def by_one_for_two(m: Maker) -> tuple[Value, Value]:
    """A RESCALE of int32 in another shape, behind which one by 1 is read by two."""
    x = m.rescale(m.input(I32, (2, 1, 5, 1), reach=1 << 20), (1888071304, 43), I16)
    x = m.rescale(m.b.RESHAPE(x, m.b.shape((1, 2, 5, 1))), UNIT, I32)
    return m.b.ABS(x), m.b.MINIMUM(x, m.b.const(np.ones((1,) * 4), I32))


def crossed_tiles(m: Maker) -> Value:
    """The differences of rescaled rows and columns, of which the latter are tiled."""
    x = m.b.RESHAPE(m.b.TILE(m.input(I16, (10,)), m.b.shape((3,))), m.b.shape((1, 5, 6)))
    wide = [m.rescale(v, (1 << 30, 20), I32) for v in (m.input(I16, (4, 1, 6)), x)]
    return m.b.SUB(*wide)


def tiles_beside(m: Maker) -> Value:
    """A scaled TILE in another shape, before another tensor."""
    x = m.b.RESHAPE(m.b.TILE(m.input(I8, (9,)), m.b.shape((4,))), m.b.shape((1, 4, 3, 3)))
    return m.b.CONCAT(
        m.rescale(x, (1755154905, 31), I8, (0, -12)), m.input(I8, (1, 4, 4, 3)), axis=2
    )


def surrounded_piece(m: Maker, channels: int) -> Value:
    """A depthwise convolution of a piece with a PAD around it."""
    x = m.b.PAD(sliced(m, batch=3 - channels), m.b.shape((0, 0, 1, 0, 1, 1, 0, 0)), m.zero(I8))
    acc = convolve(m, x, m.draw(I8, (2, 2, 4, channels)), op="DEPTHWISE_CONV2D", pad=(0, 0, 0, 0),
                   stride=(1, 1), dilation=(1, 1))  # fmt: skip
    return narrowed(m, acc)


def scaled_and_crossed(m: Maker) -> tuple[Value, Value]:
    """A tensor in another shape, and its differences from another, both scaled and broadcast."""
    x, y = m.input(I8, (10, 1, 3)), m.input(I8, (1, 4, 1))
    return m.b.RESHAPE(x, m.b.shape((30,))), m.b.SUB(widened(m, x), widened(m, y))


def enlarged_for_two(m: Maker) -> tuple[Value, ...]:
    """Two products with what a transposed convolution gives, in another shape."""
    acc = convolve(m, m.input(I8, (1, 7, 2, 8)), m.draw(I8, (1, 4, 4, 8)), op="TRANSPOSE_CONV2D",
                   out_pad=(0, 0, 0, 0), stride=(1, 1))  # fmt: skip
    x = m.b.RESHAPE(narrowed(m, acc), m.b.shape((1, 1, 10, 5)))
    factors = [m.rescale(m.input(I8, (1, 1, 10, 1)), UNIT, I32, (n, 0)) for n in (0, 1)]
    return tuple(m.b.MUL(factor, widened(m, x), m.zero(I8)) for factor in factors)


def chosen_from_itself(m: Maker) -> tuple[Value, Value]:
    """SELECT of a tensor and itself, which another consumer reads in one axis."""
    x = m.input(I8, (4, 5, 8, 7))
    flat, between = (m.b.RESHAPE(x, m.b.shape(s)) for s in ((1120,), (4, 5, 8, 1, 7)))
    mask = m.b.GREATER(m.input(I32, (1, 1, 8, 1)), m.b.const([[[[0]]]], I32))
    return flat, m.b.SELECT(mask, x, m.b.RESHAPE(between, m.b.shape(x.shape)))


def raised(m: Maker, x: Value) -> Value:
    """A loop adds 5 to a value three times."""
    test, body = m.b.child("test"), m.b.child("body")
    for part in (test, body):
        part.input(I32, (1,), f"count_{part.graph.name}")
        part.input(I32, (4, 6), f"x_{part.graph.name}")
    test.output(test.GREATER(test.const([3], I32), test.graph.inputs[0]))
    count, inside = body.graph.inputs
    more = body.ADD(inside, body.const([[5]], I32))
    body.output(body.ADD(count, body.const([1], I32)), more)
    start = m.b.IDENTITY(m.b.const([0], I32))
    return m.b.results("WHILE_LOOP", start, x, regions=(test.graph, body.graph))[1]


def strided(m: Maker) -> Value:
    """Of some size, and with a consumer that needs other blocks than the convolution."""
    x, weight = m.input(I16, (1, 31, 31, 3), reach=900), m.draw(I8, (8, 7, 7, 3))
    acc = convolve(m, x, weight, pad=(0, 0, 0, 0), stride=(3, 3), dilation=(1, 1))
    y = m.settle(acc, I16, per_channel=False, rounding="SINGLE_ROUND")
    turned = m.b.TRANSPOSE(y, perms=(0, 3, 1, 2))
    return m.b.MUL(turned, turned, m.zero(I8))


@dataclass(frozen=True)
class Piece:
    """A form, and where it is wrong."""

    make: Make
    machines: tuple[Configuration, ...]


BOTH = (U55, U85)
FORMS = {
    "a padded convolution of a piece, in batches": Piece(
        lambda m: window(m, sliced(m, batch=2)), BOTH),
    "a padded depthwise convolution of a piece, in batches": Piece(
        lambda m: window(m, sliced(m, batch=2), "DEPTHWISE_CONV2D"), BOTH),
    "a padded convolution of a piece with gaps of 3": Piece(
        lambda m: window(m, sliced(m), gap=3), BOTH),
    "a padded pool of a piece, in batches": Piece(
        lambda m: m.b.MAX_POOL2D(sliced(m, batch=2), kernel=(2, 2), stride=(1, 1),
                                 pad=(1, 0, 1, 0)), BOTH),
    "two channels for one of a piece": Piece(
        lambda m: many_for_one(m, sliced(m), 1), BOTH),
    "a transposed convolution of a piece": Piece(lambda m: enlarged(m, sliced(m)), BOTH),
    "a convolution over three axes of a piece": Piece(deep, (U85,)),
    "a maximum of a piece of five axes": Piece(largest, BOTH),
    "a sum of a piece of int16": Piece(
        lambda m: m.b.REDUCE_SUM(m.rescale(sliced(m, I16), UNIT, I32), axis=3), BOTH),
    "a product with a piece": Piece(product, (U55,)),
    "a piece as int32": Piece(lambda m: widened(m, sliced(m)), (U55,)),
    "a piece of int32 as int8": Piece(lambda m: narrowed(m, sliced(m, I32)), (U55,)),
    "a CONCAT of int32 as int8": Piece(lambda m: narrowed(m, joined(m, I32)), (U55,)),
    "a piece, scaled, as int32": Piece(
        lambda m: m.rescale(m.rescale(sliced(m, I16), (1350502777, 31), I16), UNIT, I32), (U55,)),
    "a piece, scaled and in another shape, as int32": Piece(
        lambda m: m.rescale(m.b.RESHAPE(m.rescale(sliced(m, I16), (1350502777, 31), I16),
                                        m.b.shape((1, 30, 1, 4))), UNIT, I32), (U55,)),
    "a TILE as int32": Piece(lambda m: widened(m, tiled(m, I8)), (U55,)),
    "a PAD as int32": Piece(lambda m: widened(m, surrounded(m, I8)), (U55,)),
    "a maximum into a CONCAT": Piece(
        lambda m: m.b.CONCAT(m.input(I8, (1, 3, 6, 4)), m.b.REDUCE_MAX(
            m.input(I8, (1, 5, 6, 4)), axis=1), axis=1), (U55,)),
    "a RESCALE to int32 into a CONCAT": Piece(last_wide, (U55,)),
    "a RESCALE of tiles into a CONCAT": Piece(tiles_beside, BOTH),
    "a convolution of a piece that a PAD surrounds, in batches": Piece(
        lambda m: surrounded_piece(m, 1), BOTH),
    "two channels for one of a piece that a PAD surrounds": Piece(
        lambda m: surrounded_piece(m, 2), BOTH),
    "differences of scaled tensors with two shapes": Piece(scaled_and_crossed, (U55,)),
    "what is enlarged, in another shape for two": Piece(enlarged_for_two, (U55,)),
    "a choice of a tensor and itself": Piece(chosen_from_itself, (U85,)),
    "an int48 by 1, scaled with 32 bits": Piece(
        lambda m: m.rescale(by_one(m), (2129610698, 30), I16), (U85,)),
    "a table of two channels for one": Piece(
        lambda m: m.table(many_for_one(m, m.input(I8, (1, 4, 5, 3)))), (SMALL,)),
    "two channels for one into a CONCAT": Piece(many_beside, (U55,)),
    "sizes of sums into a CONCAT": Piece(magnitudes, (U85,)),
    "turned bits of the largest into a CONCAT": Piece(
        lambda m: m.b.CONCAT(m.input(I8, (1, 6, 1, 4)), m.b.BITWISE_NOT(
            m.b.REDUCE_MAX(m.input(I8, (1, 6, 5, 4)), axis=2)), axis=1), (U85,)),
    "sizes of the largest into a PAD": Piece(
        lambda m: m.b.PAD(m.b.ABS(m.rescale(m.b.MAX_POOL2D(
            m.input(I8, (1, 6, 5, 4)), kernel=(2, 2), stride=(1, 1), pad=(0, 0, 0, 0)), UNIT, I32)),
            m.b.shape((0, 0, 1, 0, 0, 1, 0, 0)), m.zero(I32)), (U85,)),
    "two pieces of one RESCALE": Piece(two_slices, (U55,)),
    "a piece of a RESCALE for two": Piece(
        lambda m: negated_twice(
            m, cut(m, widened(m, m.input(I8, (8, 8, 9))), (0, 0, 2), (8, 8, 1))),
        (U55,)),
    "an int48 by 1 in a CONCAT, scaled": Piece(
        lambda m: m.rescale(m.b.CONCAT(by_one(m), m.input(I16, (1, 4, 6, 5)), axis=1),
                            (1215438503, 30), I16), (U85,)),
    "scales by channel of a CONCAT": Piece(
        lambda m: by_channel(m, joined(m, I8)), BOTH),
    "a RESCALE of int32 with another shape for two": Piece(
        shaped_twice, (U55,)),
    "a piece with more axes": Piece(more_axes, BOTH),
    "a choice of a tensor with two shapes": Piece(chosen, (U85,)),
    "differences of a tensor with two shapes": Piece(crossed, (U55,)),
    "products of a vector with itself": Piece(outer, (U55,)),
    "products of rescaled columns and rows": Piece(
        lambda m: m.b.MUL(
            m.b.RESHAPE(m.rescale(m.input(I8, (1, 9, 3, 1)), UNIT, I32), m.b.shape((1, 9, 1, 3))),
            m.rescale(m.input(I8, (1, 1, 2, 3)), UNIT, I32), m.zero(I8)), (U55,)),
    "limits behind a table turned round": Piece(turned, (U85,)),
    "gaps longer than what a PAD surrounds": Piece(far_apart, BOTH),
    "a step to uint8 behind a zero point of 0": Piece(unsigned, BOTH),
    "sums that saturate before a wider scale": Piece(
        lambda m: m.rescale(m.rescale(m.b.REDUCE_SUM(m.input(I32, (1, 4, 8, 6), reach=300), axis=1),
                                      UNIT, I8), (1 << 30, 26), I16), BOTH),
    "a zero point behind what saturates": Piece(
        lambda m: m.rescale(m.rescale(m.input(I32, (1, 4, 8, 6), reach=300), UNIT, I8),
                            UNIT, I8, (0, 3)), BOTH),
    "a maximum as more bits": Piece(widest, (U85,)),
    "less than nothing, scaled": Piece(negated, BOTH),
    "less than nothing in a CONCAT, scaled": Piece(
        lambda m: m.rescale(m.b.CONCAT(m.input(I8, (3, 4, 9)), m.b.NEGATE(
            m.input(I8, (3, 4, 50)), m.zero(I8), m.zero(I8)), axis=2), (1 << 30, 26), I16), BOTH),
    "less than nothing in a PAD, scaled": Piece(
        lambda m: m.rescale(m.b.PAD(m.b.NEGATE(m.input(I8, (4, 50)), m.zero(I8), m.zero(I8)),
                                    m.b.shape((1, 0, 0, 2)), m.zero(I8, 3)), (1 << 30, 26), I16),
        BOTH),
    "a maximum in a CONCAT as more bits": Piece(
        lambda m: m.rescale(m.b.CONCAT(m.b.MAX_POOL2D(
            m.input(I8, (1, 6, 8, 5)), kernel=(2, 2), stride=(1, 1), pad=(1, 0, 1, 0)),
            m.input(I8, (1, 6, 2, 5)), axis=2), (1 << 30, 24), I16), (U85,)),
    "a product that saturates in a CONCAT, scaled": Piece(
        lambda m: m.rescale(m.b.CONCAT(m.rescale(m.b.MUL(
            m.input(I8, (2, 40), reach=20), m.input(I8, (2, 40), reach=20), m.zero(I8)), UNIT, I8),
            m.input(I8, (2, 7)), axis=1), (1 << 30, 26), I16), BOTH),
    "what a CAST wraps in a CONCAT, scaled": Piece(
        lambda m: m.rescale(m.b.CONCAT(m.b.CAST(m.input(I32, (2, 40), reach=300), out=I8),
                                       m.input(I8, (2, 7)), axis=1), (1 << 30, 26), I16), (U85,)),
    "a shift, with a zero point": Piece(
        lambda m: m.rescale(m.b.LOGICAL_LEFT_SHIFT(m.input(I8, (6, 90)), m.b.const([[1]], I8)),
                            UNIT, I8, (0, 3)), (U85,)),
    "an enlarged image as int32": Piece(enlarged_twice, (U55,)),
    "an int48 by 1 in an enlarged image": Piece(left_out, (U55,)),
    "limits behind a shift": Piece(shifted, (U85,)),
    "two tables of int16 with a product between": Piece(two_tables, (U85,)),
    "a sum of two tensors with another shape": Piece(reshaped_twice, (U85,)),
    "a choice of a tensor that is turned round ones": Piece(chosen_turned, (U85,)),
    "a value that a loop changes and another reads": Piece(looped, (U85,)),
    "an input that a loop changes and others read": Piece(looped_input, (U85,)),
    "a value that two loops change": Piece(looped_twice, (U85,)),
    "a quotient and a difference in another shape": Piece(divided, (U85,)),
    "a RESCALE by 1 in another shape for two": Piece(by_one_for_two, (U55,)),
    "differences with a TILE, both broadcast": Piece(crossed_tiles, (U55,)),
    "a table of a turned tensor": Piece(
        lambda m: m.table(m.b.TRANSPOSE(m.input(I8, (6, 9)), perms=(1, 0))), (SMALL,)),
    "a table of what a CAST wraps": Piece(wrapped, (U85,)),
    "a turned convolution of int16 with strides": Piece(strided, (U85,)),
}  # fmt: skip
