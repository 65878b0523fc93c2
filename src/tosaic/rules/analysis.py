"""Functions of one value that TOSA has no operator for: made of others in float, tables in int."""

from __future__ import annotations

import math

import numpy as np
import torch

from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
from tosaic.lowering.builder import Lowering
from tosaic.rules._curve import curve, curves, near_zero, polynomial
from tosaic.rules._integer_floor import left_over
from tosaic.rules._operands import minus, negated, plus, signed, times
from tosaic.spec.dtypes import I8


@curve("exp2", curves(-4.0, 1.0))
def exp2(b: Lowering, x: Value) -> Value:
    return b.POW(b.number(2.0, x), x)


@curve("log2", curves(0.3, 3.0, 4))
def log2(b: Lowering, x: Value) -> Value:
    return times(b, b.LOG(x), 1 / math.log(2))


@curve("log10", curves(0.3, 3.0, 4))
def log10(b: Lowering, x: Value) -> Value:
    return times(b, b.LOG(x), 1 / math.log(10))


@curve("erfc", curves(-3.0, 3.0))
def erfc(b: Lowering, x: Value) -> Value:
    return minus(b, b.number(1.0, x), b.ERF(x))


@curve("tan", curves(-1.2, 1.2))
def tan(b: Lowering, x: Value) -> Value:
    return times(b, b.SIN(x), b.RECIPROCAL(b.COS(x)))


@curve("sinh", curves(-3.0, 3.0))
def sinh(b: Lowering, x: Value) -> Value:
    """tanh(x) · cosh(x), which keeps the digits of a small x."""
    return times(b, b.TANH(x), cosh_of(b, x))


def cosh_of(b: Lowering, x: Value) -> Value:
    return times(b, plus(b, b.EXP(x), b.EXP(negated(b, x))), 0.5)


curve("cosh", curves(-3.0, 3.0))(cosh_of)


@curve("asinh", curves(-3.0, 3.0))
def asinh(b: Lowering, x: Value) -> Value:
    """log(|x| + √(x² + 1)) with the sign of x."""
    square = times(b, x, x)
    far = signed(b, x, b.LOG(plus(b, b.ABS(x), _root(b, plus(b, square, 1.0)))))
    near = times(b, x, polynomial(b, square, [1, -1 / 6, 3 / 40, -15 / 336]))
    return near_zero(b, x, near, far)


@curve("acosh", curves(1.3, 4.0, 16))
def acosh(b: Lowering, x: Value) -> Value:
    above = plus(b, x, -1.0)
    series = polynomial(b, above, [1, -1 / 12, 3 / 160, -5 / 896, 35 / 18432])
    near = times(b, _root(b, times(b, above, 2.0)), series)
    return near_zero(b, above, near, b.LOG(plus(b, x, _root(b, plus(b, times(b, x, x), -1.0)))))


@curve("atanh", curves(-0.8, 0.8, 4))
def atanh(b: Lowering, x: Value) -> Value:
    far = times(b, minus(b, b.LOG(plus(b, x, 1.0)), b.LOG(plus(b, negated(b, x), 1.0))), 0.5)
    near = times(b, x, polynomial(b, times(b, x, x), [1, 1 / 3, 1 / 5, 1 / 7]))
    return near_zero(b, x, near, far)


@curve("acos", curves(-0.9, 0.9, 4))
def acos(b: Lowering, x: Value) -> Value:
    return minus(b, b.number(math.pi / 2, x), _arcsine(b, x))


@curve("sinc", curves(-3.0, 3.0))
def sinc(b: Lowering, x: Value) -> Value:
    """sin(πx) / πx, and 1 where that is 0 / 0."""
    angle = times(b, x, math.pi)
    ratio = times(b, b.SIN(angle), b.RECIPROCAL(angle))
    return b.SELECT(b.EQUAL(x, b.number(0.0, x)), b.number(1.0, x), ratio)


