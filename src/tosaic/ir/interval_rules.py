"""What bounds of operands make of the results of each operator, and when TOSA leaves these open.

Each function gets the analysis and an operator, and gives the bounds of its results. It asks
``require`` for every condition without which TOSA calls the operator unpredictable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tosaic.ir.graph import Array, Op, Value
from tosaic.ir.int_intervals import (
    RULES,
    Bounds,
    Intervals,
    bounded,
    rule,
    run_graph,
    same_cases,
    tracked,
    type_range,
)
from tosaic.spec.dtypes import I8, I16, I32

INT32 = I32.range
_LONG = 1 << 10  # elements of an axis that CONCAT keeps apart


def _number(value: Value) -> int:
    """The one number of a constant operand."""
    assert value.const is not None
    return int(value.const.array.reshape(-1)[0])


def _whole(value: Value) -> Bounds:
    return bounded(*type_range(value.dtype), value.type.rank)


def _corners(a: Bounds, b: Bounds, compute: Callable[[Array, Array], Array]) -> Bounds:
    """The ends of a function that is monotone in each operand."""
    a, b = same_cases(a, b)
    found = [compute(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    low, high = np.minimum.reduce(found), np.maximum.reduce(found)
    return Bounds(low, high, a.root or b.root)


def _limited(found: Bounds, value: Value) -> Bounds:
    """An exact result, within what is proved of it where operands depend on each other."""
    return found if value.limits is None else found.within(*value.limits)


def _fits(a: Intervals, found: Bounds, value: Value, what: str) -> Bounds:
    found, (low, high) = _limited(found, value), type_range(value.dtype)
    least, most = found.ends
    a.require(low <= least and most <= high, f"{what} can lie outside {value.dtype}")
    return found


def _wrapped(found: Bounds, value: Value) -> Bounds:
    """Numbers of which a type keeps the low bits: those that fit, or anything, case by case."""
    found, (low, high) = _limited(found, value), type_range(value.dtype)
    wraps = (found.low < low) | (found.high > high)
    return Bounds(np.where(wraps, low, found.low), np.where(wraps, high, found.high), found.root)


@rule("ADD", "SUB")
def _sum(a: Intervals, op: Op) -> list[Bounds]:
    x, y = same_cases(a.of(op.ins[0]), a.of(op.ins[1])) if tracked(op.outs[0]) else (None, None)
    if x is None or y is None:
        return []
    if op.outs[0].dtype.bits > 32:
        a.require(max(map(abs, (*x.ends, *y.ends))) < 1 << 61, "int64 can overflow")
        return [_whole(op.outs[0])]
    low, high = (y.low, y.high) if op.name == "ADD" else (-y.high, -y.low)
    made = Bounds(x.low + low, x.high + high, x.root or y.root)
    what = "the sum" if op.name == "ADD" else "the difference"
    return [_fits(a, made, op.outs[0], what)]


@rule("MUL")
def _product(a: Intervals, op: Op) -> list[Bounds]:
    """Without a shift the low bits of a product are the result; with one it has to fit.

    The square of a value lies between 0, or the square of its end nearer to 0, and that of the
    farther end: both operands are the same element.
    """
    out = op.outs[0]
    if not tracked(out):
        return []
    x, y, shift = a.of(op.ins[0]), a.of(op.ins[1]), op.ins[2]
    if out.dtype.bits > 32 or shift.const is None:
        a.require(out.dtype.bits <= 32, "int64 can overflow")
        return [_whole(out)]
    if op.ins[0] is op.ins[1]:
        near = np.where((x.low <= 0) & (x.high >= 0), 0, np.minimum(abs(x.low), abs(x.high)))
        far = np.maximum(abs(x.low), abs(x.high))
        found = Bounds(near * near, far * far, x.root)
    else:
        found = _corners(x, y, np.multiply)
    bits = _number(shift)
    if not bits:
        return [_wrapped(found, out)]
    if not a.require(0 < bits <= 63, f"it shifts by {bits}"):
        return [_whole(out)]
    return [_fits(a, found.map(lambda end: (end + (1 << bits - 1)) >> bits), out, "the product")]


@rule("INTDIV")
def _quotient(a: Intervals, op: Op) -> list[Bounds]:
    x, y, out = a.of(op.ins[0]), a.of(op.ins[1]), op.outs[0]
    lowest = type_range(out.dtype)[0]
    if not a.require(bool(((y.low > 0) | (y.high < 0)).all()), "the divisor can be 0"):
        return [_whole(out)]
    overflows = x.ends[0] == lowest and bool(((y.low <= -1) & (y.high >= -1)).any())
    a.require(not overflows, "the quotient can overflow")
    return [_corners(x, y, lambda n, d: np.sign(n) * np.sign(d) * (abs(n) // abs(d).clip(1)))]


def _shifts(a: Intervals, op: Op) -> tuple[Bounds, Bounds] | None:
    """The operands of a shift, if it is by a number of bits that the type has."""
    x, y, last = a.of(op.ins[0]), a.of(op.ins[1]), op.outs[0].dtype.bits - 1
    least, most = y.ends
    fits = a.require(0 <= least and most <= last, f"it can shift by {least} to {most} bits")
    return (x, y) if fits and last < 32 else None


@rule("ARITHMETIC_RIGHT_SHIFT")
def _shift_right(a: Intervals, op: Op) -> list[Bounds]:
    """Rounded half up or down to a whole number: monotone in both operands for either sign."""
    found = _shifts(a, op)
    if found is None:
        return [_whole(op.outs[0])]
    if op.attrs["round"]:
        return [_corners(*found, lambda x, n: (x + ((1 << n) >> 1)) >> n)]
    return [_corners(*found, np.right_shift)]


@rule("LOGICAL_LEFT_SHIFT")
def _shift_left(a: Intervals, op: Op) -> list[Bounds]:
    found = _shifts(a, op)
    out = op.outs[0]
    if found is None:
        return [_whole(out)]
    return [_wrapped(_corners(*found, np.left_shift), out)]


@rule("LOGICAL_RIGHT_SHIFT")
def _shift_zeros(a: Intervals, op: Op) -> list[Bounds]:
    found = _shifts(a, op)
    if found is None:
        return [_whole(op.outs[0])]
    if found[0].ends[0] >= 0:
        return [_corners(*found, np.right_shift)]
    least = found[1].ends[0]
    if not least:
        return [_whole(op.outs[0])]
    return [bounded(0, ((1 << op.outs[0].dtype.bits) - 1) >> least, op.outs[0].type.rank)]


@rule("MAXIMUM", "MINIMUM")
def _extreme(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    x, y = same_cases(a.of(op.ins[0]), a.of(op.ins[1]))
    pick = np.maximum if op.name == "MAXIMUM" else np.minimum
    return [Bounds(pick(x.low, y.low), pick(x.high, y.high), x.root or y.root)]


@rule("ABS")
def _magnitude(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    x = a.of(op.ins[0])
    lowest = type_range(op.ins[0].dtype)[0]
    a.require(x.ends[0] > lowest, f"{lowest} has no negative")
    near = np.where((x.low <= 0) & (x.high >= 0), 0, np.minimum(abs(x.low), abs(x.high)))
    return [Bounds(near, np.maximum(abs(x.low), abs(x.high)), x.root)]


@rule("NEGATE")
def _negative(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    x, kind = a.of(op.ins[0]), op.outs[0].dtype
    total = 0
    if kind in (I8, I16):
        total = _number(op.ins[1]) + _number(op.ins[2])
    else:
        a.require(x.ends[0] > kind.range[0], f"{kind.range[0]} has no negative")
    return [Bounds(total - x.high, total - x.low, x.root)]


@rule("CLZ")
def _leading_zeros(a: Intervals, op: Op) -> list[Bounds]:
    x, bits = a.of(op.ins[0]), op.outs[0].dtype.bits
    if bits > 32:
        return [bounded(0, bits, op.outs[0].type.rank)]

    def zeros(end: Array) -> Array:
        """As many as the type has less those of the number; none before a sign."""
        return np.where(end < 0, 0, bits - np.frexp(end.clip(0).astype(np.float64))[1])

    most = np.where((x.low < 0) & (x.high >= 0), bits, zeros(x.low))
    return [Bounds(zeros(x.high) * (x.low >= 0), most, x.root)]


@rule("CLAMP")
def _clamp(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    return [a.of(op.ins[0]).within(op.attrs["min_val"], op.attrs["max_val"])]


@rule("BITWISE_AND", "BITWISE_OR", "BITWISE_XOR")
def _bits(a: Intervals, op: Op) -> list[Bounds]:
    x, y, rank = a.of(op.ins[0]), a.of(op.ins[1]), op.outs[0].type.rank
    least, most = min(x.ends[0], y.ends[0]), max(x.ends[1], y.ends[1])
    if op.name == "BITWISE_AND" and max(x.ends[0], y.ends[0]) >= 0:
        tops = [b.ends[1] for b in (x, y) if b.ends[0] >= 0]
        return [bounded(0, min(tops), rank)]
    reach = 1 << max(most, -1 - least, 0).bit_length()
    return [bounded(0 if least >= 0 else -reach, reach - 1, rank)]


@rule("BITWISE_NOT")
def _inverted(a: Intervals, op: Op) -> list[Bounds]:
    x = a.of(op.ins[0])
    return [Bounds(-1 - x.high, -1 - x.low, x.root)]


@rule("LOGICAL_NOT")
def _not(a: Intervals, op: Op) -> list[Bounds]:
    x = a.of(op.ins[0])
    return [Bounds(1 - x.high, 1 - x.low, x.root)]


@rule("LOGICAL_AND", "LOGICAL_OR")
def _both(a: Intervals, op: Op) -> list[Bounds]:
    x, y = same_cases(a.of(op.ins[0]), a.of(op.ins[1]))
    pick = np.minimum if op.name == "LOGICAL_AND" else np.maximum
    return [Bounds(pick(x.low, y.low), pick(x.high, y.high), x.root or y.root)]


@rule("LOGICAL_XOR", "REDUCE_ALL", "REDUCE_ANY")
def _truth(a: Intervals, op: Op) -> list[Bounds]:
    return [_whole(op.outs[0])]


@rule("EQUAL", "GREATER", "GREATER_EQUAL")
def _compared(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.ins[0]):
        return [_whole(op.outs[0])]
    x, y = same_cases(a.of(op.ins[0]), a.of(op.ins[1]))
    if op.name == "EQUAL":
        always = (x.low == x.high) & (y.low == y.high) & (x.low == y.low)
        ever = (x.low <= y.high) & (y.low <= x.high)
    else:
        above = np.greater if op.name == "GREATER" else np.greater_equal
        always, ever = above(x.low, y.high), above(x.high, y.low)
    return [Bounds(always.astype(np.int64), ever.astype(np.int64), x.root or y.root)]


@rule("SELECT")
def _selected(a: Intervals, op: Op) -> list[Bounds]:
    """Both operands, or the one that a condition is known to choose."""
    if not tracked(op.outs[0]):
        return []
    which, x, y = same_cases(*(a.of(v) for v in op.ins))
    low = np.where(which.low == 1, x.low, np.where(which.high == 0, y.low, np.minimum(x.low, y.low)))
    high = np.where(
        which.low == 1, x.high, np.where(which.high == 0, y.high, np.maximum(x.high, y.high))
    )  # fmt: skip
    return [Bounds(low, high, which.root or x.root or y.root)]


@rule("CAST")
def _cast(a: Intervals, op: Op) -> list[Bounds]:
    """Integers keep their low bits; floats saturate, so they can become all that there is."""
    source, out = op.ins[0], op.outs[0]
    if not tracked(out):
        return []
    if out.dtype.bits == 1 or not tracked(source):
        return [_whole(out)]
    return [_wrapped(a.of(source), out)]


@rule("RESCALE")
def _rescaled(a: Intervals, op: Op) -> list[Bounds]:
    """Monotone, so that the ends of the operand give those of the result.

    TOSA wants the result inside int32 before it narrows, and where multipliers have 32 bits the
    operand less its zero point below half of what is shifted out.
    """
    x, out, kind = a.of(op.ins[0]), op.outs[0], op.ins[0].dtype
    if any(v.const is None for v in op.ins[1:]) or op.attrs["rounding_mode"] == "INEXACT_ROUND":
        a.require(False, "its scale is not a constant, or its rounding is left open")
        return [_whole(out)]
    multiplier, shift = (np.asarray(v.const.array, np.int64).reshape(-1) for v in op.ins[1:3] if v.const)
    given, zero = _number(op.ins[3]), _number(op.ins[4])
    if op.attrs["input_unsigned"]:
        given %= 1 << kind.bits
        if x.ends[0] < 0:
            x = bounded(0, (1 << kind.bits) - 1, op.ins[0].type.rank)
    low, high = x.low - given, x.high - given
    if len(multiplier) == 1:
        multiplier, shift = multiplier[0], shift[0]
        fine = multiplier >= 0 and 2 <= shift <= 62
    else:
        fine = bool((multiplier >= 0).all() and (shift >= 2).all() and (shift <= 62).all())
    if not a.require(fine, "its multiplier is negative or its shift outside of 2 to 62"):
        return [_whole(out)]
    limit = np.left_shift(1, shift - 1)

    def scaled(end: Array) -> Array:
        half = limit
        if op.attrs["rounding_mode"] == "DOUBLE_ROUND":
            half = half + np.where(shift > 31, np.where(end >= 0, 1 << 30, -(1 << 30)), 0)
        return (end * multiplier + half) >> shift

    if op.attrs["scale32"]:
        inside = (low >= -limit) & (high < limit)
        a.require(inside.all(), "a value can be too large for its shift")
    made = Bounds(scaled(low), scaled(high), x.root)
    least, most = made.ends
    a.require(INT32[0] <= least and most <= INT32[1], "a result can lie outside int32")
    if not op.attrs["output_unsigned"]:
        return [made.map(lambda end: end + zero) if zero else made]
    zero %= 1 << out.dtype.bits
    if most + zero < 1 << out.dtype.bits - 1:
        return [made.map(lambda end: (end + zero).clip(0))]
    return [_whole(out)]  # bytes above 127 are negative where they are stored


class _Range:
    """The least and the greatest of any run of entries, by doubling runs."""

    def __init__(self, entries: Array) -> None:
        self.least, self.most = [entries], [entries]
        size = 1
        while 2 * size <= len(entries):
            for rows, pick in ((self.least, np.minimum), (self.most, np.maximum)):
                rows.append(pick(rows[-1][:-size], rows[-1][size:]))
            size *= 2

    def __call__(self, first: Array, last: Array) -> tuple[Array, Array]:
        level = np.frexp((last - first + 1).astype(np.float64))[1] - 1
        low, high = np.empty(first.shape, np.int64), np.empty(first.shape, np.int64)
        for n in np.unique(level):
            at, size = level == n, 1 << int(n)
            i, j = first[at], last[at] + 1 - size
            low[at] = np.minimum(self.least[n][i], self.least[n][j])
            high[at] = np.maximum(self.most[n][i], self.most[n][j])
        return low, high


@rule("TABLE")
def _table(a: Intervals, op: Op) -> list[Bounds]:
    """Entries that the operand can choose; of int16, lines between them, which end at nodes."""
    x, source = a.of(op.ins[0]), op.ins[1].const
    if source is None:
        return [_whole(op.outs[0])]
    entries = np.asarray(source.array, np.int64)
    if op.ins[0].dtype is I8:
        low, high = _Range(entries)(x.low + 128, x.high + 128)
        return [Bounds(low, high, x.root)]
    slope = np.diff(entries)
    first, last = (x.low + 32768) >> 7, (x.high + 32768) >> 7
    steep = _Range(slope)
    least, most = steep(first, last)
    a.require(
        bool((least >= I16.range[0]).all() and (most <= I16.range[1]).all()),
        "neighbouring table entries are further apart than an int16",
    )

    def met(end: Array, segment: Array) -> Array:
        return (entries[segment] << 7) + slope[segment] * ((end + 32768) & 127)

    ends = met(x.low, first), met(x.high, last)
    low, high = np.minimum(*ends), np.maximum(*ends)
    inside = last > first  # nodes from the one behind the first end on
    if inside.any():
        nodes = _Range(entries << 7)(np.where(inside, first + 1, last), last)
        low = np.where(inside, np.minimum(low, nodes[0]), low)
        high = np.where(inside, np.maximum(high, nodes[1]), high)
    return [Bounds(low, high, x.root)]


@rule("REDUCE_MAX", "REDUCE_MIN")
def _reduced(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    x, axis = a.of(op.ins[0]), op.attrs["axis"] + 1
    return [x.map(lambda end: (end.max if op.name == "REDUCE_MAX" else end.min)(axis, keepdims=True))]


@rule("REDUCE_SUM")
def _total(a: Intervals, op: Op) -> list[Bounds]:
    """Every sum of the first elements has to fit as well."""
    if not tracked(op.outs[0]):
        return []
    x, axis, out = a.of(op.ins[0]), op.attrs["axis"] + 1, op.outs[0]
    length = op.ins[0].shape[op.attrs["axis"]]
    times = length if x.low.shape[axis] == 1 else 1
    made = x.map(lambda end: end.sum(axis, keepdims=True) * times)
    least = x.low.clip(max=0).sum(axis) * times
    most = x.high.clip(0).sum(axis) * times
    low, high = type_range(out.dtype)
    if out.limits is not None and x.ends[0] >= 0:  # then no partial sum is more than all of it
        most = most.clip(max=out.limits[1])
    a.require(low <= least.min() and most.max() <= high, "a partial sum can overflow")
    return [made]


@rule("ARGMAX")
def _argmax(a: Intervals, op: Op) -> list[Bounds]:
    return [bounded(0, op.ins[0].shape[op.attrs["axis"]] - 1, op.outs[0].type.rank)]


@rule("IDENTITY")
def _same(a: Intervals, op: Op) -> list[Bounds]:
    return [a.of(op.ins[0])] if tracked(op.outs[0]) else []


for _name in "VARIABLE VARIABLE_READ VARIABLE_WRITE CUSTOM CONST CONST_SHAPE".split():
    RULES[_name] = lambda a, op: [_whole(v) for v in op.outs] if all(map(tracked, op.outs)) else []


@rule("COND_IF")
def _branches(a: Intervals, op: Op) -> list[Bounds]:
    """What either branch gives."""
    results = [_region(a, op, i, [_input(a, v) for v in op.ins[1:]]) for i in (0, 1)]
    return [_joined(x, y, v) for x, y, v in zip(*results, op.outs)]


@rule("WHILE_LOOP")
def _loop(a: Intervals, op: Op) -> list[Bounds]:
    """What holds before and after every turn: what turns change becomes its whole type."""
    state = [_input(a, v) for v in op.ins]
    for attempt in range(len(state) + 2):
        _region(a, op, 0, state)
        after = _region(a, op, 1, state)
        grown = [_joined(x, y, v) for x, y, v in zip(state, after, op.ins)]
        if all(_equal(x, y) for x, y in zip(grown, state)):
            break
        state = [
            x if _equal(x, y) else _whole(v) for x, y, v in zip(grown, state, op.ins)
        ]  # fmt: skip
    return state


def _input(a: Intervals, value: Value) -> Bounds:
    return a.of(value).over(0) if tracked(value) else bounded(0, 0, value.type.rank)


def _joined(x: Bounds, y: Bounds, value: Value) -> Bounds:
    return x.joined(y) if tracked(value) else x


def _equal(x: Bounds, y: Bounds) -> bool:
    return x is y or x.ends == y.ends


def _region(a: Intervals, op: Op, index: int, given: list[Bounds]) -> list[Bounds]:
    """The results of a region whose inputs have bounds; its findings are the operator's."""
    region = op.regions[index]
    inner = replace(a, findings={}, _known=dict(a._known), _problem=None)
    for value, found in zip(region.inputs, given):
        inner.bind(value, found)
    run_graph(inner, region)
    for finding in inner.findings.values():
        a.require(False, str(finding))
    return [_input(inner, v) for v in region.outputs]


from tosaic.ir import interval_moves as _moves  # noqa: E402, F401
from tosaic.ir import interval_products as _products  # noqa: E402, F401

__all__ = ["INT32", "math"]
