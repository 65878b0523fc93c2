"""Comparisons, logic, and choices by a mask."""

from __future__ import annotations

from tosaic.front import masks
from tosaic.front.lower import Lowering
from tosaic.front.masks import is_mask
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
from tosaic.rules._operands import Operand, operands
from tosaic.spec import dtypes as d

_PAIRS = (
    Sample(((2, 3, 4), (2, 3, 4))),
    Sample(((2, 3, 4), (4,))),
    Sample(((2, 1, 5), (3, 1))),
)
_EQUALS = (
    Sample(((12, 40), (40,)), whole=True),
    Sample(((3, 4, 5), (4, 1)), whole=True),
    Sample(((5, 3), (3,)), kinds=("bool", "bool")),
)
_NUMBERS = (Sample(((2, 3, 4),), (0.7,)), Sample(((4, 500),), (-1,)))  # all int8 there are
_ZERO = (Sample(((4, 20),), (0,), whole=True), Sample(((2, 3, 8),), (0.0,), whole=True))


def _compare(b: Lowering, name: str, x: Value, other: Operand) -> Value:
    """Whether x is equal to the other ("=="), greater (">") and so on."""
    if x.quant is not None and not isinstance(other, Value):
        return masks.compared_with(b, name, x, float(other))
    if isinstance(other, Value) and is_mask(x) and is_mask(other) and name == "==":
        return masks.inverted(b, masks.differ(b, x, other))
    return masks.compared(b, name, *operands(b, x, other))


@rule("aten.eq.Tensor", policy="SHARED", samples=_EQUALS)
def eq(b: Lowering, self: Value, other: Operand) -> Value:
    return _compare(b, "==", self, other)


@rule("aten.ne.Tensor", policy="SHARED", samples=_EQUALS)
def ne(b: Lowering, self: Value, other: Operand) -> Value:
    return masks.inverted(b, _compare(b, "==", self, other))


@rule("aten.gt.Tensor", policy="SHARED", samples=_PAIRS)
def gt(b: Lowering, self: Value, other: Operand) -> Value:
    return _compare(b, ">", self, other)


@rule("aten.ge.Tensor", policy="SHARED", samples=_PAIRS)
def ge(b: Lowering, self: Value, other: Operand) -> Value:
    return _compare(b, ">=", self, other)


@rule("aten.lt.Tensor", policy="SHARED", samples=_PAIRS)
def lt(b: Lowering, self: Value, other: Operand) -> Value:
    return _compare(b, "<", self, other)


@rule("aten.le.Tensor", policy="SHARED", samples=_PAIRS)
def le(b: Lowering, self: Value, other: Operand) -> Value:
    return _compare(b, "<=", self, other)


rule("aten.eq.Scalar", policy="SHARED", samples=_ZERO)(eq)
rule("aten.ne.Scalar", policy="SHARED", samples=_ZERO)(ne)
rule("aten.gt.Scalar", policy="SHARED", samples=_NUMBERS)(gt)
rule("aten.ge.Scalar", policy="SHARED", samples=_NUMBERS)(ge)
rule("aten.lt.Scalar", policy="SHARED", samples=_NUMBERS)(lt)
rule("aten.le.Scalar", policy="SHARED", samples=_NUMBERS)(le)


def truth(b: Lowering, x: Value) -> Value:
    """What is not zero."""
    return x if is_mask(x) else ne(b, x, 0)


_MASKS = (
    Sample(((4, 5), (4, 5)), kinds=("bool", "bool")),
    Sample(((2, 4, 5), (4, 1)), kinds=("bool", "bool")),
)


@rule("aten.logical_and.default", "aten.logical_and_.default", policy="NONE", samples=_MASKS)
def logical_and(b: Lowering, self: Value, other: Value) -> Value:
    return masks.both(b, truth(b, self), truth(b, other))


@rule("aten.logical_or.default", "aten.logical_or_.default", policy="NONE", samples=_MASKS)
def logical_or(b: Lowering, self: Value, other: Value) -> Value:
    return masks.either(b, truth(b, self), truth(b, other))


@rule("aten.logical_xor.default", "aten.logical_xor_.default", policy="NONE", samples=_MASKS)
def logical_xor(b: Lowering, self: Value, other: Value) -> Value:
    return masks.differ(b, truth(b, self), truth(b, other))


@rule("aten.logical_not.default", policy="NONE", samples=[Sample(((4, 5),), kinds=("bool",))])
def logical_not(b: Lowering, self: Value) -> Value:
    return masks.inverted(b, truth(b, self))


@rule("aten.bitwise_and.Tensor", "aten.bitwise_and_.Tensor", "aten.__and__.Tensor",
      policy="NONE", samples=_MASKS)  # fmt: skip
