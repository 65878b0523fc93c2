"""Alternatives for masks: comparison, logic and selection, with bool tensors or with int8.

Where a target has no bool, a mask is int8 with 0 and 1, and its ``quant`` says so: a Mask. Each
function tries TOSA's own operator first and then an exact expression by arithmetic, whose
cycles are stated per element where they were measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Array, Quant, Value
from tosaic.lowering.alternatives.data_movement import first
from tosaic.lowering.alternatives.lut import ROUNDING
from tosaic.lowering.alternatives.reduce_extreme import extreme
from tosaic.lowering.builder import Lowering
from tosaic.spec import dtypes as d
from tosaic.spec.dtypes import TensorType

_NEVER = 1 << 24  # no quantized tensor holds it
_TURNED = {"<": ">", "<=": ">="}


@dataclass(frozen=True, slots=True)
class Mask(Quant):
    """0 and 1 that stand for False and True; as real numbers they are 0 and 1."""


MASK = Mask(1.0)


def is_mask(x: Value) -> bool:
    return x.dtype is d.BOOL or isinstance(x.quant, Mask)


def has_bool(b: Lowering) -> bool:
    """Whether the target has bool tensors."""
    with b.scratch():
        try:
            b.IDENTITY(Value(TensorType(d.BOOL, (1,))))
        except Unsupported:
            return False
    return True


def mask_input(b: Lowering, shape: Sequence[int], name: str = "") -> Value:
    """A graph input that is a mask, in the type that the target has for it."""
    if has_bool(b):
        return b.input(d.BOOL, shape, name)
    made = b.with_quant(b.input(d.I8, shape, name), MASK)
    made.limits = (0, 1)
    return made


def as_mask(b: Lowering, x: Value) -> Value:
    """A mask as the target has it: a constant is made of bool."""
    if x.dtype is not d.BOOL or x.const is None or has_bool(b):
        return x
    return b.remade(x, lambda a: a, kind=d.I8, quant=MASK)


def _wide(b: Lowering, x: Value) -> Value:
    """The levels of any small integer as int32."""
    return x if x.dtype is d.I32 else b.levels(x)


def _byte(b: Lowering, x: Value, zero: int = 0) -> Value:
    return b.levels(x, d.I8, zero=zero)


def _lookup(b: Lowering, x: Value, true: Any) -> Value:
    """A mask that a table holds, for an int8 value."""
    entries = true(np.arange(-128, 128)).astype(np.int8)
    return b.with_quant(b.TABLE(x, b.const(entries, d.I8)), MASK)


def _compared(b: Lowering, name: str, left: Value, right: Value) -> Value:
    """TOSA's own comparison."""
    if name == "==" and left.dtype is d.BOOL:
        return b.LOGICAL_NOT(b.LOGICAL_XOR(left, right))
    emit = {"==": b.EQUAL, ">": b.GREATER, ">=": b.GREATER_EQUAL}[name]
    return emit(left, right)


def compared(b: Lowering, name: str, left: Value, right: Value, *, fits: bool = False) -> Value:
    """Whether left is equal to right ("=="), greater (">") and so on: values of one type.

    Where the difference of two int32 ``fits``, a caller has a shorter form than for any two.
    """
    if name in _TURNED:
        left, right, name = right, left, _TURNED[name]
    if name == "==" and is_mask(left) and is_mask(right):
        return inverted(b, differ(b, left, right))
    small = left.dtype is right.dtype is d.I8
    if left.quant is not None:
        left, right = b.aligned(left, right)

    forms = [lambda: _compared(b, name, left, right)]
    if left.quant is not None:
        forms += [lambda: _sign(b, name, b.SUB(left, right), small)]
    elif d.I32 is left.dtype is right.dtype:
        forms += [lambda: _stepped(b, name, left, right), lambda: _in_float(b, name, left, right)]
        forms += [] if fits else [lambda: _neighboured(b, name, left, right)]
    return first(b, *forms)


def _stepped(b: Lowering, name: str, left: Value, right: Value) -> Value:
    """Any int32 and a constant: limited to the constant and its neighbours first."""
    known, x = (right, left) if right.is_const else (left, right)
    ends = {"==": (-1, 1), ">": (0, 1), ">=": (-1, 0)}[name]
    low, high = ends if known is right else (-ends[1], -ends[0])
    numbers = _numbers(known)
    if (
        numbers.min(initial=0) + low < d.I32.range[0]
        or numbers.max(initial=0) + high > d.I32.range[1]
    ):
        raise Unsupported("an int32 is compared with the last int32 there is")
    below, above = (b.const(numbers + end, d.I32) for end in (low, high))
    limited = b.MINIMUM(b.MAXIMUM(x, below), above)
    if name == "==":
        y = b.SUB(b.number(1, x), b.ABS(b.SUB(limited, known)))
    else:
        y = b.SUB(limited, below) if known is right else b.SUB(above, limited)
    return b.with_quant(_byte(b, y), MASK)


