"""Special functions of one value: gamma's logarithm and its derivative, modified Bessel functions.

In integers they are tables. In float, gamma's are Stirling's series beyond 8 and what leads there,
and Bessel's are polynomials that are fitted to PyTorch's own values when they are first needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from tosaic.ir.graph import Value
from tosaic.lowering.builder import Lowering
from tosaic.rules._curve import curve, curves, polynomial
from tosaic.rules._operands import converted, minus, negated, plus, signed, times
from tosaic.spec.dtypes import F32, I8

_STEPS = 8  # by which an argument is raised to where the series converges
_POLES = "the int16 table of a range round 0 has poles between its entries"
_DEGREE = 22  # of polynomials, by which Bessel's functions are 1e-7 off

Real = Callable[[Lowering, Value], Value]


def _in_f32(real: Real) -> Real:
    """A float form that computes float16 and bfloat16 in float32, as PyTorch does."""
    return lambda b, x: converted(b, real(b, converted(b, x, F32)), x.dtype)


@curve("lgamma", curves(0.3, 4.0), integers=(I8,), why=_POLES)
@_in_f32
def lgamma(b: Lowering, x: Value) -> Value:
    """Left of 1/2 by reflection: log(π / |sin(πx)|) less that of 1 − x."""
    left = b.GREATER(b.number(0.5, x), x)
    y = b.SELECT(left, plus(b, negated(b, x), 1.0), x)
    z, factors = _raised(b, y)
    log = b.LOG(z)
    made = minus(b, times(b, plus(b, z, -0.5), log), z)
    made = plus(b, made, _series(b, z, (1 / 12, -1 / 360, 1 / 1260)))
    made = minus(b, plus(b, made, math.log(math.tau) / 2), b.LOG(factors))
    sine = b.ABS(b.SIN(times(b, _fraction(b, x), math.pi)))
    mirrored = minus(b, plus(b, negated(b, b.LOG(sine)), math.log(math.pi)), made)
    return b.SELECT(left, mirrored, made)


@curve("digamma", curves(0.3, 4.0), integers=(I8,), why=_POLES)
@_in_f32
def digamma(b: Lowering, x: Value) -> Value:
    """Left of 1/2 by reflection: that of 1 − x less π / tan(πx)."""
    left = b.GREATER(b.number(0.5, x), x)
    y = b.SELECT(left, plus(b, negated(b, x), 1.0), x)
    raised = b.GREATER(b.number(float(_STEPS), y), y)
    z = b.SELECT(raised, plus(b, y, float(_STEPS)), y)
    inverse, zero = b.RECIPROCAL(z), b.number(0.0, y)
    made = minus(b, b.LOG(z), times(b, inverse, 0.5))
    made = minus(b, made, times(b, inverse, _series(b, z, (1 / 12, -1 / 120, 1 / 252))))
    for step in range(_STEPS):
        term = b.RECIPROCAL(plus(b, y, float(step)))
        made = minus(b, made, b.SELECT(raised, term, zero))
    angle = times(b, _fraction(b, x), math.pi)
    turn = times(b, times(b, b.COS(angle), b.RECIPROCAL(b.SIN(angle))), math.pi)
    return b.SELECT(left, minus(b, made, turn), made)


def _raised(b: Lowering, y: Value) -> tuple[Value, Value]:
    """Arguments below 8 plus 8, and the product of what they were on the way; 1 for others."""
    raised = b.GREATER(b.number(float(_STEPS), y), y)
    product, one = y, b.number(1.0, y)
    for step in range(1, _STEPS):
        product = times(b, product, plus(b, y, float(step)))
    z = b.SELECT(raised, plus(b, y, float(_STEPS)), y)
    return z, b.SELECT(raised, product, one)


def _series(b: Lowering, z: Value, coefficients: tuple[float, ...]) -> Value:
    """A sum of odd powers of 1 / z."""
    inverse = b.RECIPROCAL(z)
    return times(b, polynomial(b, times(b, inverse, inverse), coefficients), inverse)


def _fraction(b: Lowering, x: Value) -> Value:
    """What x is above a whole number: its sine has the digits that one of many turns loses."""
    return minus(b, x, b.FLOOR(x))


def _fitted(scaled: Callable[[Tensor], Tensor]) -> Real:
    """f(|x|) · √(1 + |x|) as a polynomial in (|x| − 4) / (|x| + 4), divided by the root again."""

    @cache
    def coefficients() -> tuple[float, ...]:
        nodes = np.cos(np.pi * (np.arange(256) + 0.5) / 256) * (1 - 1e-4)
        at = 4 * (1 + nodes) / (1 - nodes)
        wanted = scaled(torch.from_numpy(at)).numpy() * np.sqrt(1 + at)
        fitted = np.polynomial.Chebyshev.fit(nodes, wanted, _DEGREE, domain=[-1, 1])
        return tuple(float(c) for c in fitted.coef)

    def lower(b: Lowering, x: Value) -> Value:
        size, (first, *rest, end) = b.ABS(x), coefficients()
        place = times(b, plus(b, size, -4.0), b.RECIPROCAL(plus(b, size, 4.0)))
        last, now = b.number(0.0, x), b.number(end, x)
        for coefficient in reversed(rest):  # Clenshaw's recurrence
            twice = times(b, times(b, place, now), 2.0)
            last, now = now, plus(b, minus(b, twice, last), coefficient)
        total = plus(b, minus(b, times(b, place, now), last), first)
        return times(b, total, b.RSQRT(plus(b, size, 1.0)))

    return lower


_even, _odd = _fitted(torch.special.i0e), _fitted(torch.special.i1e)


curve("special_i0e", curves(-3.0, 3.0))(_in_f32(_even))


@curve("i0", curves(-3.0, 3.0))
@_in_f32
def i0(b: Lowering, x: Value) -> Value:
    return times(b, _even(b, x), b.EXP(b.ABS(x)))


@curve("special_i1e", curves(-3.0, 3.0))
@_in_f32
def i1e(b: Lowering, x: Value) -> Value:
    return signed(b, x, _odd(b, x))


@curve("special_i1", curves(-3.0, 3.0))
@_in_f32
def i1(b: Lowering, x: Value) -> Value:
    return signed(b, x, times(b, _odd(b, x), b.EXP(b.ABS(x))))
