"""Comparisons, logic, and choices by a mask."""

from __future__ import annotations

import math

import numpy as np

from tosaic.front.lower import Lowering
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
from tosaic.rules._operands import Operand, operands, scale_of
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
_NEVER = 1 << 24  # no quantized tensor holds it


def _compare(b: Lowering, name: str, x: Value, other: Operand) -> Value:
    """Whether x is equal to the other ("=="), greater (">") and so on."""
    if x.quant is not None and not isinstance(other, Value):
        left, right = b.widened(x), _bound(b, name, x, float(other))
    else:
        left, right = operands(b, x, other)
        if left.quant is not None:
            left, right = b.aligned(left, right)
    if name in ("<", "<="):
        left, right = right, left
    if name == "==" and left.dtype is d.BOOL:
        return b.LOGICAL_NOT(b.LOGICAL_XOR(left, right))
    emit = b.EQUAL if name == "==" else b.GREATER if name in ("<", ">") else b.GREATER_EQUAL
    value: Value = emit(left, right)
    return value


def _bound(b: Lowering, name: str, x: Value, number: float) -> Value:
    """The number in steps of x, rounded so that integers compare as real numbers do."""
    steps = min(max(number / scale_of(x), -_NEVER), _NEVER)
    whole = round(steps)
    if abs(steps - whole) > 1e-6:
        if name == "==":
            whole = _NEVER
        else:
            whole = math.floor(steps) if name in (">", "<=") else math.ceil(steps)
    return b.const(np.full((1,) * x.type.rank, whole), d.I32)


@rule("aten.eq.Tensor", policy="SHARED", samples=_EQUALS)
def eq(b: Lowering, self: Value, other: Operand) -> Value:
    return _compare(b, "==", self, other)


@rule("aten.ne.Tensor", policy="SHARED", samples=_EQUALS)
def ne(b: Lowering, self: Value, other: Operand) -> Value:
    return b.LOGICAL_NOT(_compare(b, "==", self, other))


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
    return x if x.dtype is d.BOOL else ne(b, x, 0)


_MASKS = (
    Sample(((4, 5), (4, 5)), kinds=("bool", "bool")),
    Sample(((2, 4, 5), (4, 1)), kinds=("bool", "bool")),
)


@rule("aten.logical_and.default", "aten.logical_and_.default", policy="NONE", samples=_MASKS)
def logical_and(b: Lowering, self: Value, other: Value) -> Value:
    return b.LOGICAL_AND(*b.same_rank(truth(b, self), truth(b, other)))


@rule("aten.logical_or.default", "aten.logical_or_.default", policy="NONE", samples=_MASKS)
def logical_or(b: Lowering, self: Value, other: Value) -> Value:
    return b.LOGICAL_OR(*b.same_rank(truth(b, self), truth(b, other)))


@rule("aten.logical_xor.default", "aten.logical_xor_.default", policy="NONE", samples=_MASKS)
def logical_xor(b: Lowering, self: Value, other: Value) -> Value:
    return b.LOGICAL_XOR(*b.same_rank(truth(b, self), truth(b, other)))


@rule("aten.logical_not.default", policy="NONE", samples=[Sample(((4, 5),), kinds=("bool",))])
def logical_not(b: Lowering, self: Value) -> Value:
    return b.LOGICAL_NOT(truth(b, self))


@rule("aten.bitwise_and.Tensor", "aten.bitwise_and_.Tensor", policy="NONE", samples=_MASKS)
def bitwise_and(b: Lowering, self: Value, other: Operand) -> Value:
    x, y = operands(b, self, other)
    return b.LOGICAL_AND(x, y) if x.dtype is d.BOOL else b.BITWISE_AND(x, y)


@rule("aten.bitwise_or.Tensor", "aten.bitwise_or_.Tensor", policy="NONE", samples=_MASKS)
def bitwise_or(b: Lowering, self: Value, other: Operand) -> Value:
    x, y = operands(b, self, other)
    return b.LOGICAL_OR(x, y) if x.dtype is d.BOOL else b.BITWISE_OR(x, y)


@rule("aten.bitwise_xor.Tensor", "aten.bitwise_xor_.Tensor", policy="NONE", samples=_MASKS)
def bitwise_xor(b: Lowering, self: Value, other: Operand) -> Value:
    x, y = operands(b, self, other)
    return b.LOGICAL_XOR(x, y) if x.dtype is d.BOOL else b.BITWISE_XOR(x, y)


@rule("aten.bitwise_not.default", policy="NONE", samples=[Sample(((4, 5),), kinds=("bool",))])
def bitwise_not(b: Lowering, self: Value) -> Value:
    return b.LOGICAL_NOT(self) if self.dtype is d.BOOL else b.BITWISE_NOT(self)


@rule("aten.where.self", policy="FREE", samples=[
    Sample(((2, 3, 4), (2, 3, 4), (2, 3, 4)), kinds=("bool",)),
    Sample(((3, 1), (2, 3, 4), (4,)), kinds=("bool",)),
    Sample(((4, 5), (1,), (4, 5)), kinds=("bool",)),
])  # fmt: skip
def where(b: Lowering, condition: Value, self: Operand, other: Operand) -> Value:
    if all(v.quant is None for v in (self, other) if isinstance(v, Value)):
        value: Value = b.SELECT(*b.same_rank(condition, *operands(b, self, other)))
        return value
    given = next(v for v in (self, other) if isinstance(v, Value) and v.quant is not None)
    assert given.quant is not None
    quant, kind = b.wanted or (given.quant, given.dtype)
    settled = [  # rounded before the choice, once
        b.settle(v, quant, kind)
        if isinstance(v, Value) and _number(v) is None
        else b.quantized_number(_number(v) or 0.0, quant, kind, 0)
        for v in (self, other)
    ]
    return b.marked(b.SELECT(*b.same_rank(condition, *settled)), quant)


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
    policy="NONE",
    samples=[Sample(((3, 4),), (0.5, -1.5), kinds=("bool",))],
    integers=(),
    why="a choice between two numbers has no quantized operand",
)
def where_numbers(b: Lowering, condition: Value, self: float, other: float) -> Value:
    kind = d.I32 if all(type(number) is int for number in (self, other)) else d.F32
    both = (b.const(number, kind) for number in (self, other))
    return b.SELECT(*b.same_rank(condition, *both))


@rule("aten.masked_fill.Scalar", "aten.masked_fill_.Scalar", samples=[
    Sample(((2, 3, 4), (3, 4)), (0.5,), kinds=("", "bool")),
    Sample(((5, 6), (5, 1)), (-7,), kinds=("", "bool")),
])  # fmt: skip
def masked_fill(b: Lowering, self: Value, mask: Value, value: Operand) -> Value:
    """An infinity becomes the largest integer there is."""
    return where(b, mask, value, self)


rule("aten.masked_fill.Tensor", "aten.masked_fill_.Tensor",
     samples=[Sample(((4, 5), (4, 5), ()), kinds=("", "bool"))])(masked_fill)  # fmt: skip
