"""Accumulators of sums of products: their type, scale and requantization."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import reduce

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.data_movement import first
from tosaic.lowering.builder import Lowering
from tosaic.spec import dtypes as d


def accumulator(x: Value) -> d.DType:
    """The type that TOSA adds products of this value up in."""
    if x.quant is None:
        return d.F32
    return d.I48 if x.dtype is d.I16 else d.I32


def product(x: Value, weight: Value, axis: int) -> Quant | None:
    """What sums of products mean; ``axis`` is that of the channels in the result."""
    if x.quant is None and weight.quant is None:
        return None
    if x.quant is None or weight.quant is None:
        raise Unsupported("one operand of the product is quantized, the other is not")
    given, scales = x.quant.one_scale, weight.quant.scale
    if isinstance(scales, tuple):
        return Quant(tuple(given * s for s in scales), 0, axis)
    return Quant(given * scales)


def summed(b: Lowering, terms: Iterable[Value], quant: Quant | None = None) -> Value:
    """Terms added up as they are made, and what their sum means."""
    return reduce(lambda x, y: b.with_quant(b.ADD(x, y), quant), terms)


def zero_of(x: Value) -> int:
    """The zero point of a value, 0 if it is not quantized."""
    zero = 0 if x.quant is None else x.quant.zero_point
    if isinstance(zero, tuple):
        if any(zero):
            raise Unsupported(
                "TOSA has one zero point for all weights of a layer, not one for each channel"
            )
        return 0
    return zero


def largest(x: Value) -> int:
    """How far integers can be from their zero point."""
    return max(abs(end - zero_of(x)) for end in x.dtype.range)


def zero_point(b: Lowering, x: Value) -> Value:
    """The zero point of a value as an operand; TOSA refuses those that it does not have."""
    return b.const([zero_of(x)], x.dtype)


def offsets(b: Lowering, bias: Value | None, x: Value, weight: Value, channels: int) -> Value:
    """The bias in the type and scale of the sums; zeros if there is none."""
    kind = accumulator(x) if x.quant is not None else x.dtype
    if bias is None:
        return b.const(np.zeros(channels), kind)
    if x.quant is None:
        return bias
    source, means = bias.const, product(x, weight, 0)
    if source is None or not bias.is_const or means is None:
        raise Unsupported("the bias of a quantized convolution must be a constant")
    if not bias.dtype.is_float and _means_the_same(bias, means):
        return b.remade(bias, lambda a: a, kind=kind)
    if not bias.dtype.is_float and bias.dtype is not d.I32:
        raise Unsupported(f"the bias of a quantized convolution is no {bias.dtype}")
    real = np.asarray(source.array, np.float64)
    if bias.quant is not None:
        real = real * np.asarray(bias.quant.scale)
    levels = np.round(real / np.asarray(means.scale))
    low, high = kind.range
    if not ((levels >= low) & (levels <= high)).all():
        raise Unsupported(f"the bias does not fit {kind} in the scale of the products")
    return b.const(levels, kind)


def _means_the_same(bias: Value, sums: Quant) -> bool:
    """Whether a bias has the scale of the sums; other quantizers may give it one of its own."""
    if bias.quant is None:
        return True
    own, theirs = np.asarray(bias.quant.scale), np.asarray(sums.scale)
    return bool(np.allclose(own, theirs, rtol=1e-6, atol=0))


def by_weights(b: Lowering, weight: Value, make: Callable[[Value], Value]) -> Value:
    """What is made of weights: of int4 where the target takes it, else of int8 with its numbers."""
    if weight.dtype is not d.I4 or weight.const is None:
        return make(weight)
    wide = b.remade(weight, lambda a: a, kind=d.I8, quant=weight.quant)
    return first(b, lambda: make(weight), lambda: make(wide))


def finished(b: Lowering, sums: Value, terms: int, bits: int) -> Value:
    """Sums as what is wanted; if nothing is, as they are.

    TOSA has no operator on int48 but RESCALE, so such sums become int32 by a power of two.
    ``terms`` products of ``bits`` bits were added. The RESCALE of int48 has multipliers of 15
    bits, right to 2^-15: an int16 result at the end of its range can be 2 steps off.
    """
    if sums.quant is None:
        return sums
    if b.wanted is not None:
        return b.requantize(sums, *b.wanted)
    if sums.dtype is not d.I48:
        return sums
    spare = max(bits + math.ceil(math.log2(terms)) - 29, 0)
    scale, axis = sums.quant.scale, sums.quant.axis
    wider = tuple(s * 2.0**spare for s in scale) if isinstance(scale, tuple) else scale * 2.0**spare
    return b.with_quant(b.rescale(sums, [2.0**-spare], 0, d.I32), Quant(wider, 0, axis))
