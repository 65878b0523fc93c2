"""Batch normalisation that is not folded into a convolution."""

from __future__ import annotations

import math

import numpy as np

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Array, Quant, Value
from tosaic.lowering.builder import Lowering
from tosaic.rules._operands import scale_of
from tosaic.rules._sums import accumulator, finished, zero_point
from tosaic.spec import dtypes as d

_SAMPLES = [
    Sample(((1, 5, 4, 3), (5,), (5,), (5,), (5,)), (0.1, 1e-5), domain=(0.2, 2.0)),
    Sample(((3, 6), (6,), (6,), (6,), (6,)), (0.1, 1e-3), domain=(0.2, 2.0)),
    Sample(((2, 4, 7), (4,), (4,), (4,), (4,)), (0.1, 1e-3), domain=(0.2, 2.0)),
]


def known(value: Value | None, otherwise: float) -> Array:
    """The numbers of a constant; they are few, one for each channel."""
    if value is None:
        return np.asarray(otherwise)
    if value.const is None or not value.is_const:
        raise Unsupported("a norm needs constant statistics and weights")
    return np.asarray(value.const.array, dtype=np.float64)


def _affine(b: Lowering, x: Value, factor: Array, offset: Array) -> Value:
    """x · factor + offset for each channel of [N, C, ...]."""
    if x.quant is None:
        shape = (1, -1, *(1,) * (x.type.rank - 2))
        scaled = b.mul(x, b.const(factor.reshape(shape), x.dtype))
        return b.ADD(scaled, b.const(offset.reshape(shape), x.dtype))
    return b.axis_back(scaled_channels(b, b.axis_last(x, 1), factor, offset), 1)


def scaled_channels(b: Lowering, x: Value, factor: Array, offset: Array) -> Value:
    """A depthwise 1×1 convolution: its weights are signs, its scales do the rest.

    Factors below 2^-12 of the largest, or far below their offsets, have fewer bits: none that
    the result could show, and so the offsets fit.
    """
    channels, scale = len(factor), scale_of(x)
    kind = accumulator(x)
    bits = 28 if kind is d.I32 else 36
    unit = np.maximum(np.abs(factor), max(np.abs(factor).max(), 1e-12) * 2.0**-12) / 64
    unit = np.maximum(unit, np.abs(offset) / scale / 2.0**bits)
    levels, means = np.round(factor / unit), scale * unit
    bias = np.round(offset / means)
    flat = (x.shape[0], 1, math.prod(x.shape[1:-1]), channels)
    image = x if x.type.rank == 4 else b.reshape(x, flat)
    y = b.DEPTHWISE_CONV2D(
        image, b.const(levels.reshape(1, 1, channels, 1), d.I8), b.const(bias, kind),
        zero_point(b, x), b.const([0], d.I8), pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1),
        acc_type=kind,
    )  # fmt: skip
    sums = b.with_quant(y, Quant(tuple(means.tolist()), 0, 3))
    return b.reshape(finished(b, sums, 1, bits + 1), x.shape)


@rule("aten._native_batch_norm_legit_no_training.default", constants=True, samples=_SAMPLES)
def batch_norm_inference(
    b: Lowering, input: Value, weight: Value | None, bias: Value | None, running_mean: Value | None,
    running_var: Value | None, momentum: float, eps: float,
) -> tuple[Value, None, None]:  # fmt: skip
    """The normalised values; the statistics beside them are empty."""
    if running_mean is None or running_var is None:
        raise Unsupported("batch normalisation needs running statistics, and this one has none")
    variance = known(running_var, 1.0)
    factor = known(weight, 1.0) / np.sqrt(variance + eps)
    offset = known(bias, 0.0) - known(running_mean, 0.0) * factor
    return _affine(b, input, factor, offset), None, None


@rule(
    "aten.batch_norm.default",
    constants=True,
    samples=[Sample(s.shapes, (False, *s.arguments, False), domain=s.domain) for s in _SAMPLES],
)
def batch_norm(
    b: Lowering, input: Value, weight: Value | None, bias: Value | None, running_mean: Value | None,
    running_var: Value | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Value:  # fmt: skip
    if training:
        raise Unsupported("batch normalisation in training mode: call eval() before export")
    return batch_norm_inference(b, input, weight, bias, running_mean, running_var, momentum, eps)[0]
