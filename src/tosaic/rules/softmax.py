"""Softmax and its logarithm: whole operators, with nothing rounded to 8 bits inside.

The largest of a row is taken off, so zero points cancel and every exponential is at most 1. In
integers a row is exp in 15 to 22 bits from exact tables, their sum in int32, and its reciprocal
or logarithm. What a target can hold decides which tables they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Array, Quant, Value
from tosaic.lowering.alternatives.data_movement import first
from tosaic.lowering.alternatives.reduce_extreme import extreme
from tosaic.lowering.builder import TYPES, Lowering
from tosaic.rules._operands import converted, minus, scale_of, times
from tosaic.rules._rows import (
    PAIR,
    logarithm,
    normal,
    paired,
    product,
    reciprocal,
    scaled,
    short_logarithm,
    tabled,
)
from tosaic.spec import dtypes as d

_LONG = 256  # a row from which on the roundings of exponentials may show in their sum
_LONGEST = 1 << 20
_FRACTIONS = 254  # steps of an int8 for what was rounded off, −1/2 to 1/2
_FINE = 2.0**-12  # where results are as coarse as this, an int16 reciprocal is 1/16 step off
_FINER = 8  # steps of a result in one of what is given, up to which 1/128 of the latter will do


@dataclass(frozen=True, slots=True)
class _Row:
    """exp(x − max) in int16 or int32, where 1 is ``one``, and its sum of at least 2^(bits − 1).

    That is because no exponential is negative, and the largest element of each row has that of 0,
    which every form of them makes more than half of 2^bits.
    """

    largest: Value
    exponentials: Value
    total: Value
    one: float
    bits: int


_Form = Callable[[Lowering, Value, int], _Row]


def _largest(b: Lowering, x: Value, axis: int) -> Value:
    return b.with_quant(extreme(b, "REDUCE_MAX", x, axis), x.quant)


def _below(b: Lowering, x: Value, largest: Value) -> Value:
    """x − max in int32: one for each reader, into which it is fused."""
    return b.SUB(b.widened(x), b.widened(largest))


def _bits(x: Value, axis: int, most: int) -> int:
    """How many bits an exponential can have, so that the sum of a row fits int32."""
    length = x.shape[axis]
    if length > _LONGEST:
        raise Unsupported(f"a softmax over {length} elements; {_LONGEST} is the most")
    return min(most, 31 - math.ceil(math.log2(length)))


def _short(b: Lowering, x: Value, axis: int) -> _Row:
    """int16: every node of a table is met exactly. One operator each."""
    bits = _bits(x, axis, 15)
    if bits < 15:
        raise Unsupported("the sum of so many int16 does not fit int32")
    largest, one = _largest(b, x, axis), 32767.0
    levels, rest = _levels(np.minimum(np.arange(-256, 257), 0), scale_of(x), one)
    index = b.rescale(_below(b, x, largest), [128.0], 0, d.I16)
    wide = b.TABLE(index, b.const(levels, d.I16))  # with 7 more bits
    exponentials = b.rescale(wide, [1 / 128], 0, d.I16)
    total = b.REDUCE_SUM(b.rescale(exponentials, [1.0], 0, d.I32), axis=axis)
    b.proved(total, 1 << (bits - 1))
    if x.shape[axis] > _LONG:
        fractions = b.TABLE(index, b.const(rest, d.I16))
        total = _refined(b, total, fractions, axis, 128 * _FRACTIONS, bits)
    return _Row(largest, exponentials, total, one, bits)


def _bytes(b: Lowering, x: Value, axis: int) -> _Row:
    """Two int8 tables make 16 bits: all that the INT profile alone can do."""
    bits = _bits(x, axis, 16)
    largest, one = _largest(b, x, axis), 2.0**bits - 1
    levels, rest = _levels(np.arange(-255, 1), scale_of(x), one)
    index = b.rescale(_below(b, x, largest), [1.0], 127, d.I8)
    exponentials = tabled(b, index, levels)
    total = b.proved(b.REDUCE_SUM(exponentials, axis=axis), 1 << (bits - 1))
    if x.shape[axis] > _LONG:
        fractions = b.rescale(b.TABLE(index, b.const(rest, d.I8)), [1.0], 0, d.I32)
        total = _refined(b, total, fractions, axis, _FRACTIONS, bits)
    return _Row(largest, exponentials, total, one, bits)


def _levels(steps: Array, scale: float, one: float) -> tuple[Array, Array]:
    """Exponentials as integers, and what rounding took off, in fractions."""
    real = one * np.exp(scale * steps)
    whole = np.round(real)
    return whole.astype(np.int64), np.round((real - whole) * _FRACTIONS).astype(np.int64)


def _refined(b: Lowering, total: Value, rest: Value, axis: int, unit: int, bits: int) -> Value:
    """A sum with what was rounded off its terms."""
    more = b.rescale(b.REDUCE_SUM(rest, axis=axis), [1 / unit], 0, d.I32)
    return b.MAXIMUM(b.ADD(total, more), b.number(1 << (bits - 1), total))


def _pairs(b: Lowering, x: Value, axis: int) -> _Row:
    """x − max = 256·high + low, and exp is the product of two tables that are exact in 22 bits."""
    bits, scale = _bits(x, axis, 22), scale_of(x)
    largest = _largest(b, x, axis)
    below = _below(b, x, largest)
    eight = b.number(8, below)
    high = b.ARITHMETIC_RIGHT_SHIFT(b.ADD(below, b.number(127, below)), eight, round=True)
    low = b.SUB(below, b.LOGICAL_LEFT_SHIFT(high, eight))
    factors = paired(b, high, 256 * scale), paired(b, low, scale)
    fine, down = product(b, *factors, 14), b.number(30 - bits, below)
    exponentials = b.ARITHMETIC_RIGHT_SHIFT(fine, down, round=True)
    total = b.proved(b.REDUCE_SUM(exponentials, axis=axis), 1 << (bits - 1))
    if bits < 22:
        rest = b.SUB(fine, b.LOGICAL_LEFT_SHIFT(exponentials, down))
        total = _refined(b, total, rest, axis, 1 << (30 - bits), bits)
    return _Row(largest, exponentials, total, PAIR**2 / 2.0 ** (44 - bits), bits)


def _shares(form: _Form, b: Lowering, x: Value, axis: int) -> Value:
    """Each exponential times the reciprocal of their sum."""
    row = form(b, x, axis)
    inverse = reciprocal(b, normal(b, row.total), row.bits, exact=x.dtype is d.I16)
    if row.exponentials.dtype is d.I16:
        if b.wanted is None or b.wanted[0].one_scale >= _FINE:
            brief = b.rescale(inverse, [32767.0 * 32767.0 / 2.0 ** (28 + row.bits)], 0, d.I16)
            made = product(b, row.exponentials, brief)
            return b.with_quant(made, Quant(1.0 / 32767**2))
        wide = b.rescale(row.exponentials, [1.0], 0, d.I32)
        return b.with_quant(product(b, wide, inverse, row.bits), Quant(2.0**-28))
    return b.with_quant(product(b, row.exponentials, inverse, row.bits), Quant(2.0**-28))


def _logarithms(form: _Form, b: Lowering, x: Value, axis: int) -> Value:
    """x − max − ln sum, in the finest unit in which all of it fits."""
    row, scale = form(b, x, axis), scale_of(x)
    coarse = b.wanted is None or b.wanted[0].scale >= scale / _FINER  # type: ignore[operator]
    if row.exponentials.dtype is d.I16 and coarse:
        return _short_logarithms(b, x, row, axis)
    most = (x.dtype.range[1] - x.dtype.range[0]) * scale + math.log(x.shape[axis]) + 1
    unit = 2.0 ** (math.ceil(math.log2(most)) - 28)
    taken = logarithm(b, normal(b, row.total), row.bits, math.log(row.one), unit)
    return b.with_quant(
        b.SUB(scaled(b, _below(b, x, row.largest), scale / unit), taken), Quant(unit)
    )


def _short_logarithms(b: Lowering, x: Value, row: _Row, axis: int) -> Value:
    """The same in int16, where a difference is rescaled in the same operation."""
    scale, reach = scale_of(x), math.log(x.shape[axis]) + 1
    below = b.rescale(_below(b, x, row.largest), [128.0], 0, d.I16)
    taken = short_logarithm(b, row.total, row.bits, math.log(row.one), reach / 32767)
    both = b.with_quant(below, Quant(scale / 128)), b.with_quant(taken, Quant(reach / 32767))
    parts = b.aligned(*both)
    return b.with_quant(b.SUB(*parts), parts[0].quant)


def _whole(
    b: Lowering, x: Value, dim: int, finish: Callable[[_Form, Lowering, Value, int], Value]
) -> Value:
    """An integer row by the first form that the target takes."""
    axis = dim % x.type.rank
    forms = (_short, _bytes) if x.dtype is d.I8 else (_pairs,)
    return first(b, *(partial(finish, form, b, x, axis) for form in forms))


def _float(b: Lowering, x: Value, dim: int) -> tuple[Value, Value, Value]:
    """x − max, exp of it, and the sum of that; in float32, as PyTorch computes it."""
    axis = dim % x.type.rank
    wide = converted(b, x, d.F32)
    below = minus(b, wide, extreme(b, "REDUCE_MAX", wide, axis))
    exponentials = b.EXP(below)
    return below, exponentials, b.REDUCE_SUM(exponentials, axis=axis)


def _result(b: Lowering, y: Value, x: Value, dtype: torch.dtype | None) -> Value:
    return converted(b, y, x.dtype if dtype is None else TYPES.get(dtype, d.F32))


_SAMPLES = (
    Sample(((4, 10),), (-1,)),
    Sample(((2, 3, 5),), (1,), domain=(-8.0, 8.0)),
    Sample(((1, 4, 6, 7),), (1,)),
    Sample(((3, 300),), (1,), domain=(-6.0, 0.0)),
    Sample(((1, 6, 2),), (-1,), domain=(-20.0, 20.0)),
    Sample(((40,),), (0,)),
)


# The same with the argument that the decomposed operator has.
_FLAGGED = [Sample(s.shapes, (*s.arguments, False), domain=s.domain) for s in _SAMPLES]


@rule("aten.softmax.int", samples=_SAMPLES)
def softmax(b: Lowering, self: Value, dim: int, dtype: torch.dtype | None = None) -> Value:
    if not self.type.rank:
        return b.reshape(softmax(b, b.reshape(self, (1,)), 0, dtype), ())
    if self.quant is not None:
        return _whole(b, self, dim, _shares)
    _, exponentials, total = _float(b, self, dim)
    return _result(b, times(b, exponentials, b.RECIPROCAL(total)), self, dtype)


@rule("aten.log_softmax.int", samples=_SAMPLES)
def log_softmax(b: Lowering, self: Value, dim: int, dtype: torch.dtype | None = None) -> Value:
    if not self.type.rank:
        return b.reshape(log_softmax(b, b.reshape(self, (1,)), 0, dtype), ())
    if self.quant is not None:
        return _whole(b, self, dim, _logarithms)
    below, _, total = _float(b, self, dim)
    return _result(b, minus(b, below, b.LOG(total)), self, dtype)


@rule("aten._softmax.default", samples=_FLAGGED)
def softmax_decomposed(b: Lowering, self: Value, dim: int, half_to_float: bool) -> Value:
    return softmax(b, self, dim, torch.float32 if half_to_float else None)


@rule("aten._log_softmax.default", samples=_FLAGGED)
def log_softmax_decomposed(b: Lowering, self: Value, dim: int, half_to_float: bool) -> Value:
    return log_softmax(b, self, dim, torch.float32 if half_to_float else None)
