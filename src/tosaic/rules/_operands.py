"""Operands of one type and rank, and helpers for arithmetic on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tosaic.errors import Unsupported
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.cast import float_cast
from tosaic.lowering.alternatives.mask import Mask, number_of
from tosaic.lowering.builder import Lowering
from tosaic.spec import dtypes as d

Operand = Value | float
_ORDER = (d.BOOL, d.I8, d.I16, d.I32, d.F8E4M3, d.F8E5M2, d.BF16, d.F16, d.F32)  # the later wins


def operands(b: Lowering, *given: Operand) -> list[Value]:
    """All as values of one rank and, unless they are quantized, of one type."""
    values = [v for v in given if isinstance(v, Value)]
    if all(isinstance(v.quant, Mask) for v in values):
        raise Unsupported("arithmetic of masks is not lowered; cast them to numbers first")
    like = next((v for v in values if v.quant is not None), None)
    if like is not None:
        return b.same_rank(*(_quantized(b, v, like) for v in given))
    kind = max((v.dtype for v in values), key=_ORDER.index)
    if {d.BF16, d.F16} <= {v.dtype for v in values}:
        kind = d.F32
    if not kind.is_float and any(isinstance(v, float) for v in given):
        kind = d.F32
    if kind is d.BOOL and len(values) < len(given):
        kind = d.I32
    values = [converted(b, v, kind) if isinstance(v, Value) else _plain(b, v, kind) for v in given]
    return b.same_rank(*values)


def converted(b: Lowering, x: Value, kind: d.DType) -> Value:
    """The value in another type."""
    if x.dtype is d.BOOL and kind.is_float:
        return (
            float_cast(b, number_of(b, x, d.F32), kind) if kind.is_float8 else number_of(b, x, kind)
        )
    return float_cast(b, x, kind)


def _plain(b: Lowering, value: float, kind: d.DType) -> Value:
    if not kind.is_float and kind is not d.BOOL and not kind.range[0] <= value <= kind.range[1]:
        raise Unsupported(f"{value} needs more than the 32 bits of TOSA's integers")
    return b.const(value, kind)


def _quantized(b: Lowering, value: Operand, like: Value) -> Value:
    """A number as an integer constant with a scale of its own, which makes it exact."""
    if isinstance(value, Value) and value.quant is not None:
        return value
    if isinstance(value, Value) and value.dtype is d.BOOL:
        return b.with_quant(number_of(b, value, d.I8), Quant(1.0))
    if isinstance(value, Value):
        if not value.is_const or value.const is None or value.type.size != 1:
            raise Unsupported("a tensor beside a quantized one must be quantized too")
        value = float(value.const.array.reshape(-1)[0])
    if not math.isfinite(value):
        raise Unsupported(f"{value} beside a quantized tensor has no integer form")
    kind = d.I16 if like.dtype is d.I16 else d.I8
    most = kind.range[1]
    steps = most * ((value > 0) - (value < 0))
    return b.const(steps, kind, quant=Quant(abs(value) / most if value else 1.0))


def with_number(
    b: Lowering, first: Operand, second: Operand, function: Callable[[Any, Any], Any]
) -> Value | None:
    """A function of an int8 tensor and a number as one table; None where it is something else."""
    if isinstance(first, Value) and isinstance(second, Value):
        return None
    x = first if isinstance(first, Value) else second
    assert isinstance(x, Value)
    if x.quant is None or x.dtype is not d.I8 or b.wanted is None or b.wanted[1] is not d.I8:
        return None
    if x is first:
        return b.table(x, lambda t: function(t, second))
    return b.table(x, lambda t: function(first, t))


def times(b: Lowering, x: Value, factor: Operand) -> Value:
    """A product of plain values."""
    x, y = operands(b, x, factor)
    return b.mul(x, y)


def plus(b: Lowering, x: Value, term: Operand) -> Value:
    """A sum of plain values."""
    return b.ADD(*operands(b, x, term))


def minus(b: Lowering, x: Operand, term: Operand) -> Value:
    """A difference of plain values."""
    return b.SUB(*operands(b, x, term))


def negated(b: Lowering, x: Value) -> Value:
    """The plain value with the other sign."""
    zero = b.const([0], x.dtype)
    return b.NEGATE(x, zero, zero)


def signed(b: Lowering, x: Value, size: Value) -> Value:
    """A size with the sign of a real number."""
    return b.SELECT(b.GREATER(b.number(0.0, x), x), negated(b, size), size)


def first_of(function: Callable[..., Value], results: int) -> Callable[..., tuple[Any, ...]]:
    """A rule of so many results, of which only the first has a form."""
    return lambda *given, **named: (function(*given, **named), *(None,) * (results - 1))


def scale_of(x: Value) -> float:
    """The one scale of a quantized value."""
    if x.quant is None:
        raise Unsupported("one scale is needed here, and this value has none")
    return x.quant.one_scale
