"""Linear layers and matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.cast import float_cast
from tosaic.lowering.builder import TYPES, Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._matmul import products
from tosaic.rules._operands import converted, plus, scale_of, times
from tosaic.rules._sums import accumulator, by_weights, finished, offsets, product, zero_point
from tosaic.spec import dtypes as d


def _places(x: Value) -> tuple[int, ...]:
    """Rows of [..., C] as the places of an image, in the order that was measured to be fastest.

    [16, 1, 1, C] takes half the cycles of [1, 16, 1, C]; tokens are best along W.
    """
    rows, channels = math.prod(x.shape[:-1]), x.shape[-1]
    if x.type.rank == 4:
        return x.shape
    return (rows, 1, 1, channels) if x.type.rank == 2 else (1, 1, rows, channels)


@rule(
    "aten.linear.default",
    policy="WEIGHTED",
    samples=[
        Sample(((1, 16), (8, 16), (8,))),
        Sample(((4, 16), (8, 16), (8,))),
        Sample(((2, 5, 16), (8, 16)), (None,)),
        Sample(((2, 3, 4, 8), (6, 8), (6,))),
        Sample(((16,), (8, 16), (8,))),
    ],
)
def linear(b: Lowering, input: Value, weight: Value, bias: Value | None = None) -> Value:
    """A 1×1 convolution, which runs far faster than a matrix product."""
    if weight.type.rank != 2:
        raise Unsupported(
            f"the weight of a linear layer has {weight.type.rank} axes; 2 are lowered"
        )
    if input.dtype is d.I32 and input.quant is not None:
        return _long(b, input, weight, bias)
    return by_weights(b, weight, lambda kernel: _linear(b, input, kernel, bias))


def _linear(b: Lowering, input: Value, weight: Value, bias: Value | None) -> Value:
    x = b.reshape(input, _places(input))
    kernel = b.reshape(weight, (weight.shape[0], 1, 1, weight.shape[1]))
    y = b.CONV2D(
        x, kernel, offsets(b, bias, x, weight, weight.shape[0]), zero_point(b, x),
        zero_point(b, weight), pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1),
        acc_type=accumulator(x),
    )  # fmt: skip
    sums = finished(b, b.with_quant(y, product(x, kernel, 3)), weight.shape[1], 22)
    return b.reshape(sums, (*input.shape[:-1], weight.shape[0]))


def _long(b: Lowering, x: Value, weight: Value, bias: Value | None) -> Value:
    """Of int32 values: a layer of the upper 16 bits, plus one of the lower 15, in one scale."""
    scale = scale_of(x)
    upper, lower = Fixed(b, b.with_quant(b.IDENTITY(x), None)), d.I16.range[1]
    high = upper.to(d.I16, 2.0**15)
    rest = (upper - (high.to(d.I32) << 15).at(1.0)).proved(-lower, lower).to(d.I16)
    high16 = b.with_quant(high.value, Quant(scale * 2.0**15))
    low16 = b.with_quant(rest.value, Quant(scale))
    with b.wanting(None):
        sums = [
            by_weights(b, weight, lambda kernel: _linear(b, high16, kernel, bias)),
            by_weights(b, weight, lambda kernel: _linear(b, low16, kernel, None)),
        ]
    reach = sum(max(_all_scales(s)) * max(b.magnitude(s, exact=True), 1 << 15) for s in sums)
    unit, most = reach / 2.0**30, 1 << 30
    if b.wanted is not None and b.wanted[1] is d.I32:
        unit = min(unit, 2 * b.wanted[0].one_scale)  # what the result cannot hold saturates
    parts = [Fixed(b, b.with_quant(b.requantize(s, Quant(unit), d.I32), None)) for s in sums]
    total = parts[0].maximum(-most).minimum(most) + parts[1].maximum(-most + 1).minimum(most - 1)
    return total.at(unit).quantized()


def _all_scales(x: Value) -> tuple[float, ...]:
    assert x.quant is not None
    return x.quant.scale if isinstance(x.quant.scale, tuple) else (x.quant.scale,)


def _is_weight(x: Value) -> bool:
    return x.const is not None and x.is_const and x.type.rank == 2 and x.dtype is not d.I16


def batched(b: Lowering, x: Value, batch: Sequence[int]) -> Value:
    """[..., H, C] as [N, H, C] with every batch there, repeated where PyTorch broadcasts."""
    full = b.reshape(x, (1,) * (len(batch) + 2 - x.type.rank) + x.shape)
    times = [n // own for n, own in zip(batch, full.shape)]
    if any(n != 1 for n in times):
        full = b.with_quant(b.TILE(full, b.shape((*times, 1, 1))), x.quant)
    return b.reshape(full, (math.prod(batch), *x.shape[-2:]))


def multiply(b: Lowering, x: Value, y: Value) -> Value:
    """The product of [..., H, C] and [..., C, W]; by a constant matrix it is a linear layer."""
    if _is_weight(y):
        return linear(b, x, b.permute(y, (1, 0)))
    if y.type.rank == 2 and x.type.rank > 2:  # one matrix for all batches: more rows
        rows = b.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
        return b.reshape(multiply(b, rows, y), (*x.shape[:-1], y.shape[-1]))
    outer = max(x.type.rank, y.type.rank) - 2
    ones = [(1,) * (outer + 2 - v.type.rank) + v.shape[:-2] for v in (x, y)]
    batch = [max(m, n) for m, n in zip(*ones)]
    left, right = batched(b, x, batch), batched(b, y, batch)
    if left.quant is None:
        z = b.MATMUL(left, right, zero_point(b, left), zero_point(b, right), out=d.F32)
        made = z if z.dtype is x.dtype else float_cast(b, z, x.dtype)
    else:
        scale = product(left, right, 2)
        assert scale is not None
        made = finished(b, products(b, left, right, scale.one_scale).quantized(), x.shape[-1], 30)
    return b.reshape(made, (*batch, x.shape[-2], y.shape[-1]))


_MATRICES = [Sample(((5, 8), (8, 6))), Sample(((1, 12), (12, 7)))]
_BATCHES = [Sample(((3, 5, 8), (3, 8, 6))), Sample(((1, 4, 12), (1, 12, 7)))]


@rule("aten.mm.default", samples=_MATRICES)
def mm(b: Lowering, self: Value, mat2: Value) -> Value:
    return multiply(b, self, mat2)


rule("aten.bmm.default", samples=_BATCHES)(mm)


@rule(
    "aten.matmul.default",
    samples=[
        *_MATRICES,
        *_BATCHES,
        Sample(((2, 3, 5, 8), (8, 6))),
        Sample(((2, 3, 5, 8), (1, 3, 8, 6))),
        Sample(((5, 8), (3, 8, 6))),
        Sample(((5, 8), (8,))),
        Sample(((8,), (2, 8, 6))),
    ],
)
def matmul(b: Lowering, self: Value, other: Value) -> Value:
    x = b.reshape(self, (1, *self.shape)) if self.type.rank == 1 else self
    y = b.reshape(other, (*other.shape, 1)) if other.type.rank == 1 else other
    z = multiply(b, x, y)
    rows = () if self.type.rank == 1 else z.shape[-2:-1]
    columns = () if other.type.rank == 1 else z.shape[-1:]
    return b.reshape(z, (*z.shape[:-2], *rows, *columns))


@rule("aten._scaled_mm.default", policy="NONE")
def scaled_mm(
    b: Lowering, self: Value, mat2: Value, scale_a: Value, scale_b: Value,
    bias: Value | None = None, scale_result: Value | None = None,
    out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> Value:  # fmt: skip
    """A product of 8-bit floats in float32, times a scale of each row and of each column."""
    if scale_result is not None:
        raise Unsupported("PyTorch's processors do not agree on what a scale of the result does")
    sums = multiply(b, *(float_cast(b, v, d.F32) for v in (self, mat2)))
    for factor in (scale_a, scale_b):
        sums = times(b, sums, factor)
    if bias is not None:
        sums = plus(b, sums, converted(b, bias, d.F32))
    return float_cast(b, sums, self.dtype if out_dtype is None else TYPES[out_dtype])


def _plus(b: Lowering, self: Value, x: Value, y: Value, beta: float, alpha: float) -> Value:
    """beta · self + alpha · x @ y, rounded once: the addend joins the sums in their scale."""
    if (alpha, beta) == (1, 1) and _is_weight(y) and self.is_const and self.type.rank == 1:
        return linear(b, x, b.permute(y, (1, 0)), self)
    with b.wanting(None):
        sums = multiply(b, x, y)
    addend, sums = b.same_rank(self, sums)
    if sums.quant is None:
        shift = b.const([0], d.I8)
        if alpha != 1:
            sums = b.MUL(sums, b.number(alpha, sums), shift)
        if beta != 1:
            addend = b.MUL(addend, b.number(beta, addend), shift)
        return b.ADD(addend, sums)
    if addend.quant is None or sums.quant.axis is not None or min(alpha, beta) <= 0:
        raise Unsupported(f"a quantized sum of a matrix product with {beta = }, {alpha = }")
    scale = sums.quant.one_scale * alpha
    factor = addend.quant.one_scale * beta / scale
    return b.with_quant(b.ADD(b.rescale(addend, [factor], 0, d.I32), sums), Quant(scale))


@rule(
    "aten.addmm.default",
    samples=[
        Sample(((6,), (5, 8), (8, 6))),
        Sample(((5, 6), (5, 8), (8, 6)), keywords=(("beta", 0.5), ("alpha", 2.0))),
    ],
)
def addmm(
    b: Lowering, self: Value, mat1: Value, mat2: Value, beta: float = 1, alpha: float = 1
) -> Value:
    return _plus(b, self, mat1, mat2, beta, alpha)


@rule(
    "aten.baddbmm.default",
    samples=[
        Sample(((3, 5, 6), (3, 5, 8), (3, 8, 6))),
        Sample(((6,), (2, 5, 8), (2, 8, 6)), keywords=(("alpha", 0.25),)),
    ],
)
def baddbmm(
    b: Lowering, self: Value, batch1: Value, batch2: Value, beta: float = 1, alpha: float = 1
) -> Value:
    return _plus(b, self, batch1, batch2, beta, alpha)
