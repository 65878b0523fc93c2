"""Activation functions."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from torch.nn import functional as F

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Array, Quant, Value
from tosaic.lowering.builder import Lowering
from tosaic.rules._curve import curve
from tosaic.rules._operands import minus, negated, plus, scale_of, times
from tosaic.rules.norm import scaled_channels
from tosaic.spec import dtypes as d

_LIMITED = (Sample(((2, 3, 5),), domain=(-8.0, 8.0)), Sample(((1, 4, 3, 3),), domain=(-8.0, 8.0)))
# Between the 513 nodes of an int16 table the result is rounded twice, so it may be 2 steps off.
_CURVES = tuple(Sample(s.shapes, domain=s.domain, steps16=2) for s in _LIMITED)


@rule("aten.hardtanh.default",
      samples=(*_LIMITED, Sample(((4, 9),), (-2.0, 0.5))))  # fmt: skip
def hardtanh(b: Lowering, self: Value, min_val: float = -1.0, max_val: float = 1.0) -> Value:
    return b.bounded(self, min_val, max_val)


rule("aten.relu.default", samples=_LIMITED)(partial(hardtanh, min_val=0.0, max_val=math.inf))
rule("aten.relu6.default", samples=_LIMITED)(partial(hardtanh, min_val=0.0, max_val=6.0))


@rule("aten.clamp.default",
      samples=[Sample(((4, 9),), (-1.0, 2.0)), Sample(((4, 9),), (None, 1.5)),
               Sample(((36,),), (-1,))])  # fmt: skip
def clamp(b: Lowering, self: Value, min: float | None = None, max: float | None = None) -> Value:
    return b.bounded(self, -math.inf if min is None else min, math.inf if max is None else max)


rule("aten.clamp_min.default", samples=[Sample(((4, 9),), (-1.0,))])(clamp)
rule("aten.clamp_max.default", samples=[Sample(((4, 9),), (1.0,))])(clamp)


@curve("sigmoid", _CURVES, 11.0, policy="FIXED", limits=(0.0, 1.0))
def sigmoid(b: Lowering, self: Value) -> Value:
    return b.SIGMOID(self)


@curve("tanh", _CURVES, 6.0, policy="FIXED", limits=(-1.0, 1.0))
def tanh(b: Lowering, self: Value) -> Value:
    return b.TANH(self)


@curve("gelu", (*_CURVES, Sample(((4, 9),), (), (("approximate", "tanh"),), steps16=2)))
def gelu(b: Lowering, self: Value, approximate: str = "none") -> Value:
    if approximate == "tanh":
        cubed = times(b, times(b, times(b, self, self), self), 0.044715)
        part = b.TANH(times(b, plus(b, self, cubed), math.sqrt(2 / math.pi)))
    else:
        part = b.ERF(times(b, self, math.sqrt(0.5)))
    return times(b, times(b, self, 0.5), plus(b, part, 1.0))


@curve("silu", _CURVES)
def silu(b: Lowering, self: Value) -> Value:
    return times(b, self, b.SIGMOID(self))


@curve("hardsigmoid", _CURVES, policy="FIXED", limits=(0.0, 1.0))
def hardsigmoid(b: Lowering, self: Value) -> Value:
    return _gate(b, self)


@curve("hardswish", _CURVES)
def hardswish(b: Lowering, self: Value) -> Value:
    return times(b, self, _gate(b, self))


def _gate(b: Lowering, x: Value) -> Value:
    return times(b, b.CLAMP(plus(b, x, 3.0), min_val=0.0, max_val=6.0), 1 / 6)


def _positive(b: Lowering, x: Value) -> Value:
    return b.MAXIMUM(x, b.number(0, x))


def _negative(b: Lowering, x: Value) -> Value:
    return b.MINIMUM(x, b.number(0, x))


@curve("leaky_relu", (*_CURVES, Sample(((4, 9),), (0.2,), steps16=2)))
def leaky_relu(b: Lowering, self: Value, negative_slope: float = 0.01) -> Value:
    return plus(b, _positive(b, self), times(b, _negative(b, self), negative_slope))


@rule("aten.prelu.default", constants=True,
      samples=[Sample(((2, 4, 5), (4,))), Sample(((1, 3, 4, 4), (3,))),
               Sample(((2, 9), (1,)))])  # fmt: skip
def prelu(b: Lowering, self: Value, weight: Value) -> Value:
    """Each channel has its slope for what is negative."""
    rank = self.type.rank
    shape = [1] * rank
    if weight.type.size > 1:
        shape[min(1, rank - 1)] = weight.type.size
    return prelu_kernel(b, self, b.reshape(weight, shape))


_ONE = 1 + 2.0**-10  # a slope of 1 that was rounded: the result changes by 1/8 of a step at most


def _slopes(weight: Value) -> Array | None:
    """The real numbers of a constant."""
    if weight.const is None or not weight.is_const:
        return None
    if weight.quant is None:
        return weight.const.array.astype(np.float64).reshape(-1)
    if isinstance(weight.quant.scale, tuple) or isinstance(weight.quant.zero_point, tuple):
        return None
    steps = weight.const.array.astype(np.float64).reshape(-1) - weight.quant.zero_point
    return steps * weight.quant.scale


def _larger(b: Lowering, x: Value, slopes: Array) -> Value:
    """The larger of x and slope · x, which it is for slopes up to 1: each is rounded once."""
    assert b.wanted is not None
    quant, out = b.wanted
    last = b.axis_last(x, 1)
    same, scaled = b.requantize(last, quant, out), scaled_channels(b, last, slopes, slopes * 0)
    wide = [b.rescale(b.with_quant(v, quant), [1.0], 0, d.I32) for v in (same, scaled)]
    largest = b.with_quant(b.MAXIMUM(*wide), Quant(scale_of(same)))
    return b.axis_back(b.requantize(largest, quant, out), 1)


def _with_slopes(b: Lowering, x: Value, slopes: Array) -> Value:
    """An accumulator, and what of it is negative times its slope, in the finest common scale."""
    quant = x.quant
    assert quant is not None
    axis = 1 if len(slopes) > 1 else x.type.rank - 1 if quant.axis is None else quant.axis
    if quant.axis not in (None, axis) or x.type.rank <= axis:
        raise Unsupported("its slopes and its scales are by different axes")
    last, scales = b.axis_last(x, axis), np.broadcast_to(quant.scale, x.shape[axis])
    scale = float(scales.max()) * 2 * max(float(np.abs(slopes).max()), 1.0)
    sizes = np.maximum(np.abs(slopes), 2.0**-40) * scales / scale
    same = b.rescale(last, (scales / scale).tolist(), 0, d.I32)
    scaled = b.rescale(last, sizes.tolist(), 0, d.I32)
    if slopes.min() < 0:
        signs = np.where(slopes < 0, -1, 1).reshape(*(1,) * (x.type.rank - 1), -1)
        scaled = b.mul(scaled, b.const(signs, d.I32))
    if slopes.max() <= 1:
        y = b.MAXIMUM(same, scaled)
    else:
        zero, is_below = b.number(0, same), b.GREATER(b.number(0, same), same)
        y = b.ADD(_positive(b, same), b.SELECT(is_below, scaled, zero))
    return b.with_quant(b.axis_back(y, axis), Quant(scale))


@rule("aten._prelu_kernel.default", constants=True,
      samples=[Sample(((2, 4, 5), (1, 4, 1))), Sample(((3, 8), (1, 8)))])  # fmt: skip
def prelu_kernel(b: Lowering, self: Value, weight: Value) -> Value:
    if self.quant is None:
        return plus(b, _positive(b, self), times(b, _negative(b, self), weight))
    slopes = _slopes(weight)
    if slopes is None and weight.quant is None:
        raise Unsupported("slopes beside a quantized tensor must be constants or quantized too")
    if slopes is not None and self.dtype is d.I32:
        return _with_slopes(b, self, slopes)
    if slopes is not None and b.wanted is not None and self.dtype is d.I8:
        if len(slopes) == 1:
            return b.table(self, lambda x: F.leaky_relu(x, float(slopes[0])))
        if self.type.rank > 1 and slopes.max() <= _ONE and len(slopes) == self.shape[1]:
            return _larger(b, self, np.minimum(slopes, 1.0))
    if weight.quant is None and slopes is not None:
        weight = b.requantize(weight, Quant(float(np.abs(slopes).max() or 1.0) / 32767), d.I16)
    upper, lower, slope = b.widened(self), b.widened(self), b.widened(weight)
    product = b.mul(_negative(b, lower), slope)
    product.quant = Quant(scale_of(lower) * scale_of(slope))
    bits = 12  # leaves room for slopes up to 16, the sum of int16 values being int32
    quant = Quant(scale_of(upper) / 2.0**bits)
    parts = b.with_quant(_positive(b, upper), upper.quant), product
    return b.with_quant(b.ADD(*(b.requantize(p, quant, d.I32) for p in parts)), quant)


def _below_zero(b: Lowering, x: Value, factor: float, inner: float) -> Value:
    """factor · (e^(inner·x) − 1) where x is negative, else 0."""
    exponential = b.EXP(times(b, _negative(b, x), inner))
    return times(b, minus(b, exponential, 1.0), factor)


@curve("elu", (*_CURVES, Sample(((4, 9),), (0.7, 1.2, 0.5), steps16=2)))
def elu(
    b: Lowering, self: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Value:
    below = _below_zero(b, self, alpha * scale, input_scale)
    return plus(b, times(b, _positive(b, self), scale), below)


@rule("aten.celu.default",
      samples=(*_CURVES, Sample(((4, 9),), (0.6,), steps16=2)))  # fmt: skip
def celu(b: Lowering, self: Value, alpha: float = 1.0) -> Value:
    return elu(b, self, alpha, 1.0, 1.0 / alpha)


@rule("aten.selu.default", samples=_CURVES)
def selu(b: Lowering, self: Value) -> Value:
    return elu(b, self, 1.6732632423543772, 1.0507009873554805)  # the constants of PyTorch


def _log_of_one_and_exp(b: Lowering, x: Value) -> Value:
    """log(1 + e^−|x|), the part of a softplus that is no straight line."""
    return b.LOG(plus(b, b.EXP(negated(b, b.ABS(x))), 1.0))


@curve(
    "softplus",
    (*_CURVES, Sample(((4, 9),), (2.0,), steps16=2), Sample(((4, 9),), (1.0, 1.0), steps16=2)),
)
def softplus(b: Lowering, self: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    x = times(b, self, beta)
    y = times(b, plus(b, _positive(b, x), _log_of_one_and_exp(b, x)), 1.0 / beta)
    return b.SELECT(b.GREATER(x, b.number(threshold, x)), self, y)


@curve("mish", _CURVES)
def mish(b: Lowering, self: Value) -> Value:
    return times(b, self, b.TANH(plus(b, _positive(b, self), _log_of_one_and_exp(b, self))))


@curve("log_sigmoid", _CURVES)
def log_sigmoid(b: Lowering, self: Value) -> Value:
    return minus(b, _negative(b, self), _log_of_one_and_exp(b, self))


@curve("hardshrink", (*_LIMITED, Sample(((4, 9),), (1.5,), steps16=2)))
def hardshrink(b: Lowering, self: Value, lambd: float = 0.5) -> Value:
    return b.SELECT(b.GREATER(b.ABS(self), b.number(lambd, self)), self, b.number(0.0, self))


@curve("softshrink", (*_CURVES, Sample(((4, 9),), (1.5,), steps16=2)))
def softshrink(b: Lowering, self: Value, lambd: float = 0.5) -> Value:
    return minus(b, self, b.CLAMP(self, min_val=-lambd, max_val=lambd))


@curve(
    "threshold",
    [Sample(((4, 9),), (0.5, -1.0), steps16=2), Sample(((2, 3, 5),), (-1.0, 2.0), steps16=12)],
)
def threshold(b: Lowering, self: Value, threshold: float, value: float) -> Value:
    above = b.GREATER(self, b.number(threshold, self))
    return b.SELECT(above, self, b.number(value, self))
