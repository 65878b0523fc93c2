"""Remainders with the sign of the divisor or of the dividend."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule, shared
from tosaic.ir.graph import Value
from tosaic.lowering.builder import Lowering
from tosaic.rules._division import modulo, no_zero, rest
from tosaic.rules._integer_floor import left_over
from tosaic.rules._operands import Operand, converted, minus, operands, times, with_number
from tosaic.rules.elementwise import div_rounded
from tosaic.spec import dtypes as d
from tosaic.spec.dtypes import I8

_APART = (
    Sample(((5, 6), (5, 6)), domain=(-9.0, 5.0)),
    Sample(((2, 3, 40), (40,)), domain=(0.5, 8.0)),
    Sample(((5, 6), (1, 6)), domain=(-40.0, -1.0), kinds=("i32", "i32")),
)
_NUMBERS = (
    Sample(((2, 30),), (1.5,), domain=(-5.0, 5.0)),
    Sample(((5, 6),), (-0.7,)),
    Sample(((5, 6),), (7,), domain=(-40.0, 40.0), kinds=("i32",)),
    Sample(((5, 6),), (-7,), domain=(-40.0, 40.0), kinds=("i32",)),
)
_NO_INT16_NUMBER = "a function with jumps has no int16 table"


def _left_over(
    b: Lowering, x: Operand, y: Operand, mode: str,
    whole: Callable[[Lowering, Value, Value], Value], function: Callable[..., torch.Tensor],
) -> Value:  # fmt: skip
    """In integers exact: operands in one scale leave over whole steps of it."""
    found = with_number(b, x, y, function)
    if found is not None:
        return found
    if isinstance(x, Value) and x.quant is not None and not isinstance(y, Value) and y:
        rounding = "trunc" if mode == "trunc" else "floor" if y > 0 else "ceil"
        return left_over(b, x, rounding, abs(y))
    left, right = operands(b, x, y)
    if left.quant is not None:
        if not isinstance(x, Value) or not isinstance(y, Value):
            raise Unsupported(f"a remainder of a number: {_NO_INT16_NUMBER}")
        left, right = b.aligned(left, right)
        quant = left.quant
        left, right = b.with_quant(left, None), b.with_quant(right, None)
        right = no_zero(b, right)  # PyTorch has no number for it, TOSA no quotient
        return b.with_quant(whole(b, left, right), quant)
    if not left.dtype.is_float:
        kind = left.dtype
        return converted(b, whole(b, *(converted(b, v, d.I32) for v in (left, right))), kind)
    return minus(b, left, times(b, div_rounded(b, left, right, mode), right))


@shared("aten.remainder.Tensor", samples=_APART)
def remainder(b: Lowering, self: Operand, other: Operand) -> Value:
    return _left_over(b, self, other, "floor", modulo, torch.remainder)


@shared("aten.fmod.Tensor", samples=_APART)
def fmod(b: Lowering, self: Operand, other: Operand) -> Value:
    return _left_over(b, self, other, "trunc", rest, torch.fmod)


rule("aten.remainder.Scalar", samples=_NUMBERS)(remainder)
rule("aten.fmod.Scalar", samples=_NUMBERS)(fmod)
rule(
    "aten.remainder.Scalar_Tensor",
    samples=[Sample(((5, 6),), (4.5,), domain=(0.5, 4.0), integers=())],
    integers=(I8,),
    why=_NO_INT16_NUMBER,
)(remainder)
