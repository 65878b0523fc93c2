"""Portable C: convolutions with constant weights, products of matrices, pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tosaic.ir.graph import Array
from tosaic.targets.cortexm.cores import Core
from tosaic.targets.cortexm.layers import Call, Conv, MatMul, Pool


def conv(layer: Conv, core: Core) -> Call | None:
    """The convolution in plain C; None for weights with a zero point."""
    made = layer.requant
    zp, lo, hi = (made.zp, made.lo, made.hi) if made else (0, 0, 0)
    if layer.w_zp or (layer.bits == 16 and (layer.x_zp or (made and made.lut is not None))):
        return None
    packed = channels(layer) if layer.bits == 8 else wide_channels(layer)
    return Call(
        "tk_conv", "conv.h",
        (*layer.geometry, int(layer.kind == "depthwise"), layer.x_zp, zp, lo, hi, layer.bits,
         layer.out_bits, int(made is not None)),
        packed + layer.weight.tobytes(),
        lut=b"" if made is None or made.lut is None else made.lut.tobytes(), streams=True,
    )  # fmt: skip


def folded_bias(layer: Conv) -> Array:
    """The bias of each output channel without what the input's zero point adds, modulo 2^32."""
    axes = (1, 2, 3) if layer.kind == "conv" else (0, 1)
    total = layer.weight.astype(np.int64).sum(axes).reshape(-1)
    folded: Array = (layer.bias.astype(np.int64) - layer.x_zp * total).astype(np.int32)
    return folded


def largest_sum(layer: Conv) -> Array:
    """How far from zero the accumulator of each output channel of an int8 layer can be."""
    axes = (1, 2, 3) if layer.kind == "conv" else (0, 1)
    total = np.abs(layer.weight.astype(np.int64)).sum(axes).reshape(-1)
    most: Array = np.abs(folded_bias(layer).astype(np.int64)) + 128 * total
    return most


def channels(layer: Conv) -> bytes:
    """Bias, multiplier and shift of each output channel, 12 bytes each."""
    table = np.zeros((layer.oc, 3), np.int32)
    table[:, 0] = folded_bias(layer)
    if layer.requant is not None:
        table[:, 1], table[:, 2] = layer.requant.multiplier, layer.requant.shift
    return table.astype("<i4").tobytes()


def wide_channels(layer: Conv) -> bytes:
    """Bias as int64, multiplier and shift of each output channel, 16 bytes each."""
    rows = np.zeros(layer.oc, np.dtype([("bias", "<i8"), ("multiplier", "<i4"), ("shift", "<i4")]))
    rows["bias"] = layer.bias
    if layer.requant is not None:
        rows["multiplier"], rows["shift"] = layer.requant.multiplier, layer.requant.shift
    return rows.tobytes()


def matmul(layer: MatMul, core: Core) -> Call | None:
    made = layer.requant
    scale = (int(made.multiplier[0]), int(made.shift[0]), made.zp, made.lo, made.hi) if made else (
        (0,) * 5
    )  # fmt: skip
    return Call(
        "tk_matmul", "matmul.h",
        (layer.n, layer.h, layer.c, layer.width, layer.batches, int(layer.is_transposed),
         layer.a_zp, layer.b_zp, *scale, layer.bits, layer.out_bits),
        lut=b"" if made is None or made.lut is None else made.lut.tobytes(),
    )  # fmt: skip


def pool(layer: Pool, core: Core) -> Call | None:
    """Of the reciprocal of a whole window a mean of integers needs the multiplier and the shift."""
    count = layer.kh * layer.kw
    extra = (count - 1).bit_length()
    reciprocal = (((1 << 30) + 1) << extra) // count, 30 + extra
    literals = (
        *layer.geometry, layer.bits, int(layer.kind == "max"), int(layer.ignores_nan), layer.x_zp,
        layer.y_zp, *(reciprocal if layer.kind == "avg" else (0, 0)),
    )  # fmt: skip
    return Call("tk_pool", "pool.h", literals, streams=True)


FORMS: Mapping[type, Callable[[Any, Core], Call | None]] = {
    Conv: conv, MatMul: matmul, Pool: pool,
}  # fmt: skip
