"""Bounds of integers from the operators that compute them: one pair of ends a value.

They tell which kernels need no check at run time and which arithmetic is exact. The interval
analysis of ``ir`` proves more, at many times the cost; here a value without a rule has the bounds
of its type.
"""

from __future__ import annotations

from collections.abc import Callable

from tosaic.ir.graph import Graph, Op, Value

Ends = tuple[int, int]


class Bounds(dict[Value, Ends]):
    """The least and the greatest integer of each value that is known to have narrower ones."""

    def add(self, graph: Graph) -> None:
        """Bound what the operators of a graph compute, in their order."""
        for op in graph.ops:
            self.holds(op)

    def holds(self, op: Op) -> bool:
        """Whether the result of an operator is bounded, by what is known of its operands now."""
        rule = _RULES.get(op.name)
        if rule is None or len(op.outs) != 1 or not op.outs[0].dtype.is_int:
            return False
        found, (low, high) = rule(self, op), op.outs[0].dtype.range
        if found is not None and low <= found[0] and found[1] <= high:
            self[op.outs[0]] = found
        return op.outs[0] in self

    def of(self, value: Value) -> Ends:
        found = self.get(value)
        if found is None:
            found = value.dtype.range
            if value.is_const and value.const is not None and value.type.size:
                array = value.const.array
                found = int(array.min()), int(array.max())
                self[value] = found
        return found


Rule = Callable[[Bounds, Op], Ends | None]
_RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


@_rule("RESHAPE", "SLICE", "TRANSPOSE", "TILE", "REVERSE", "IDENTITY", "REDUCE_MAX", "REDUCE_MIN",
       "MAX_POOL2D", "GATHER")  # fmt: skip
def _same(bounds: Bounds, op: Op) -> Ends:
    return bounds.of(op.ins[0])


@_rule("CONCAT")
def _any(bounds: Bounds, op: Op) -> Ends:
    ends = [bounds.of(v) for v in op.ins]
    return min(low for low, _ in ends), max(high for _, high in ends)


@_rule("ADD")
def _sum(bounds: Bounds, op: Op) -> Ends:
    a, b = bounds.of(op.ins[0]), bounds.of(op.ins[1])
    return a[0] + b[0], a[1] + b[1]


@_rule("SUB")
def _difference(bounds: Bounds, op: Op) -> Ends:
    a, b = bounds.of(op.ins[0]), bounds.of(op.ins[1])
    return a[0] - b[1], a[1] - b[0]


@_rule("MUL")
def _product(bounds: Bounds, op: Op) -> Ends | None:
    if not op.ins[2].is_const:
        return None
    a, b, bits = bounds.of(op.ins[0]), bounds.of(op.ins[1]), bounds.of(op.ins[2])[0]
    half = 1 << bits - 1 if bits else 0
    found = [(x * y + half) >> bits for x in a for y in b]
    return min(found), max(found)


@_rule("MAXIMUM")
def _maximum(bounds: Bounds, op: Op) -> Ends:
    a, b = bounds.of(op.ins[0]), bounds.of(op.ins[1])
    return max(a[0], b[0]), max(a[1], b[1])


@_rule("MINIMUM")
def _minimum(bounds: Bounds, op: Op) -> Ends:
    a, b = bounds.of(op.ins[0]), bounds.of(op.ins[1])
    return min(a[0], b[0]), min(a[1], b[1])


@_rule("CLAMP")
def _clamp(bounds: Bounds, op: Op) -> Ends:
    low, high = op.attrs["min_val"], op.attrs["max_val"]
    found = sorted((min(max(end, low), high)) for end in bounds.of(op.ins[0]))
    return found[0], found[1]


@_rule("ABS")
def _abs(bounds: Bounds, op: Op) -> Ends:
    low, high = bounds.of(op.ins[0])
    return max(low, -high, 0), max(-low, high)


@_rule("CAST")
def _cast(bounds: Bounds, op: Op) -> Ends | None:
    return bounds.of(op.ins[0]) if op.ins[0].dtype.is_int else None


@_rule("CLZ")
def _clz(bounds: Bounds, op: Op) -> Ends:
    return 0, op.ins[0].dtype.bits


@_rule("REDUCE_SUM")
def _reduce_sum(bounds: Bounds, op: Op) -> Ends:
    (low, high), length = bounds.of(op.ins[0]), op.ins[0].shape[op.attrs["axis"]]
    return low * length, high * length


@_rule("MATMUL")
def _matmul(bounds: Bounds, op: Op) -> Ends | None:
    a, b, a_zp, b_zp = op.ins
    if not (a_zp.is_const and b_zp.is_const):
        return None
    sides = [[end - bounds.of(zp)[0] for end in bounds.of(v)] for v, zp in ((a, a_zp), (b, b_zp))]
    terms = [x * y * a.shape[2] for x in sides[0] for y in sides[1]]
    return min(terms), max(terms)


@_rule("ARITHMETIC_RIGHT_SHIFT")
def _shift_right(bounds: Bounds, op: Op) -> Ends:
    low, high = bounds.of(op.ins[0])
    return min(low, 0), max(high, 0)


@_rule("TABLE")
def _table(bounds: Bounds, op: Op) -> Ends | None:
    if not op.ins[1].is_const:
        return None
    low, high = bounds.of(op.ins[1])
    factor = 128 if op.ins[0].dtype.bits == 16 else 1
    return low * factor, high * factor


@_rule("RESCALE")
def _rescale(bounds: Bounds, op: Op) -> Ends | None:
    if op.attrs["per_channel"] or any(not v.is_const for v in op.ins[1:]):
        return None
    found = rescaled(op, bounds.of(op.ins[0]))
    if found is None or op.attrs["output_unsigned"]:
        return None
    low, high = op.outs[0].dtype.range
    return min(max(found[0], low), high), min(max(found[1], low), high)


def rescaled(op: Op, ends: Ends) -> Ends | None:
    """Ends of a RESCALE by one known multiplier before they saturate; None if one is undefined."""
    numbers = (int(v.const.array.reshape(-1)[0]) for v in op.ins[1:] if v.const is not None)
    multiplier, shift, input_zp, output_zp = numbers
    rounding = op.attrs["rounding_mode"]
    if op.attrs["input_unsigned"] or multiplier < 0 or not 2 <= shift <= 62:
        return None
    if rounding == "INEXACT_ROUND" or (rounding == "DOUBLE_ROUND" and shift > 31):
        return None
    found, limit = [], 1 << shift - 1
    for end in ends:
        value = end - input_zp
        scaled = (value * multiplier + limit) >> shift
        if not -(1 << 31) <= scaled < 1 << 31:
            return None
        if op.attrs["scale32"] and not -limit <= value < limit:
            return None
        found.append(scaled + output_zp)
    return found[0], found[1]
