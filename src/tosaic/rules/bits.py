"""Shifts of integers."""

from __future__ import annotations

from tosaic.errors import Unsupported
from tosaic.front.lower import Lowering
from tosaic.front.moves import first
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
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


@rule("aten.bitwise_left_shift.Tensor", "aten.__lshift__.Tensor", policy="NONE", samples=_TENSORS)
def left_shift(b: Lowering, self: Value, other: Operand) -> Value:
    return b.LOGICAL_LEFT_SHIFT(*_plain(b, self, other))


@rule("aten.bitwise_right_shift.Tensor", "aten.__rshift__.Tensor", policy="NONE", samples=_TENSORS)
def right_shift(b: Lowering, self: Value, other: Operand) -> Value:
    """The sign moves in; without the INT profile, a quotient rounded down."""
    x, amount = _plain(b, self, other)
    return first(
        b,
        lambda: b.ARITHMETIC_RIGHT_SHIFT(x, amount, round=False),
        lambda: floored(b, x, b.LOGICAL_LEFT_SHIFT(b.number(1, x), amount)),
    )


rule("aten.bitwise_left_shift.Tensor_Scalar", "aten.__lshift__.Scalar", policy="NONE",
     samples=_NUMBERS)(left_shift)  # fmt: skip
rule("aten.bitwise_right_shift.Tensor_Scalar", "aten.__rshift__.Scalar", policy="NONE",
     samples=_NUMBERS)(right_shift)  # fmt: skip
