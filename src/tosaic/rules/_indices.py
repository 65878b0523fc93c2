"""Index tensors: constant or computed, negative indices, and gather of rows.

TOSA's indices are int32 and count from 0. A target without the INT profile has GATHER but moves and
compares no integers: there they are counted in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Array, Quant, Value
from tosaic.lowering.alternatives import mask as masks
from tosaic.lowering.alternatives.data_movement import first, take, tiled
from tosaic.lowering.builder import Lowering
from tosaic.rules._byte_products import counted_rows
from tosaic.spec import dtypes as d

_BYTES = 254  # places, and one more on each side
_MOST_PICKS = 1 << 20


def known(index: Value) -> Array | None:
    """The numbers of a constant."""
    return np.asarray(index.const.array) if index.is_const and index.const is not None else None


def countable(b: Lowering, index: Value) -> Value:
    """Integers in a type that this target moves, adds and compares: int32, or else float32."""
    if index.is_const and index.dtype is not d.I32:
        return b.const(np.asarray(known(index)), d.I32)
    kind = d.I32 if "INT" in b.env.profiles or index.is_const else d.F32
    return index if index.dtype is kind else b.CAST(index, out=kind)


def int32(b: Lowering, x: Value) -> Value:
    """Whole numbers as the int32 that TOSA's indices are, and PyTorch's int64 become."""
    return x if x.dtype is d.I32 else b.CAST(x, out=d.I32)


def alike(b: Lowering, *indices: Value) -> list[Value]:
    """Countable indices of one type and rank; float32 holds whole numbers up to 2^24."""
    made = [countable(b, index) for index in indices]
    kind = next((v.dtype for v in made if not v.is_const), d.I32)
    made = [b.const(np.asarray(known(v)), kind) if v.is_const else v for v in made]
    return b.same_rank(*made)


def times_number(b: Lowering, x: Value, factor: int) -> Value:
    if x.dtype is d.F32 and factor >= 1 << 24:
        raise Unsupported("indices into this many elements need the INT profile")
    return x if factor == 1 else b.mul(x, b.number(factor, x))


def wrapped(b: Lowering, index: Value, size: int) -> Value:
    """Indices that count from the end as those that count from the beginning."""
    numbers, index = known(index), countable(b, index)
    if numbers is None:
        below = small_compared(b, ">", b.number(0, index), index)
        return masks.chosen(b, below, b.ADD(index, b.number(size, index)), index)
    if numbers.size and not (-size <= numbers.min() and numbers.max() < size):
        raise Unsupported(f"the indices reach outside of an axis of {size} elements")
    return b.const(np.where(numbers < 0, numbers + size, numbers), d.I32)


def flat_index(b: Lowering, indices: Sequence[Value], sizes: Sequence[int]) -> Value:
    """One index into axes taken together, from an index for each of them that broadcast."""
    wide = alike(b, *(wrapped(b, index, size) for index, size in zip(indices, sizes)))
    strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    numbers = [known(index) for index in wide]
    if all(n is not None for n in numbers):
        return b.const(sum(n * s for n, s in zip(numbers, strides) if n is not None), d.I32)
    total = times_number(b, wide[0], strides[0])
    for index, stride in zip(wide[1:], strides[1:]):
        total = b.ADD(total, times_number(b, index, stride))
    return total


def pick(b: Lowering, x: Value, axis: int, index: Value) -> Value:
    """The elements along an axis at the indices of a list, constant or computed."""
    numbers = known(index)
    if numbers is not None:
        places = wrapped(b, index, x.shape[axis])
        return take(b, x, axis, [int(i) for i in np.asarray(known(places)).reshape(-1)])
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    rows = b.reshape(x, (outer, x.shape[axis], inner))
    which = tiled(b, b.reshape(countable(b, index), (1, index.type.size)), (outer, 1))
    found = rows_at(b, rows, which)
    return b.reshape(found, (*x.shape[:axis], index.type.size, *x.shape[axis + 1 :]))


def rows_at(b: Lowering, rows: Value, index: Value) -> Value:
    """GATHER of [N, K, C] by [N, W]; masks go as int8 where TOSA does not gather them."""
    index = int32(b, index)
    if rows.quant is not None and rows.quant.axis is not None:
        raise Unsupported("values with a scale for each channel are not picked by their index")

    def plain() -> Value:
        return b.with_quant(b.GATHER(rows, index), rows.quant)

    def by_product() -> Value:
        found = hits(b, index, rows.shape[1])
        return picked(b, lambda kind: counted(b, b.permute(found, (0, 2, 1)), kind), rows)

    def as_numbers() -> Value:
        return b.CAST(b.GATHER(b.CAST(rows, out=d.I8), index), out=d.BOOL)

    if rows.dtype is d.BOOL:
        return first(b, plain, as_numbers)
    return first(b, plain, lambda: _looked_up(b, rows, index), by_product)


def _looked_up(b: Lowering, rows: Value, index: Value) -> Value:
    """Rows of a constant table: a convolution finds the group of rows, a product the row in it.

    Comparing each index with each row would take longer than all the rest, so groups have as
    many rows as make comparing and choosing take about as long.
    """
    if not rows.is_const or rows.const is None or rows.shape[0] != 1 or rows.dtype is not d.I8:
        raise Unsupported("only a constant table of int8 is looked up by a convolution")
    if rows.quant is None or isinstance(rows.quant.zero_point, tuple):
        raise Unsupported("a table that is looked up by a convolution has one scale")
    (_, count, channels), wanted, source = rows.shape, index.shape[1], rows.const
    zero = rows.quant.zero_point
    bits = max(round(math.log2(7 * count / channels) / 2), 0)
    groups = -(-count >> bits)

    def weights() -> Array:
        spare = np.full(((groups << bits) - count, channels), zero)
        whole = np.concatenate([np.asarray(source.array)[0], spare])
        made: Array = whole.reshape(groups, -1).T.reshape(-1, 1, 1, groups)
        return made

    size = channels << bits
    high = _group(b, index, bits)
    picks = counted(b, b.permute(hits(b, high, groups), (0, 2, 1)), d.I8)
    none = b.const([0], d.I8)
    found = b.CONV2D(
        b.reshape(picks, (1, 1, wanted, groups)),
        b.const(weights, d.I8, shape=(size, 1, 1, groups)), b.const(np.zeros(size), d.I32),
        none, b.const([zero], d.I8), pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1),
        acc_type=d.I32,
    )  # fmt: skip
    chosen = b.requantize(b.with_quant(found, Quant(rows.quant.scale)), rows.quant, d.I8)
    if not bits:
        return b.with_quant(b.reshape(chosen, (1, wanted, channels)), rows.quant)
    low = b.SUB(index, b.LOGICAL_LEFT_SHIFT(high, b.number(bits, high)))
    within = counted(b, hits(b, b.reshape(low, (wanted, 1)), 1 << bits), d.I8)
    chosen = b.with_quant(b.reshape(chosen, (wanted, 1 << bits, channels)), rows.quant)
    made = picked(b, lambda kind: b.reshape(within, (wanted, 1, 1 << bits)), chosen)
    return b.with_quant(b.reshape(made, (1, wanted, channels)), rows.quant)


def _group(b: Lowering, index: Value, bits: int) -> Value:
    """index / 2^bits, rounded down by a shift that rounds to the nearest."""
    if not bits:
        return index
    lower = b.SUB(index, b.number(1 << (bits - 1), index))
    return b.ARITHMETIC_RIGHT_SHIFT(lower, b.number(bits, index), round=True)


def small_compared(b: Lowering, name: str, x: Value, y: Value) -> Value:
    """A comparison of whole numbers whose difference fits int32, such as indices."""

    def difference() -> Value:
        if x.dtype is not d.I32:
            raise Unsupported("only integers are compared by their difference")
        return masks.compared_with(b, name, b.with_quant(b.SUB(x, y), Quant(1.0)), 0.0)

    return first(b, lambda: masks.compared(b, name, x, y, fits=True), difference)


def hits(b: Lowering, index: Value, size: int) -> Value:
    """[N, K, W]: whether the w-th index is k."""
    numbers = known(index)
    if numbers is not None:
        return b.const(numbers[:, None, :] == np.arange(size)[:, None], d.BOOL)
    which = b.reshape(countable(b, index), (index.shape[0], 1, index.shape[1]))
    places = np.arange(size).reshape(1, size, 1)

    def plain() -> Value:
        return b.EQUAL(which, b.const(places, which.dtype))

    def in_bytes() -> Value:
        """Without EQUAL, a difference of int8: an index that is none stays beside all places."""
        if which.dtype is not d.I32:
            raise Unsupported("only integers are compared by their difference")
        if size > _BYTES:
            return by_digits()
        limited = b.MINIMUM(b.MAXIMUM(which, b.number(-1, which)), b.number(size, which))
        byte = b.with_quant(b.levels(limited, d.I8, zero=-127), Quant(1.0, -127))
        known_places = b.with_quant(b.const(places - 127, d.I8), Quant(1.0, -127))
        return masks.compared(b, "==", byte, known_places)

    def by_digits() -> Value:
        """A place is hit if both of its digits are."""
        bits = (size.bit_length() + 1) // 2
        flat = b.reshape(which, index.shape)
        high = _group(b, flat, bits)
        low = b.SUB(flat, b.LOGICAL_LEFT_SHIFT(high, b.number(bits, high)))
        count, groups, wanted = index.shape[0], -(-size >> bits), index.shape[1]
        found = masks.both(
            b, b.reshape(hits(b, high, groups), (count, groups, 1, wanted)),
            b.reshape(hits(b, low, 1 << bits), (count, 1, 1 << bits, wanted)),
        )  # fmt: skip
        whole = b.reshape(found, (count, groups << bits, wanted))
        return take(b, b.with_quant(whole, found.quant), 1, range(size))

    def wide() -> Value:
        return small_compared(b, "==", which, b.const(places, which.dtype))

    return first(b, plain, in_bytes, wide)


def picked(b: Lowering, picks: Callable[[d.DType], Value], rows: Value) -> Value:
    """Rows of quantized values as a product with 0 and 1, at most one 1 a row: nothing is lost."""
    if rows.quant is None:
        raise Unsupported("a target without GATHER picks quantized values, by a product")
    sums = counted_rows(b, picks, rows)
    if sums.shape[0] * sums.shape[1] * rows.shape[1] > _MOST_PICKS:
        raise Unsupported(
            f"a target without GATHER picks by a product, with at most {_MOST_PICKS} pairs of an "
            "index and a place"
        )
    return b.requantize(b.with_quant(sums, Quant(rows.quant.scale)), rows.quant, rows.dtype)


def counted(b: Lowering, mask: Value, kind: d.DType) -> Value:
    """A mask as 0 and 1 of a type."""
    mask = masks.as_mask(b, mask)
    if isinstance(mask.quant, masks.Mask):  # it is of such numbers
        return mask if mask.dtype is kind else b.levels(mask, kind)
    ones = (1,) * mask.type.rank

    def chosen(of: d.DType) -> Value:
        return masks.chosen(b, mask, *(b.const(np.full(ones, n), of) for n in (1, 0)))

    if kind.is_float:
        return chosen(kind)
    return first(b, lambda: masks.number_of(b, mask, kind), lambda: b.CAST(chosen(d.F32), out=kind))