def _neighboured(b: Lowering, name: str, left: Value, right: Value) -> Value:
    """Any two int32, whose difference may not fit: limited to one of them and its successor."""
    one, last = b.number(1, left), b.number(d.I32.range[1] - 1, left)

    def greater(x: Value, y: Value) -> Value:
        successor = b.ADD(b.MINIMUM(y, last), one)
        return b.SUB(b.MAXIMUM(b.MINIMUM(x, successor), y), y)

    if name == ">":
        y = greater(left, right)
    elif name == ">=":
        y = b.SUB(one, greater(right, left))
    else:
        y = b.SUB(one, greater(b.MAXIMUM(left, right), b.MINIMUM(left, right)))
    return b.with_quant(_byte(b, y), MASK)


def _in_float(b: Lowering, name: str, left: Value, right: Value) -> Value:
    """The same without integers: float32 keeps the order of any int32 and a small constant."""
    known = right if right.is_const else left
    if np.abs(_numbers(known)).max(initial=0) >= 1 << 24:
        raise Unsupported("float32 does not hold every int32")
    return _compared(b, name, *(_float(b, v) for v in (left, right)))


def _float(b: Lowering, x: Value) -> Value:
    return b.const(_numbers(x), d.F32) if x.is_const else b.CAST(x, out=d.F32)


def _numbers(x: Value) -> np.ndarray[Any, Any]:
    if x.const is None or not x.is_const:
        raise Unsupported("the difference of any two int32 may not fit int32")
    return x.const.array.astype(np.int64)


def _sign(b: Lowering, name: str, x: Value, small: bool) -> Value:
    """Whether an int32 is 0 ("=="), positive (">") or not negative (">=").

    A difference of int8 saturates to int8 at once, which is the same operation where it is fused.
    """
    if small:
        y = _byte(b, x, 1 if name == ">=" else 0)
        if name == "==":
            return _lookup(b, y, lambda n: n == 0)
        return b.with_quant(b.CLAMP(y, min_val=0, max_val=1), MASK)
    zero, one = b.number(0, x), b.number(1, x)
    if name == "==":
        most = b.number(31, x)  # leading zeros: 32 of 0 alone
        y = b.SUB(b.MAXIMUM(b.CLZ(x), most), most)
    else:
        y = b.MINIMUM(b.MAXIMUM(b.ADD(x, one) if name == ">=" else x, zero), one)
    return b.with_quant(_byte(b, y), MASK)


def compared_with_each(b: Lowering, name: str, x: Value, numbers: Value) -> Value:
    """The same for a quantized value and a constant of real numbers, which are not rounded."""
    quant = x.quant
    assert quant is not None

    def bounds(real: Array) -> Array:
        found = [_bound(name, quant.one_scale, float(n)) for n in real.reshape(-1)]
        return np.array(found, np.int64).reshape(real.shape)

    levels, known = b.same_rank(b.with_quant(b.widened(x), None), numbers)
    return compared(b, name, levels, b.remade(known, bounds, kind=d.I32))


def compared_with(b: Lowering, name: str, x: Value, number: float) -> Value:
    """The same for a quantized value and a number."""
    quant = x.quant
    assert quant is not None
    bound, zero = _bound(name, quant.one_scale, number), quant.one_zero
    test = {"==": np.equal, ">": np.greater, ">=": np.greater_equal, "<": np.less,
            "<=": np.less_equal}[name]  # fmt: skip

    def direct() -> Value:
        sides = [b.widened(x), b.const(np.full((1,) * x.type.rank, bound), d.I32)]
        if name in _TURNED:
            return _compared(b, _TURNED[name], sides[1], sides[0])
        return _compared(b, name, *sides)

    def table() -> Value:
        if x.dtype is not d.I8:
            raise Unsupported("a table of int16 has lines between its entries")
        return _lookup(b, x, lambda n: test(n - zero, bound))

    def difference() -> Value:
        wide = b.widened(x)
        sides = [wide, b.number(bound, wide)]
        if name in _TURNED:
            sides.reverse()
        return _sign(b, _TURNED.get(name, name), b.SUB(*sides), small=False)

    return first(b, direct, table, difference)


