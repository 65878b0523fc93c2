"""Elementwise arithmetic of tensors and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.mask import both, is_mask
from tosaic.lowering.builder import Lowering
from tosaic.rules._division import floored, no_zero, truncated
from tosaic.rules._integer_floor import whole
from tosaic.rules._operands import (
    Operand,
    converted,
    minus,
    negated,
    operands,
    plus,
    scale_of,
    times,
    with_number,
)
from tosaic.rules._pairs import pair_table
from tosaic.rules._quotient import quotient
from tosaic.rules.functions import reciprocal, rsqrt, sqrt
from tosaic.spec import dtypes as d

_PAIRS = (
    Sample(((2, 3, 4), (2, 3, 4))),
    Sample(((2, 3, 4), (4,))),
    Sample(((1, 3, 4, 4), (1, 3, 1, 1))),
    Sample(((2, 1, 4), (3, 1))),
)
_NUMBERS = (Sample(((2, 3, 4),), (1.7,)), Sample(((5, 7),), (-0.3,)), Sample(((30,),), (40,)))
_WEIGHTED = (
    Sample(((2, 3, 4), (3, 4)), keywords=(("alpha", 0.5),)),
    Sample(((2, 3, 4), (2, 3, 4)), keywords=(("alpha", -3),)),
    Sample(((2, 3, 4), (2, 3, 4)), keywords=(("alpha", 0),)),
)


def _sum(b: Lowering, sign: int, first: Operand, second: Operand, alpha: float) -> Value:
    """first ± alpha · second."""
    weight = sign * alpha
    if not weight and isinstance(first, Value) and first.quant is not None:
        second, weight = 0.0, 1.0  # 0 times what is there, whatever it is
    found = with_number(b, first, second, lambda x, y: x + weight * y)
    if found is not None:
        return found
    x, y = operands(b, first, second)
    if x.quant is None:
        if alpha != 1:
            x, y = operands(b, x, times(b, y, alpha))
        return b.ADD(x, y) if sign > 0 else b.SUB(x, y)
    left, right = b.aligned(x, y, abs(weight))
    return b.with_quant(b.ADD(left, right) if weight > 0 else b.SUB(left, right), left.quant)


@rule("aten.add.Tensor", samples=(*_PAIRS, *_NUMBERS, *_WEIGHTED))
def add(b: Lowering, self: Value, other: Operand, alpha: float = 1) -> Value:
    return _sum(b, 1, self, other, alpha)


@rule("aten.sub.Tensor", samples=(*_PAIRS, *_NUMBERS, *_WEIGHTED))
def sub(b: Lowering, self: Value, other: Operand, alpha: float = 1) -> Value:
    return _sum(b, -1, self, other, alpha)


@rule("aten.rsub.Scalar", samples=(*_NUMBERS, Sample(((3, 9),), (1.5, 2.0))))
def rsub(b: Lowering, self: Value, other: Operand, alpha: float = 1) -> Value:
    return _sum(b, -1, other, self, alpha)


rule("aten.rsub.Tensor", samples=(*_PAIRS[:2], *_WEIGHTED))(rsub)


@rule("aten.mul.Tensor", samples=(*_PAIRS, *_NUMBERS))
def mul(b: Lowering, self: Value, other: Operand) -> Value:
    found = with_number(b, self, other, lambda x, y: x * y)
    if found is not None:
        return found
    if isinstance(other, Value) and is_mask(self) and is_mask(other):
        return both(b, self, other)
    if not isinstance(other, Value) and other and self.quant is not None and self.dtype is d.I32:
        scale = scale_of(self) * abs(other)  # an accumulator of other steps
        same = self if other > 0 else negated(b, b.with_quant(b.IDENTITY(self), None))
        return b.with_quant(b.IDENTITY(same), Quant(scale))
    return _product(b, *operands(b, self, other))


def _product(b: Lowering, x: Value, y: Value) -> Value:
    shift = b.const([0], d.I8)
    if x.quant is None or y.quant is None:
        return b.MUL(x, y, shift)
    left, right = (b.widened(each) for each in b.alike(x, y))
    return b.with_quant(b.MUL(left, right, shift), Quant(scale_of(left) * scale_of(right)))


_POSITIVE = (
    Sample(((2, 3, 4), (2, 3, 4)), domain=(0.5, 3.0)),
    Sample(((2, 1, 4), (3, 1)), domain=(0.2, 2.0)),
    Sample(((3, 4, 5), (4, 1)), domain=(-3.0, -0.7)),
)


@rule("aten.div.Tensor", samples=_POSITIVE)
def div(b: Lowering, self: Value, other: Operand) -> Value:
    if not isinstance(other, Value):
        return mul(b, self, 1.0 / other if other else math.copysign(math.inf, other))
    x, y = operands(b, self, other)
    if x.quant is not None:
        return quotient(b, x, y)
    kind = x.dtype if x.dtype.is_float else d.F32
    return times(b, converted(b, x, kind), b.RECIPROCAL(converted(b, y, kind)))


_MODES = (
    Sample(((5, 6), (5, 6)), (), (("rounding_mode", "floor"),), (-9.0, 5.0)),
    Sample(((5, 6), (6,)), (), (("rounding_mode", "trunc"),), (-9.0, 5.0)),
    Sample(((4, 5), (5,)), (), (("rounding_mode", None),), (0.5, 3.0)),
    Sample(((5, 6), (5, 6)), (), (("rounding_mode", "floor"),), (-9.0, -1.0), kinds=("i32",) * 2),
    Sample(((5, 6),), (0.7,), (("rounding_mode", "floor"),)),
    Sample(((5, 6),), (-0.4,), (("rounding_mode", "trunc"),)),
    Sample(((5, 6),), (-0.3,), (("rounding_mode", "floor"),)),
)


@rule("aten.div.Tensor_mode", samples=_MODES)
def div_rounded(
    b: Lowering, self: Value, other: Operand, rounding_mode: str | None = None
) -> Value:
    if rounding_mode is None:
        return div(b, self, other)
    kinds = {v.dtype for v in (self, other) if isinstance(v, Value)}
    if self.quant is None and len(kinds) == 1 and kinds <= {d.F16, d.BF16}:
        divisor = converted(b, other, d.F32) if isinstance(other, Value) else other
        wide = div_rounded(b, converted(b, self, d.F32), divisor, rounding_mode)
        return converted(b, wide, self.dtype)  # in float32, as PyTorch computes it
    function = partial(torch.div, rounding_mode=rounding_mode)
    found = with_number(b, self, other, function)
    if found is not None:
        return found
    if not isinstance(other, Value) and self.quant is not None:
        return _by_number(b, self, other, rounding_mode)
    x, y = operands(b, self, other)
    if x.quant is not None:
        return _whole_quotient(b, x, y, rounding_mode)
    if not x.dtype.is_float:
        pair = [converted(b, v, d.I32) for v in (x, y)]
        found = floored(b, *pair) if rounding_mode == "floor" else truncated(b, *pair)
        return converted(b, found, x.dtype)
    if rounding_mode == "floor":
        return _floored(b, x, y)
    size = _floored(b, b.ABS(x), b.ABS(y))
    opposite = b.GREATER(b.number(0.0, x), times(b, x, y))
    return b.SELECT(opposite, negated(b, size), size)


def _by_number(b: Lowering, x: Value, number: float, rounding_mode: str) -> Value:
    """A negative divisor turns the quotient round, and the rounding of one with it."""
    if not number:
        raise Unsupported("a quotient by 0 has no integer form")
    if number > 0:
        return whole(b, x, rounding_mode, number)
    opposite = whole(b, x, "ceil" if rounding_mode == "floor" else rounding_mode, -number)
    quant = opposite.quant
    return b.with_quant(negated(b, b.with_quant(opposite, None)), quant)


def _whole_quotient(b: Lowering, x: Value, y: Value, rounding_mode: str) -> Value:
    """Of integers in one scale; what nothing divides by is taken for 1."""
    x, y = (b.with_quant(v, None) for v in b.aligned(x, y))
    y = no_zero(b, y)
    return b.with_quant(
        floored(b, x, y) if rounding_mode == "floor" else truncated(b, x, y), Quant(1.0)
    )


@rule(
    "aten.floor_divide.default",
    samples=(
        Sample(((5, 6), (5, 6)), domain=(-9.0, 5.0)),
        Sample(((5, 6),), (0.7,)),
    ),
)
def floor_divide(b: Lowering, self: Value, other: Operand) -> Value:
    return div_rounded(b, self, other, "floor")


def _floored(b: Lowering, x: Value, y: Value) -> Value:
    """⌊x/y⌋; x · (1/y) may fall on the wrong side of a whole number, which the rest shows."""
    guess = b.FLOOR(times(b, x, b.RECIPROCAL(y)))
    rest = times(b, minus(b, x, times(b, guess, y)), y)  # times y: then its sign is that of y²
    one, zero = b.number(1.0, x), b.number(0.0, x)
    low = b.SELECT(b.GREATER_EQUAL(rest, times(b, y, y)), one, zero)
    high = b.SELECT(b.GREATER(zero, rest), one, zero)
    return minus(b, plus(b, guess, low), high)


@rule("aten.neg.default", samples=[Sample(((2, 3, 4),)), Sample(((40,),))])
def neg(b: Lowering, self: Value) -> Value:
    if self.quant is None:
        return negated(b, self)
    wide = b.widened(self)
    return b.with_quant(negated(b, wide), wide.quant)


@rule("aten.abs.default", samples=[Sample(((2, 3, 4),)), Sample(((40,),))])
def absolute(b: Lowering, self: Value) -> Value:
    if self.quant is None:
        return b.ABS(self)
    wide = b.widened(self)
    return b.with_quant(b.ABS(wide), wide.quant)


def _extreme(b: Lowering, emit: Callable[..., Value], x: Value, y: Value) -> Value:
    """The larger or smaller of two values: in the parameters of the result, so rounded once."""
    x, y = operands(b, x, y)
    if x.quant is None:
        return emit(x, y)
    if b.wanted is None:
        left, right = b.aligned(x, y)
    else:
        left, right = (b.widened(b.requantize(v, *b.wanted)) for v in (x, y))
    return b.with_quant(emit(left, right), left.quant)


@rule("aten.maximum.default", samples=_PAIRS)
def maximum(b: Lowering, self: Value, other: Value) -> Value:
    return _extreme(b, b.MAXIMUM, self, other)


@rule("aten.minimum.default", samples=_PAIRS)
def minimum(b: Lowering, self: Value, other: Value) -> Value:
    return _extreme(b, b.MINIMUM, self, other)


@rule(
    "aten.clamp.Tensor",
    samples=[Sample(((2, 3, 4), (4,), (3, 1))), Sample(((5, 6), (5, 6)), (None,))],
)
def clamp(b: Lowering, self: Value, min: Value | None = None, max: Value | None = None) -> Value:
    above = self if min is None else maximum(b, self, min)
    return above if max is None else minimum(b, above, max)


rule("aten.fmax.default", samples=_PAIRS[:2])(maximum)
rule("aten.fmin.default", samples=_PAIRS[:2])(minimum)


@rule("aten.square.default", samples=[Sample(((2, 3, 4),))])
def square(b: Lowering, self: Value) -> Value:
    """Of int32 the upper bits: 30 of its own are squared, and 31 of the result are left."""
    if self.quant is None or self.dtype is not d.I32:
        return _product(b, self, self)
    if b.wanted is not None and b.wanted[1] is not d.I32:
        return b.table(self, torch.square)
    most, bare = (1 << 30) - 1, b.with_quant(b.IDENTITY(self), None)
    near = b.MINIMUM(b.MAXIMUM(bare, b.number(-most, bare)), b.number(most, bare))
    made = b.proved(b.mul(near, near, 29), 0)
    return b.with_quant(made, Quant(scale_of(self) ** 2 * 2.0**29))


_LARGEST_PRODUCT = 8  # exponent that is written as products
_TORCH = {d.F32: torch.float32, d.F16: torch.float16, d.BF16: torch.bfloat16, d.I32: torch.int32}
_ROOTS = {0.5: sqrt, -0.5: rsqrt, -1: reciprocal}


@rule(
    "aten.pow.Tensor_Scalar",
    samples=[
        Sample(((2, 3, 4),), (2,)),
        Sample(((2, 3, 4),), (3,), steps16=2),
        Sample(((5, 6),), (0.5,), domain=(0.0, 4.0), steps16=4),
        Sample(((5, 6),), (-0.5,), domain=(0.3, 4.0), steps16=6),
        Sample(((5, 6),), (-1,), domain=(0.3, 4.0), steps16=12),
        Sample(((5, 6),), (-1.5,), domain=(0.8, 4.0), steps16=16),
        Sample(((5, 6),), (1.7,), domain=(0.1, 4.0), steps16=2),
    ],
)
def power(b: Lowering, self: Value, exponent: float) -> Value:
    if exponent == 2:
        return square(b, self)
    if self.quant is not None and exponent in _ROOTS:
        return _ROOTS[exponent](b, self)
    if self.quant is not None:
        return b.table(self, lambda x: x**exponent)
    size = abs(exponent)
    if size != int(size) or size > _LARGEST_PRODUCT or (exponent < 0 and not self.dtype.is_float):
        return b.POW(*operands(b, self, float(exponent)))
    if not size:
        return b.tensor(torch.ones(self.shape, dtype=_TORCH[self.dtype]))
    product = self  # a product takes negative numbers too
    for _ in range(int(size) - 1):
        product = times(b, product, self)
    return product if exponent > 0 else b.RECIPROCAL(product)


@rule(
    "aten.pow.Tensor_Tensor",
    samples=[
        Sample(((5, 6), (5, 6)), domain=(0.3, 2.0)),
        Sample(((5, 6), (6,)), domain=(0.1, 3.0)),
    ],
    integers=(d.I8,),
    why="a function of two values has a table where all of them are int8",
)
def power_of_tensors(b: Lowering, self: Value, exponent: Value) -> Value:
    x, y = operands(b, self, exponent)
    if x.quant is not None:
        return pair_table(b, x, y, torch.pow)
    return _real_power(b, x, y) if x.dtype.is_float else b.POW(x, y)


def _real_power(b: Lowering, x: Value, y: Value) -> Value:
    """POW takes no negative base, and no 0 with an exponent of 0 or less.

    A negative base has powers of whole exponents alone, with a sign where these are odd.
    """
    zero, one, none = (b.number(n, x) for n in (0.0, 1.0, math.nan))
    at_zero = b.EQUAL(x, zero)
    size = b.POW(b.SELECT(at_zero, one, b.ABS(x)), y)
    most = b.SELECT(b.GREATER(zero, y), b.number(math.inf, x), zero)
    at_origin = b.SELECT(b.EQUAL(y, zero), one, most)
    half = times(b, y, 0.5)
    negative = b.SELECT(b.EQUAL(b.FLOOR(half), half), size, negated(b, size))
    signed = b.SELECT(b.EQUAL(b.FLOOR(y), y), negative, none)
    return b.SELECT(at_zero, at_origin, b.SELECT(b.GREATER(zero, x), signed, size))


@rule(
    "aten.pow.Scalar",
    samples=[Sample(((5, 6),), (2.0,), steps16=2), Sample(((5, 6),), (0.5,), steps16=2)],
)
def power_of_number(b: Lowering, self: float, exponent: Value) -> Value:
    if exponent.quant is not None:
        return b.table(exponent, lambda x: self**x)
    return b.POW(*operands(b, self, exponent))
