"""Bounds of arithmetic, logic, comparison and selection, element by element.

Each function gets the analysis and an operator, and gives the bounds of its results. It asks
``require`` for every condition without which TOSA calls the operator unpredictable.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import ge, gt, lshift, mul, rshift
from typing import Any

import numpy as np

from tosaic.ir.graph import Op, Value
from tosaic.ir.int_intervals.core import (
    Bounds,
    End,
    Intervals,
    constant_number,
    greater,
    lesser,
    paired,
    rule,
    same_cases,
    tracked,
    where,
    whole,
)
from tosaic.spec.dtypes import I8, I16


def _corners(a: Bounds, b: Bounds, compute: Callable[[Any, Any], Any]) -> Bounds:
    """The ends of a function that is monotone in each operand."""
    a, b = same_cases(a, b)
    found = [compute(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return paired(reduce(lesser, found), reduce(greater, found), a.root or b.root)


def _limited(found: Bounds, value: Value) -> Bounds:
    """An exact result, within what is proved of it where operands depend on each other."""
    return found if value.limits is None else found.within(*value.limits)


def _fits(a: Intervals, found: Bounds, value: Value, what: str) -> Bounds:
    found, (low, high) = _limited(found, value), value.dtype.range
    least, most = found.ends
    if not (low <= least and most <= high):
        a.require(False, f"{what} can lie outside {value.dtype}")
    return found


def _wrapped(found: Bounds, value: Value) -> Bounds:
    """Numbers of which a type keeps the low bits: those that fit, or anything, case by case."""
    found, (low, high) = _limited(found, value), value.dtype.range
    least, most = found.ends
    if low <= least and most <= high:
        return found
    wraps = (found.low < low) | (found.high > high)
    return paired(where(wraps, low, found.low), where(wraps, high, found.high), found.root)


@rule("ADD", "SUB")
def _sum(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    x, y = same_cases(a.of(op.ins[0]), a.of(op.ins[1]))
    if op.outs[0].dtype.bits > 32:
        a.require(max(map(abs, (*x.ends, *y.ends))) < 1 << 61, "int64 can overflow")
        return [whole(op.outs[0])]
    low, high = (y.low, y.high) if op.name == "ADD" else (-y.high, -y.low)
    made = paired(x.low + low, x.high + high, x.root or y.root)
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
        return [whole(out)]
    if op.ins[0] is op.ins[1]:
        near, far = _distances(x)
        found = paired(near * near, far * far, x.root)
    else:
        found = _corners(x, y, mul)
    bits = constant_number(shift)
    if not bits:
        return [_wrapped(found, out)]
    if not a.require(0 < bits <= 63, f"it shifts by {bits}"):
        return [whole(out)]
    low, high = ((end + (1 << bits - 1)) >> bits for end in (found.low, found.high))
    return [_fits(a, Bounds(low, high, found.root), out, "the product")]


def _distances(x: Bounds) -> tuple[End, End]:
    """The least and the greatest magnitude."""
    one, other = abs(x.low), abs(x.high)
    return where((x.low <= 0) & (x.high >= 0), 0, lesser(one, other)), greater(one, other)


@rule("INTDIV")
def _quotient(a: Intervals, op: Op) -> list[Bounds]:
    x, y, out = a.of(op.ins[0]), a.of(op.ins[1]), op.outs[0]
    if not a.require(np.all((y.low > 0) | (y.high < 0)), "the divisor can be 0"):
        return [whole(out)]
    overflows = x.ends[0] == out.dtype.range[0] and np.any((y.low <= -1) & (y.high >= -1))
    a.require(not overflows, "the quotient can overflow")
    return [_corners(x, y, _truncated)]


def _truncated(x: Any, y: Any) -> Any:
    size = abs(x) // greater(abs(y), 1)
    return where((x < 0) ^ (y < 0), -size, size)


def _shifts(a: Intervals, op: Op) -> tuple[Bounds, Bounds] | None:
    """The operands of a shift, if it is by a number of bits that the type has."""
    x, y, last = a.of(op.ins[0]), a.of(op.ins[1]), op.outs[0].dtype.bits - 1
    least, most = y.ends
    fits = a.require(least >= 0 and most <= last, f"it can shift by {least} to {most} bits")
    return (x, y) if fits and last < 32 else None


@rule("ARITHMETIC_RIGHT_SHIFT")
def _shift_right(a: Intervals, op: Op) -> list[Bounds]:
    """Rounded half up or down to a whole number: monotone in both operands for either sign."""
    found = _shifts(a, op)
    if found is None:
        return [whole(op.outs[0])]
    if op.attrs["round"]:
        return [_corners(*found, lambda x, n: (x + ((1 << n) >> 1)) >> n)]
    return [_corners(*found, rshift)]


@rule("LOGICAL_LEFT_SHIFT")
def _shift_left(a: Intervals, op: Op) -> list[Bounds]:
    found = _shifts(a, op)
    out = op.outs[0]
    if found is None:
        return [whole(out)]
    return [_wrapped(_corners(*found, lshift), out)]


@rule("LOGICAL_RIGHT_SHIFT")
def _shift_zeros(a: Intervals, op: Op) -> list[Bounds]:
    found = _shifts(a, op)
    if found is None:
        return [whole(op.outs[0])]
    if found[0].ends[0] >= 0:
        return [_corners(*found, rshift)]
    least = found[1].ends[0]
    if not least:
        return [whole(op.outs[0])]
    return [Bounds(0, ((1 << op.outs[0].dtype.bits) - 1) >> least)]


@rule("MAXIMUM", "MINIMUM")
def _extreme(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    x, y = same_cases(a.of(op.ins[0]), a.of(op.ins[1]))
    pick = greater if op.name == "MAXIMUM" else lesser
    return [paired(pick(x.low, y.low), pick(x.high, y.high), x.root or y.root)]


@rule("ABS")
def _magnitude(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    x = a.of(op.ins[0])
    lowest = op.ins[0].dtype.range[0]
    a.require(x.ends[0] > lowest, f"{lowest} has no negative")
    return [paired(*_distances(x), x.root)]


@rule("NEGATE")
def _negative(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    x, kind = a.of(op.ins[0]), op.outs[0].dtype
    total = 0
    if kind in (I8, I16):
        total = constant_number(op.ins[1]) + constant_number(op.ins[2])
    else:
        a.require(x.ends[0] > kind.range[0], f"{kind.range[0]} has no negative")
    return [Bounds(total - x.high, total - x.low, x.root)]


@rule("CLZ")
def _leading_zeros(a: Intervals, op: Op) -> list[Bounds]:
    x, bits = a.of(op.ins[0]), op.outs[0].dtype.bits
    if bits > 32:
        return [Bounds(0, bits)]

    def zeros(end: End) -> End:
        """As many as the type has less those of the number; none before a sign."""
        if type(end) is int:
            return 0 if end < 0 else bits - end.bit_length()
        used = np.frexp(end.clip(0).astype(np.float64))[1].astype(np.int64)
        return np.where(end < 0, 0, bits - used)

    most = where((x.low < 0) & (x.high >= 0), bits, zeros(x.low))
    return [paired(zeros(x.high) * (x.low >= 0), most, x.root)]


@rule("CLAMP")
def _clamp(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.outs[0]):
        return []
    return [a.of(op.ins[0]).within(op.attrs["min_val"], op.attrs["max_val"])]


@rule("BITWISE_AND", "BITWISE_OR", "BITWISE_XOR")
def _bits(a: Intervals, op: Op) -> list[Bounds]:
    x, y = a.of(op.ins[0]), a.of(op.ins[1])
    least, most = min(x.ends[0], y.ends[0]), max(x.ends[1], y.ends[1])
    if op.name == "BITWISE_AND" and max(x.ends[0], y.ends[0]) >= 0:
        tops = [b.ends[1] for b in (x, y) if b.ends[0] >= 0]
        return [Bounds(0, min(tops))]
    reach = 1 << max(most, -1 - least, 0).bit_length()
    return [Bounds(0 if least >= 0 else -reach, reach - 1)]


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
    pick = lesser if op.name == "LOGICAL_AND" else greater
    return [paired(pick(x.low, y.low), pick(x.high, y.high), x.root or y.root)]


@rule("LOGICAL_XOR", "REDUCE_ALL", "REDUCE_ANY")
def _truth(a: Intervals, op: Op) -> list[Bounds]:
    return [whole(op.outs[0])]


@rule("EQUAL", "GREATER", "GREATER_EQUAL")
def _compared(a: Intervals, op: Op) -> list[Bounds]:
    if not tracked(op.ins[0]):
        return [whole(op.outs[0])]
    x, y = same_cases(a.of(op.ins[0]), a.of(op.ins[1]))
    if op.name == "EQUAL":
        always = (x.low == x.high) & (y.low == y.high) & (x.low == y.low)
        ever = (x.low <= y.high) & (y.low <= x.high)
    else:
        above = gt if op.name == "GREATER" else ge
        always, ever = above(x.low, y.high), above(x.high, y.low)
    return [paired(where(always, 1, 0), where(ever, 1, 0), x.root or y.root)]


@rule("SELECT")
def _selected(a: Intervals, op: Op) -> list[Bounds]:
    """Both operands, or the one that a condition is known to choose."""
    if not tracked(op.outs[0]):
        return []
    which, x, y = same_cases(*(a.of(v) for v in op.ins))
    first, second = which.low == 1, which.high == 0
    low = where(first, x.low, where(second, y.low, lesser(x.low, y.low)))
    high = where(first, x.high, where(second, y.high, greater(x.high, y.high)))
    return [paired(low, high, which.root or x.root or y.root)]


@rule("CAST")
def _cast(a: Intervals, op: Op) -> list[Bounds]:
    """Integers keep their low bits; floats saturate, so they can become all that there is."""
    source, out = op.ins[0], op.outs[0]
    if not tracked(out):
        return []
    if out.dtype.bits == 1 or not tracked(source):
        return [whole(out)]
    return [_wrapped(a.of(source), out)]


@rule("IDENTITY")
def _same(a: Intervals, op: Op) -> list[Bounds]:
    return [a.of(op.ins[0])] if tracked(op.outs[0]) else []