@curve("erfinv", curves(-0.8, 0.8, 4))
def erfinv(b: Lowering, x: Value) -> Value:
    """A start by Winitzki, then two steps of Newton on erf."""
    made = _start_of_erfinv(b, x)
    for _ in range(2):
        slope = times(b, b.EXP(times(b, made, made)), math.sqrt(math.pi) / 2)
        made = minus(b, made, times(b, minus(b, b.ERF(made), x), slope))
    at_end = b.EQUAL(b.ABS(x), b.number(1.0, x))
    return b.SELECT(at_end, signed(b, x, b.number(math.inf, x)), made)


def _start_of_erfinv(b: Lowering, x: Value) -> Value:
    factor = 0.147
    width = b.LOG(plus(b, negated(b, times(b, x, x)), 1.0))
    mean = plus(b, times(b, width, 0.5), 2 / (math.pi * factor))
    inner = minus(b, _root(b, minus(b, times(b, mean, mean), times(b, width, 1 / factor))), mean)
    return signed(b, x, _root(b, b.MAXIMUM(inner, b.number(0.0, x))))


@rule("aten.frac.default",
      samples=[Sample(s, domain=(-8.0, 8.0)) for s in (((2, 3, 5),), ((40,),))])  # fmt: skip
def frac(b: Lowering, self: Value) -> Value:
    if self.quant is not None:
        return b.table(self, torch.frac) if self.dtype is I8 else left_over(b, self, "trunc")
    below = b.GREATER(b.number(0.0, self), self)
    return minus(b, self, b.SELECT(below, b.CEIL(self), b.FLOOR(self)))


@curve("rad2deg", curves(-3.0, 3.0))
def rad2deg(b: Lowering, x: Value) -> Value:
    return times(b, x, 180 / math.pi)


@curve("logit", [Sample(((40,),), domain=(0.1, 0.9), steps16=4),
                 Sample(((2, 3, 5),), (0.2,), domain=(0.01, 0.99), steps16=12)])  # fmt: skip
def logit(b: Lowering, self: Value, eps: float | None = None) -> Value:
    """log(x) − log(1 − x), of x limited to what is ``eps`` away from 0 and 1."""
    x = self if eps is None else b.bounded(self, eps, 1 - eps)
    return minus(b, b.LOG(x), b.LOG(plus(b, negated(b, x), 1.0)))


def _root(b: Lowering, x: Value) -> Value:
    return b.RECIPROCAL(b.RSQRT(x))


def _arcsine(b: Lowering, x: Value) -> Value:
    """The angle whose tangent is x / √(1 − x²)."""
    across = plus(b, negated(b, times(b, x, x)), 1.0)
    return _arc(b, times(b, x, b.RSQRT(across)))


def _arc(b: Lowering, x: Value) -> Value:
    """The arc tangent: an odd polynomial up to 1, and π/2 less that of 1/x beyond."""
    size, one = b.ABS(x), b.number(1.0, x)
    large = b.GREATER(size, one)
    small = b.SELECT(large, b.RECIPROCAL(size), size)
    square = times(b, small, small)
    angle = times(b, polynomial(b, square, _arc_coefficients()), small)
    return signed(b, x, b.SELECT(large, minus(b, b.number(math.pi / 2, x), angle), angle))


def _arc_coefficients() -> list[float]:
    """atan(√t) / √t as a polynomial in t on [0, 1]: 2e-8 off at Chebyshev's nodes."""
    nodes = (np.polynomial.chebyshev.chebpts1(64) + 1) / 2
    fitted = np.polynomial.Polynomial.fit(nodes, np.arctan(np.sqrt(nodes)) / np.sqrt(nodes), 8)
    return [float(c) for c in fitted.convert().coef]


atan = curve("atan", curves(-4.0, 4.0))(_arc)
asin = curve("asin", curves(-0.9, 0.9, 4))(_arcsine)
