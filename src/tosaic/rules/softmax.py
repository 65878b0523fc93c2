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
from tosaic.ir.graph import Array, Value
from tosaic.lowering.alternatives.data_movement import first
from tosaic.lowering.alternatives.reduce_extreme import extreme
from tosaic.lowering.builder import TYPES, Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._operands import converted, minus, scale_of, times
from tosaic.rules._rows import PAIR, logarithm, paired, reciprocal, short_logarithm, tabled
from tosaic.spec import dtypes as d

_LONG = 256  # a row from which on the roundings of exponentials may show in their sum
_LONGEST = 1 << 20
_FRACTIONS = 254  # steps of an int8 for what was rounded off, −1/2 to 1/2
_FINE = 2.0**-12  # where results are as coarse as this, an int16 reciprocal is 1/16 step off
_FINER = 8  # steps of a result in one of what is given, up to which 1/128 of the latter will do


@dataclass(frozen=True, slots=True)
class _Row:
    """exp(x − max) in int16 or int32, and its sum of at least 2^(bits − 1) units.

    That is because no exponential is negative, and the largest element of each row has that of 0,
    which every form of them makes more than half of 2^bits.
    """

    largest: Value
    exponentials: Fixed
    total: Fixed
    bits: int


_Form = Callable[[Lowering, Value, int], _Row]


def _largest(b: Lowering, x: Value, axis: int) -> Value:
    return b.with_quant(extreme(b, "REDUCE_MAX", x, axis), x.quant)


def _below(b: Lowering, x: Value, largest: Value) -> Fixed:
    """x − max in int32: one for each reader, into which devices fuse it."""
    return Fixed.of(b, x) - Fixed.of(b, largest)


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
    index = _below(b, x, largest).to(d.I16, scale_of(x) / 128)
    exponentials = index.table(levels, d.I16).to(d.I16, 1.0).at(1 / one)
    total = _summed(exponentials.to(d.I32), axis, bits)
    if x.shape[axis] > _LONG:
        total = _refined(total, index.table(rest, d.I16), axis, _FRACTIONS, bits)
    return _Row(largest, exponentials, total, bits)


def _bytes(b: Lowering, x: Value, axis: int) -> _Row:
    """Two int8 tables make 16 bits: all that the INT profile alone can do."""
    bits = _bits(x, axis, 16)
    largest, one = _largest(b, x, axis), 2.0**bits - 1
    levels, rest = _levels(np.arange(-255, 1), scale_of(x), one)
    index = Fixed(b, b.rescale(_below(b, x, largest).value, [1.0], 127, d.I8))
    exponentials = tabled(index, levels).at(1 / one)
    total = _summed(exponentials, axis, bits)
    if x.shape[axis] > _LONG:
        total = _refined(total, index.table(rest, d.I8).to(d.I32), axis, _FRACTIONS, bits)
    return _Row(largest, exponentials, total, bits)


def _levels(steps: Array, scale: float, one: float) -> tuple[Array, Array]:
    """Exponentials as integers, and what rounding took off, in fractions."""
    real = one * np.exp(scale * steps)
    whole = np.round(real)
    return whole.astype(np.int64), np.round((real - whole) * _FRACTIONS).astype(np.int64)


def _summed(exponentials: Fixed, axis: int, bits: int) -> Fixed:
    return exponentials.sum(axis).proved((1 << (bits - 1)) * exponentials.unit)


def _refined(total: Fixed, rest: Fixed, axis: int, fractions: int, bits: int) -> Fixed:
    """A sum with what was rounded off its terms, in fractions of their unit."""
    more = rest.sum(axis).to(d.I32, float(fractions)).at(total.unit)
    return (total + more).maximum((1 << (bits - 1)) * total.unit)


def _pairs(b: Lowering, x: Value, axis: int) -> _Row:
    """x − max = 256·high + low, and exp is the product of two tables that are exact in 22 bits."""
    bits, scale = _bits(x, axis, 22), scale_of(x)
    largest = _largest(b, x, axis)
    below = _below(b, x, largest).at(1.0)
    high = below + 127 >> 8
    low = below - (high << 8)
    fine = paired(high, 256 * scale).times(paired(low, scale), 2.0**14 / PAIR**2)
    down = 30 - bits
    exponentials = (fine >> down).at(fine.unit * 2.0**down)
    total = _summed(exponentials, axis, bits)
    if bits < 22:
        rest = fine - (exponentials << down).at(fine.unit)
        total = _refined(total, rest.at(1.0), axis, 1 << down, bits)
    return _Row(largest, exponentials, total, bits)


def _shares(form: _Form, b: Lowering, x: Value, axis: int) -> Value:
    """Each exponential times the reciprocal of their sum."""
    row = form(b, x, axis)
    e, inverse = row.exponentials, reciprocal(row.total, row.bits, exact=x.dtype is d.I16)
    if e.value.dtype is d.I16:
        if b.wanted is None or b.wanted[0].one_scale >= _FINE:
            return (e * inverse.to(d.I16, e.unit)).quantized()
        e = e.to(d.I32)
    return e.times(inverse, 2.0**-28).quantized()


def _logarithms(form: _Form, b: Lowering, x: Value, axis: int) -> Value:
    """x − max − ln sum, in the finest unit in which all of it fits."""
    row, scale = form(b, x, axis), scale_of(x)
    coarse = b.wanted is None or b.wanted[0].scale >= scale / _FINER  # type: ignore[operator]
    if row.exponentials.value.dtype is d.I16 and coarse:
        return _short_logarithms(b, x, row, axis)
    most = (x.dtype.range[1] - x.dtype.range[0]) * scale + math.log(x.shape[axis]) + 1
    unit = 2.0 ** (math.ceil(math.log2(most)) - 28)
    taken = logarithm(row.total, row.bits, unit)
    return (_below(b, x, row.largest).scaled(unit) - taken).quantized()


def _short_logarithms(b: Lowering, x: Value, row: _Row, axis: int) -> Value:
    """The same in int16, of which devices subtract one from another and rescale at once."""
    below = _below(b, x, row.largest).to(d.I16, scale_of(x) / 128)
    taken = short_logarithm(row.total, row.bits, (math.log(x.shape[axis]) + 1) / 32767)
    parts = b.aligned(below.quantized(), taken.quantized())
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
