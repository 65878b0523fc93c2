"""Triton kernels of the interpreter on a GPU: int8 convolutions with their RESCALE, and tables.

Sums are int32 on tensor cores, and scaled with the specification's own 64-bit product, so nothing
is left to prove. Tensors are NHWC. Imported only where torch has CUDA and Triton is installed.
"""

# mypy: ignore-errors
# Triton compiles these functions; their arguments are pointers and numbers of its own.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _scaled(value, multiplier, shift, zero_point, low, high, DOUBLE: tl.constexpr):
    """TOSA's apply_scale in int32, saturated, and the zero point of the result added.

    ``low`` and ``high`` are the limits without the zero point.
    """
    wide = value.to(tl.int64)
    bits = shift.to(tl.int64)
    half = tl.full(bits.shape, 1, tl.int64) << (bits - 1)
    if DOUBLE:
        nudge = tl.where(wide >= 0, 1 << 30, -(1 << 30)).to(tl.int64)
        half = half + tl.where(bits > 31, nudge, tl.zeros_like(nudge))
    result = ((wide * multiplier.to(tl.int64) + half) >> bits).to(tl.int32)
    return tl.minimum(tl.maximum(result, low), high) + zero_point


@triton.jit
def convolution(
    x, weight, bias, multiplier, shift, out,
    rows, columns, terms, channels, height, width, out_height, out_width,
    stride_y, stride_x, dilation_y, dilation_x, top, left, input_zp, output_zp, low, high,
    KERNEL_X: tl.constexpr, POINTWISE: tl.constexpr, DOUBLE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Rows are places of the result, columns output channels, terms taps times input channels."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside_m, inside_n = m < rows, n < columns
    if not POINTWISE:
        picture = m // (out_height * out_width)
        place = m % (out_height * out_width)
        y0 = (place // out_width) * stride_y - top
        x0 = (place % out_width) * stride_x - left
    sums = tl.zeros((BM, BN), dtype=tl.int32)
    for start in range(0, terms, BK):
        k = start + tl.arange(0, BK)
        inside_k = k < terms
        if POINTWISE:
            where = m.to(tl.int64)[:, None] * channels + k[None, :]
            a = tl.load(x + where, mask=inside_m[:, None] & inside_k[None, :], other=0)
        else:
            tap = k // channels
            y = y0[:, None] + ((tap // KERNEL_X) * dilation_y)[None, :]
            z = x0[:, None] + ((tap % KERNEL_X) * dilation_x)[None, :]
            seen = (y >= 0) & (y < height) & (z >= 0) & (z < width)
            seen = seen & inside_m[:, None] & inside_k[None, :]
            line = picture.to(tl.int64)[:, None] * height + y
            where = (line * width + z) * channels + (k % channels)[None, :]
            a = tl.load(x + where, mask=seen, other=input_zp)
        b = tl.load(
            weight + n.to(tl.int64)[None, :] * terms + k[:, None],
            mask=inside_n[None, :] & inside_k[:, None],
            other=0,
        )
        sums = tl.dot(a, b, sums, out_dtype=tl.int32)
    sums += tl.load(bias + n, mask=inside_n, other=0)[None, :]
    factor = tl.load(multiplier + n, mask=inside_n, other=0)[None, :]
    bits = tl.load(shift + n, mask=inside_n, other=2)[None, :]
    result = _scaled(sums, factor, bits, output_zp, low, high, DOUBLE)
    target = out + m.to(tl.int64)[:, None] * columns + n[None, :]
    tl.store(target, result.to(out.dtype.element_ty), mask=inside_m[:, None] & inside_n[None, :])


@triton.jit
def depthwise(
    x, weight, bias, multiplier, shift, out,
    rows, channels, height, width, out_height, out_width,
    stride_y, stride_x, dilation_y, dilation_x, top, left, input_zp, output_zp, low, high,
    KERNEL_Y: tl.constexpr, KERNEL_X: tl.constexpr, DOUBLE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Each channel by itself: rows are places of the result."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside_m, inside_n = m < rows, n < channels
    picture = m // (out_height * out_width)
    place = m % (out_height * out_width)
    y0 = (place // out_width) * stride_y - top
    x0 = (place % out_width) * stride_x - left
    first = tl.load(bias + n, mask=inside_n, other=0)
    sums = tl.zeros((BM, BN), dtype=tl.int32) + first[None, :]
    for i in tl.static_range(KERNEL_Y):
        for j in tl.static_range(KERNEL_X):
            y, z = y0 + i * dilation_y, x0 + j * dilation_x
            seen = inside_m & (y >= 0) & (y < height) & (z >= 0) & (z < width)
            line = (picture.to(tl.int64) * height + y) * width + z
            a = tl.load(
                x + line[:, None] * channels + n[None, :],
                mask=seen[:, None] & inside_n[None, :],
                other=input_zp,
            )
            w = tl.load(weight + (i * KERNEL_X + j) * channels + n, mask=inside_n, other=0)
            sums += a.to(tl.int32) * w.to(tl.int32)[None, :]
    factor = tl.load(multiplier + n, mask=inside_n, other=0)[None, :]
    bits = tl.load(shift + n, mask=inside_n, other=2)[None, :]
    result = _scaled(sums, factor, bits, output_zp, low, high, DOUBLE)
    target = out + m.to(tl.int64)[:, None] * channels + n[None, :]
    tl.store(target, result.to(out.dtype.element_ty), mask=inside_m[:, None] & inside_n[None, :])


@triton.jit
def rescale(
    x, multiplier, shift, out, count, channels, input_zp, output_zp, low, high,
    PER_CHANNEL: tl.constexpr, DOUBLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """RESCALE of integers, each channel (the last axis) with its factor, or all with one."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    channel = i % channels if PER_CHANNEL else tl.zeros_like(i)
    value = tl.load(x + i, mask=inside, other=0).to(tl.int64) - input_zp
    factor = tl.load(multiplier + channel, mask=inside, other=0)
    bits = tl.load(shift + channel, mask=inside, other=2)
    result = _scaled(value, factor, bits, output_zp, low, high, DOUBLE)
    tl.store(out + i, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def lookup(a, b, table, out, count, PAIR: tl.constexpr, BLOCK: tl.constexpr):
    """The entry of a table for each byte, or for each pair of bytes."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    place = tl.load(a + i, mask=inside, other=0).to(tl.int32) & 255
    if PAIR:
        place = place * 256 + (tl.load(b + i, mask=inside, other=0).to(tl.int32) & 255)
    tl.store(out + i, tl.load(table + place, mask=inside, other=0), mask=inside)