def bitwise_and(b: Lowering, self: Value, other: Operand) -> Value:
    if is_mask(self) and isinstance(other, Value) and is_mask(other):
        return masks.both(b, self, other)
    return b.BITWISE_AND(*operands(b, self, other))


@rule("aten.bitwise_or.Tensor", "aten.bitwise_or_.Tensor", "aten.__or__.Tensor",
      policy="NONE", samples=_MASKS)  # fmt: skip
def bitwise_or(b: Lowering, self: Value, other: Operand) -> Value:
    if is_mask(self) and isinstance(other, Value) and is_mask(other):
        return masks.either(b, self, other)
    return b.BITWISE_OR(*operands(b, self, other))


@rule("aten.bitwise_xor.Tensor", "aten.bitwise_xor_.Tensor", "aten.__xor__.Tensor",
      policy="NONE", samples=_MASKS)  # fmt: skip
def bitwise_xor(b: Lowering, self: Value, other: Operand) -> Value:
    if is_mask(self) and isinstance(other, Value) and is_mask(other):
        return masks.differ(b, self, other)
    return b.BITWISE_XOR(*operands(b, self, other))


@rule("aten.bitwise_not.default", policy="NONE", samples=[Sample(((4, 5),), kinds=("bool",))])
def bitwise_not(b: Lowering, self: Value) -> Value:
    return masks.inverted(b, self) if is_mask(self) else b.BITWISE_NOT(self)


@rule("aten.where.self", policy="FREE", samples=[
    Sample(((2, 3, 4), (2, 3, 4), (2, 3, 4)), kinds=("bool",)),
    Sample(((3, 1), (2, 3, 4), (4,)), kinds=("bool",)),
    Sample(((4, 5), (1,), (4, 5)), kinds=("bool",)),
])  # fmt: skip
def where(b: Lowering, condition: Value, self: Operand, other: Operand) -> Value:
    tensors = [v for v in (self, other) if isinstance(v, Value)]
    if len(tensors) == 2 and all(map(is_mask, tensors)):
        return masks.chosen(b, condition, *(masks.as_mask(b, v) for v in tensors))
    if all(v.quant is None for v in tensors):
        return masks.chosen(b, condition, *operands(b, self, other))
    given = next(v for v in (self, other) if isinstance(v, Value) and v.quant is not None)
    assert given.quant is not None
    quant, kind = b.wanted or (given.quant, given.dtype)
    settled = [  # rounded before the choice, once
        b.settle(v, quant, kind)
        if isinstance(v, Value) and _number(v) is None
        else b.quantized_number(_number(v) or 0.0, quant, kind, 0)
        for v in (self, other)
    ]
    return masks.chosen(b, condition, *settled)


def _number(x: Operand) -> float | None:
    """A number, or a constant that is one; None for other tensors."""
    if not isinstance(x, Value):
        return float(x)
    if x.quant is None and x.is_const and x.const is not None and x.type.size == 1:
        return float(x.const.array.reshape(-1)[0])
    return None


rule("aten.where.ScalarOther", samples=[Sample(((3, 1), (2, 3, 4)), (0.5,), kinds=("bool",))])(
    where
)
rule("aten.where.ScalarSelf", samples=[Sample(((3, 1), (2, 3, 4)), (0.5,), kinds=("bool",))])(where)


@rule(
    "aten.where.Scalar",
    policy="FREE",
    samples=[Sample(((3, 4),), (0.5, -1.5), kinds=("bool",))],
)
def where_numbers(b: Lowering, condition: Value, self: float, other: float) -> Value:
    numbers = self, other
    if all(type(number) is int for number in numbers):
        return masks.chosen(b, condition, *(b.const(number, d.I32) for number in numbers))
    if b.wanted is not None:
        return masks.chosen(b, condition, *(b.quantized_number(n, *b.wanted, 0) for n in numbers))
    return masks.chosen(b, condition, *(b.const(number, d.F32) for number in numbers))


@rule("aten.masked_fill.Scalar", "aten.masked_fill_.Scalar", samples=[
    Sample(((2, 3, 4), (3, 4)), (0.5,), kinds=("", "bool")),
    Sample(((5, 6), (5, 1)), (-7,), kinds=("", "bool")),
])  # fmt: skip
def masked_fill(b: Lowering, self: Value, mask: Value, value: Operand) -> Value:
    """An infinity becomes the largest integer there is."""
    return where(b, mask, value, self)


rule("aten.masked_fill.Tensor", "aten.masked_fill_.Tensor",
     samples=[Sample(((4, 5), (4, 5), ()), kinds=("", "bool"))])(masked_fill)  # fmt: skip
