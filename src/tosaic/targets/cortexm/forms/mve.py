"""The vector extension MVE (Cortex-M55, M85): layers that have a form, and packed weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tosaic.ir.graph import Array
from tosaic.targets.cortexm.cores import Core
from tosaic.targets.cortexm.forms.dsp import sum_by_tables, sum_call
from tosaic.targets.cortexm.forms.portable import folded_bias, largest_sum
from tosaic.targets.cortexm.layers import Add, Call, Conv, MatMul, Requant

# Sizes of structures in the scratch memory, where pointers have 64 bits: the same C runs there.
BLOCK, LINES = 96, 104


def conv(layer: Conv, core: Core) -> Call | None:
    """The convolution in blocks of 3 pixels by 4 channels; depthwise by 16 or 8 channels."""
    made = layer.requant
    if layer.bits != 8 or layer.out_bits == 32 or layer.w_zp or made is None:
        return None
    found = scales_of(layer, made)
    if found is None:
        return None
    scales, is_plain = found
    lut = b"" if made.lut is None else made.lut.tobytes()
    literals = (*layer.geometry, layer.x_zp, made.zp, made.lo, made.hi)
    if layer.kind == "depthwise":
        is_quick = is_plain and (made.lo, made.hi) == (-128, 127)
        return _depthwise(layer, (*literals, int(is_quick)), scales, lut)
    patch = layer.kh * layer.kw * layer.ic
    steps = (patch + 15) // 16
    weight = np.zeros((layer.oc, 16 * steps), np.int8)
    weight[:, :patch] = layer.weight.reshape(layer.oc, patch)
    if layer.n * layer.oh * layer.ow * layer.kh * layer.kw == layer.ih * layer.iw == 1:
        return Call(
            "tk_linear_s8_mve", "linear_s8_mve.h",
            (layer.ic, layer.oc, made.zp, made.lo, made.hi, layer.out_bits // 8),
            _fours(weight, scales, 4), lut,
            scratch=16 * steps if layer.ic % 16 else 0, streams=True,
        )  # fmt: skip
    return Call(
        "tk_conv_s8_mve", "conv_s8_mve.h",
        (*literals, 2 if layer.out_bits == 16 else int(not is_plain)),
        _fours(weight, scales, 2), lut,
        scratch=BLOCK + 48 * steps + 16 + 24, align=8, streams=True,
    )  # fmt: skip


def scales_of(layer: Conv, made: Requant) -> tuple[Array, bool] | None:
    """Bias, multiplier and shifts of each channel, and whether no sum is shifted to the left.

    VQDMULH takes shifts from 32 on: a smaller one shifts the sum to the left before, in the second
    byte of the shift. None if the sum has no room for it.
    """
    multiplier = np.broadcast_to(made.multiplier, layer.oc).astype(np.int64)
    shift = np.broadcast_to(made.shift, layer.oc).astype(np.int64)
    left = np.maximum(32 - shift, 0)
    if (largest_sum(layer) << left >= 1 << 31).any():
        return None
    shifts = (31 - np.maximum(shift, 32)) % 256 + 256 * left
    return np.stack([folded_bias(layer), multiplier, shifts], 1).astype("<i4"), not left.any()


def _fours(weight: Array, scales: Array, together: int) -> bytes:
    """Four channels at a time, the last overlapping: `together` by vectors, then scales."""
    oc, size = weight.shape
    if oc < 4:
        weight, scales = np.resize(weight, (4, size)), np.resize(scales, (4, 3))
    vectors = weight.reshape(len(weight), size // 16, 16)
    made = []
    for at in np.minimum(np.arange(0, oc, 4), max(oc - 4, 0)):
        for first in range(0, 4 // together):
            channels = range(at + first, at + 4, 4 // together)
            made.append(np.stack([vectors[c] for c in channels], 1).tobytes())
        made.append(np.ascontiguousarray(scales[at : at + 4].T).tobytes())
    return b"".join(made)


def _depthwise(layer: Conv, literals: tuple[int, ...], scales: Array, lut: bytes) -> Call:
    is_small = (layer.kh, layer.kw, layer.dy, layer.dx) == (3, 3, 1, 1) and layer.ic == layer.oc
    if not is_small or (layer.sy, layer.sx) not in ((1, 1), (2, 2)) or layer.out_bits != 8:
        return _any_depthwise(layer, literals[:-1], scales, lut)
    rows = np.zeros((layer.oc, 5, 4), np.int8)
    rows[:, 1:4, :3] = layer.weight[..., 0].transpose(2, 1, 0)
    packed = np.concatenate([rows.view("<i4")[..., 0], scales], 1).astype("<i4").tobytes()
    columns = max(layer.sx * layer.ow + 2, 6 if layer.sx == 1 else 10)
    return Call(
        "tk_depthwise_s8_mve", "depthwise_s8_mve.h", literals, packed, lut,
        scratch=LINES + 64 * columns + 16, align=8, streams=True,
    )  # fmt: skip


def _any_depthwise(layer: Conv, literals: tuple[int, ...], scales: Array, lut: bytes) -> Call:
    """Windows of every size, by eight output channels; even ones are scaled before odd ones."""
    oc = max(layer.oc, 8)
    weights, rows = np.zeros((layer.kh * layer.kw, oc), np.int8), np.zeros((oc, 3), "<i4")
    weights[:, : layer.oc], rows[: layer.oc] = layer.weight.reshape(-1, layer.oc), scales
    packed = []
    for c in np.minimum(np.arange(0, oc, 8), oc - 8):
        own = rows[c : c + 8][[0, 2, 4, 6, 1, 3, 5, 7]].T
        packed += [weights[:, c : c + 8].tobytes(), own.tobytes()]
    return Call(
        "tk_depthwise_any_s8_mve", "depthwise_any_s8_mve.h", (*literals, layer.out_bits),
        b"".join(packed), lut, scratch=8, streams=True,
    )  # fmt: skip


def add(layer: Add, core: Core) -> Call | None:
    """The sum of two tensors, each by a table."""
    found = sum_by_tables(layer, 32, 53, 1 << 30)
    if found is None:
        return None
    tables, shift = found
    return sum_call("mve", layer, tables, (layer.requant.zp << (shift - 31), 31 - shift))


def matmul(layer: MatMul, core: Core) -> Call | None:
    """The product of matrices, a tile of columns packed at a time."""
    made = layer.requant
    if layer.bits != 8 or layer.out_bits == 32 or made is None or layer.width < 4:
        return None
    if not layer.is_transposed and layer.width > 2047:  # offsets of 16 bits are gathered
        return None
    shift = int(made.shift[0])
    left = max(32 - shift, 0)
    if (layer.c * 255 * 255) << left >= 1 << 31:
        return None
    steps, tile = (layer.c + 15) // 16, min(layer.width + -layer.width % 4, 32)
    return Call(
        "tk_matmul_s8_mve", "matmul_s8_mve.h",
        (layer.n, layer.h, layer.c, layer.width, layer.batches, int(layer.is_transposed), tile,
         layer.a_zp, layer.b_zp, int(made.multiplier[0]), (31 - max(shift, 32)) % 256 + 256 * left,
         made.zp, made.lo, made.hi, layer.out_bits // 8),
        lut=b"" if made.lut is None else made.lut.tobytes(),
        scratch=BLOCK + tile // 4 * (64 * steps + 48) + 4 * layer.h + 48 * steps, align=8,
    )  # fmt: skip


FORMS: Mapping[type, Callable[[Any, Core], Call | None]] = {
    Conv: conv, Add: add, MatMul: matmul,
}  # fmt: skip