def _bound(name: str, scale: float, number: float) -> int:
    """The number in steps, rounded so that integers compare as real numbers do.

    The step that a number is rounded to is equal to it: what is quantized is rounded as well.
    """
    steps = min(max(number / scale, -_NEVER), _NEVER)
    whole = round(steps)
    if name == "==" or abs(steps - whole) <= max(1e-6, abs(steps) * ROUNDING):
        return whole
    return math.floor(steps) if name in (">", "<=") else math.ceil(steps)


def both(b: Lowering, x: Value, y: Value) -> Value:
    """Logical and: the smaller of 0 and 1, 0.5 cycles."""
    x, y = b.same_rank(as_mask(b, x), as_mask(b, y))
    return first(b, lambda: b.LOGICAL_AND(x, y), lambda: _pair(b, "MINIMUM", x, y))


def either(b: Lowering, x: Value, y: Value) -> Value:
    """Logical or."""
    x, y = b.same_rank(as_mask(b, x), as_mask(b, y))
    return first(b, lambda: b.LOGICAL_OR(x, y), lambda: _pair(b, "MAXIMUM", x, y))


def _pair(b: Lowering, name: str, x: Value, y: Value) -> Value:
    return b.with_quant(_byte(b, b.op(name, _wide(b, x), _wide(b, y))), MASK)


def differ(b: Lowering, x: Value, y: Value) -> Value:
    """Logical exclusive or."""
    x, y = b.same_rank(as_mask(b, x), as_mask(b, y))

    def difference() -> Value:
        apart = _byte(b, b.SUB(_wide(b, x), _wide(b, y)))
        return _lookup(b, apart, lambda n: n != 0)

    return first(b, lambda: b.LOGICAL_XOR(x, y), difference)


def inverted(b: Lowering, x: Value) -> Value:
    """Logical not: 1 − x, which is a NEGATE with a zero point of 1."""
    x = as_mask(b, x)

    def negated() -> Value:
        return b.with_quant(b.NEGATE(x, b.const([1], d.I8), b.const([0], d.I8)), MASK)

    return first(b, lambda: b.LOGICAL_NOT(x), negated)


def reduced(b: Lowering, name: str, x: Value, axis: int) -> Value:
    """Whether any or all ("REDUCE_ANY", "REDUCE_ALL") elements of an axis are True."""
    other = "REDUCE_MAX" if name == "REDUCE_ANY" else "REDUCE_MIN"
    x = as_mask(b, x)
    return first(
        b,
        lambda: b.op(name, x, axis=axis),
        lambda: b.with_quant(extreme(b, other, x, axis), MASK),
    )


def number_of(b: Lowering, x: Value, kind: d.DType) -> Value:
    """A mask as 0 and 1 of a plain type."""
    x = as_mask(b, x)
    if x.dtype is kind and x.quant is None:
        return x
    if x.dtype is not d.BOOL or not kind.is_float:
        return b.with_quant(b.CAST(x, out=kind), None)
    one, zero = (b.const(np.full((1,) * x.type.rank, n), kind) for n in (1, 0))
    return first(
        b,
        lambda: b.with_quant(b.CAST(x, out=kind), None),
        lambda: b.with_quant(b.SELECT(x, one, zero), None),
    )


def chosen(b: Lowering, mask: Value, one: Value, two: Value) -> Value:
    """One where the mask is True, two elsewhere; both have one type and one meaning."""
    quant = one.quant
    mask, one, two = b.same_rank(as_mask(b, mask), one, two)

    def blended() -> Value:
        if one.dtype is d.I8 and quant is not None:
            return _blended8(b, mask, one, two, quant.one_zero)
        inside = _wide(b, mask)
        outside = b.SUB(b.number(1, inside), inside)
        shift = b.const([0], d.I8)
        parts = [b.MUL(m, _wide(b, v), shift) for m, v in ((inside, one), (outside, two))]
        total = b.ADD(*parts)
        return total if one.dtype is d.I32 else b.levels(total, one.dtype)

    return b.with_quant(first(b, lambda: b.SELECT(mask, one, two), blended), quant)


def _blended8(b: Lowering, mask: Value, one: Value, two: Value, zero: int) -> Value:
    """m·one − (m − 1)·two: three operations, each with its zero points.

    The second product is −two or 0, which int8 holds with the zero point −1 − z.
    """
    shift, opposite = b.const([0], d.I8), -1 - zero
    kept = b.MUL(b.levels(mask), b.levels(one, given=zero), shift)
    gone = b.MUL(b.levels(mask, given=1), b.levels(two, given=zero), shift)
    left, right = b.levels(kept, d.I8, zero=zero), b.levels(gone, d.I8, zero=opposite)
    total = b.SUB(b.levels(left, given=zero), b.levels(right, given=opposite))
    return b.levels(total, d.I8, zero=zero)
