"""Bit shifts of integers."""

from __future__ import annotations

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.data_movement import first
from tosaic.lowering.builder import Lowering
from tosaic.rules._division import floored
from tosaic.rules._operands import Operand, operands
from tosaic.spec import dtypes as d

_NUMBERS = [
    Sample(((5, 6),), (2,), domain=(-40.0, 40.0), kinds=("i32",)),
    Sample(((3, 4),), (0,), domain=(-9.0, 9.0), kinds=("i32",)),
]
_TENSORS = [Sample(((5, 6), (1, 6)), domain=(0.0, 9.0), kinds=("i32", "i32"))]


def _plain(b: Lowering, x: Value, amount: Operand) -> list[Value]:
    if x.quant is not None or x.dtype.is_float or x.dtype is d.BOOL:
        raise Unsupported("shifts are of integers: bits of real numbers mean nothing")
    return operands(b, x, amount)


@rule("aten.bitwise_left_shift.Tensor", policy="NONE", samples=_TENSORS)
def left_shift(b: Lowering, self: Value, other: Operand) -> Value:
    """By 32 and more, twice: nothing is left."""
    x, amount = _plain(b, self, other)
    kept = _within(b, amount, 31)
    if kept is amount:
        return b.LOGICAL_LEFT_SHIFT(x, amount)
    more = _within(b, b.SUB(b.MAXIMUM(amount, b.number(31, amount)), b.number(31, amount)), 1)
    return b.LOGICAL_LEFT_SHIFT(b.LOGICAL_LEFT_SHIFT(x, kept), more)


def _within(b: Lowering, amount: Value, most: int) -> Value:
    """A number of bits from 0 to the most there are; as it is where the FP profile limits none."""
    known = None if amount.const is None else amount.const.array
    if known is not None and bool(((known >= 0) & (known <= most)).all()):
        return amount
    return first(
        b,
        lambda: b.MINIMUM(b.MAXIMUM(amount, b.number(0, amount)), b.number(most, amount)),
        lambda: amount,
    )


@rule("aten.bitwise_right_shift.Tensor", policy="NONE", samples=_TENSORS)
def right_shift(b: Lowering, self: Value, other: Operand) -> Value:
    """The sign moves in; without the INT profile, a quotient rounded down."""
    x, amount = _plain(b, self, other)
    amount = _within(b, amount, 31)
    return first(
        b,
        lambda: b.ARITHMETIC_RIGHT_SHIFT(x, amount, round=False),
        lambda: floored(b, x, b.LOGICAL_LEFT_SHIFT(b.number(1, x), amount)),
    )


rule("aten.bitwise_left_shift.Tensor_Scalar", policy="NONE", samples=_NUMBERS)(left_shift)
rule("aten.bitwise_right_shift.Tensor_Scalar", policy="NONE", samples=_NUMBERS)(right_shift)
