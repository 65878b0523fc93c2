"""Mathematical functions of one value: a TOSA operator in float, a table in integers."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch

from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.lut import Function
from tosaic.lowering.builder import Lowering
from tosaic.rules._curve import curve, curves, near_zero, polynomial
from tosaic.rules._integer_floor import whole
from tosaic.rules._operands import minus, negated, plus, scale_of, times
from tosaic.spec.dtypes import I8, I16, I32

_FEW = 8.0  # radians up to which a table of a wave is fine enough
_MANY = 2.0**17  # radians whose turns still fit int32


def _operator(name: str, b: Lowering, x: Value) -> Value:
    return b.op(name, x)


rsqrt = curve("rsqrt", curves(0.3, 4.0, 6))(partial(_operator, "RSQRT"))
reciprocal = curve("reciprocal", curves(0.3, 4.0, 12))(partial(_operator, "RECIPROCAL"))
curve("exp", curves(-4.0, 1.0))(partial(_operator, "EXP"))
curve("log", curves(0.3, 3.0, 4))(partial(_operator, "LOG"))
curve("erf", curves(-3.0, 3.0))(partial(_operator, "ERF"))


@curve("expm1", curves(-2.0, 1.0))
def expm1(b: Lowering, x: Value) -> Value:
    """tanh(x/2) · (eˣ + 1), which keeps the digits of a small x."""
    return times(b, b.TANH(times(b, x, 0.5)), plus(b, b.EXP(x), 1.0))


@curve("log1p", curves(-0.3, 3.0, 2))
def log1p(b: Lowering, x: Value) -> Value:
    series = polynomial(b, x, [1, -1 / 2, 1 / 3, -1 / 4, 1 / 5, -1 / 6])
    return near_zero(b, x, times(b, x, series), b.LOG(plus(b, x, 1.0)))


@rule("aten.sqrt.default", samples=curves(0.0, 4.0, 4))
def sqrt(b: Lowering, self: Value) -> Value:
    """1 / (1/√x): the infinity at 0 becomes 0 again."""
    if self.quant is None:
        return b.RECIPROCAL(b.RSQRT(self))
    return _root16(b, self) if self.dtype is I16 else b.table(self, torch.sqrt)


def _root16(b: Lowering, x: Value) -> Value:
    """The largest of three tables, of x, 16·x and 256·x, the last two of what of these fits.

    Lines between the entries of a table lie below the root, most below it near 0. The tables of
    larger arguments are fine there, and below the others where their arguments do not fit.
    """
    quant = Quant(math.sqrt(scale_of(x) * 32768) / 32767)
    most: Value | None = None
    for bits in (0, 4, 8):
        near = b.with_quant(b.rescale(x, [2.0**bits], 0, I16), None) if bits else x
        entries = np.sqrt(np.maximum(np.arange(-256, 257), 0) * 128 / 32768 / 2**bits) * 32767
        made = b.TABLE(near, b.const(np.round(entries), I16))
        root = b.rescale(made, [2.0**-7], 0, I16)
        if most is not None:
            root = b.levels(b.MAXIMUM(b.levels(most), b.levels(root)), I16)
        most = root
    assert most is not None
    return b.with_quant(most, quant)


def _wave(name: str, b: Lowering, self: Value) -> Value:
    """A table of int16 for all of a long range would be coarse: whole turns are taken off first."""
    if self.quant is None:
        return b.op(name.upper(), self)
    x, function = self, getattr(torch, name)
    if x.dtype is I8 or not _FEW < scale_of(x) * 2**15 < _MANY:
        return b.table(x, function)
    turn = 1 << 16
    angle = b.rescale(x, [scale_of(x) * turn / math.tau], 0, I32)
    turns = b.ARITHMETIC_RIGHT_SHIFT(angle, b.number(16, angle), round=True)
    within = b.levels(minus(b, angle, times(b, turns, turn)), I16)
    return b.table(b.with_quant(within, Quant(math.tau / turn)), function)


for _name in ("sin", "cos"):
    _waves = (*curves(-4.0, 4.0), *curves(-90.0, 70.0, 4))
    rule(f"aten.{_name}.default", samples=_waves)(partial(_wave, _name))


def _whole(b: Lowering, x: Value, function: Function, rounding: str) -> Value:
    """int8 has a table; lines between the entries of one have no jumps."""
    if x.dtype is I8 and b.wanted is not None and b.wanted[1] is I8:
        return b.table(x, lambda real: function(real.float()).double())
    return whole(b, x, rounding)


def _beside(name: str, b: Lowering, self: Value) -> Value:
    if self.quant is None:
        return b.op(name.upper(), self)
    return _whole(b, self, getattr(torch, name), name)


for _name in ("floor", "ceil"):
    rule(f"aten.{_name}.default", samples=curves(-8.0, 8.0))(partial(_beside, _name))


@rule("aten.trunc.default", samples=curves(-8.0, 8.0))
def trunc(b: Lowering, self: Value) -> Value:
    if self.quant is not None:
        return _whole(b, self, torch.trunc, "trunc")
    return b.SELECT(b.GREATER(b.number(0.0, self), self), b.CEIL(self), b.FLOOR(self))


@rule("aten.round.default", samples=curves(-8.0, 8.0))
def round(b: Lowering, self: Value) -> Value:
    """Halves go to the even side: up from a floor that is odd."""
    if self.quant is not None:
        return _whole(b, self, torch.round, "nearest")
    below = b.FLOOR(self)
    odd = minus(b, below, times(b, b.FLOOR(times(b, below, 0.5)), 2.0))
    part, half = minus(b, self, below), b.number(0.5, self)
    tie = b.SELECT(b.EQUAL(part, half), odd, b.number(0.0, self))
    return plus(b, below, b.SELECT(b.GREATER(part, half), b.number(1.0, self), tie))


@rule("aten.sign.default", "aten.sgn.default",
      samples=[Sample(((4, 400),), whole=True)])  # fmt: skip
def sign(b: Lowering, self: Value) -> Value:
    if self.quant is not None and self.dtype is I8:
        return b.table(self, torch.sign)
    if self.quant is not None:
        return b.with_quant(b.CLAMP(self, min_val=-1, max_val=1), Quant(1.0))
    zero, one = b.number(0.0, self), b.number(1.0, self)
    below = b.SELECT(b.GREATER(zero, self), negated(b, one), zero)
    return b.SELECT(b.GREATER(self, zero), one, below)
