"""The DSP extension (Cortex-M4, M7, M33): layers that have a form, and their packed weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tosaic.ir.graph import Array
from tosaic.targets.cortexm.cores import Core
from tosaic.targets.cortexm.forms.portable import folded_bias, largest_sum
from tosaic.targets.cortexm.layers import Add, Call, Conv, MatMul, Requant

# Sizes of structures in the scratch memory, where pointers have 64 bits: the same C runs there.
BLOCK, CHANNEL = 72, 80


def conv(layer: Conv, core: Core) -> Call | None:
    """The convolution by three pixels and two channels; depthwise by four channels."""
    made = layer.requant
    if layer.bits != 8 or layer.out_bits == 32 or layer.w_zp or made is None or layer.oc < 2:
        return None
    found = scales_of(layer, made)
    if found is None:
        return None
    scales, is_plain = found
    is_full = (made.lo, made.hi) == (-128, 127)
    lut = b"" if made.lut is None else made.lut.tobytes()
    if layer.kind == "depthwise":
        return _depthwise(layer, made, scales, lut)
    taps = 1 if layer.dx == 1 else layer.kw
    words = (layer.kw // taps * layer.ic + 3) // 4
    is_row = layer.n * layer.oh * layer.ow * layer.kh * layer.kw == layer.ih * layer.iw == 1
    if is_row:
        words += words % 2
    groups = layer.kh * taps * words
    weight, bias = _patches(layer, taps, words), folded_bias(layer)
    kind = 2 if not is_plain and not is_row else int(not is_full)
    packed = _pairs(weight, bias, scales) if kind < 2 or layer.out_bits == 16 else None
    if layer.out_bits == 16:
        kind = 4 if packed is not None else 3
    if packed is None:
        kind, packed = max(kind, 2), _pairs_apart(weight, bias, scales)
    if is_row:
        return Call(
            "tk_linear_s8_dsp", "linear_s8_dsp.h", (layer.ic, layer.oc, made.lo, made.hi, kind),
            packed, lut, scratch=8 * groups + 40, align=8,
            streams=True,
        )  # fmt: skip
    return Call(
        "tk_conv_s8_dsp", "conv_s8_dsp.h",
        (*layer.geometry, layer.x_zp, made.lo, made.hi, kind), packed, lut,
        scratch=24 * groups + BLOCK + 12 * groups, align=8, streams=True,
    )  # fmt: skip


def scales_of(layer: Conv, made: Requant) -> tuple[Array, bool] | None:
    """Multiplier, offset and shifts of each channel, and whether no sum is shifted to the left.

    SMMLA takes shifts from 33 on: a smaller one shifts the sum to the left before, in the second
    byte of the shift. None if the sum or the offset has no room for it.
    """
    multiplier = np.broadcast_to(made.multiplier, layer.oc).astype(np.int64)
    shift = np.broadcast_to(made.shift, layer.oc).astype(np.int64)
    most = largest_sum(layer)
    left = np.maximum(33 - shift, 0)
    if (most << left >= 1 << 31).any():
        return None
    # Sums that are too small for the shift: zero, whatever they are.
    is_zero = (shift > 54) & (most * multiplier < 1 << (shift - 1))
    if (shift[~is_zero] > 54).any():
        return None
    right = np.where(is_zero, 0, np.maximum(shift - 32, 1))
    offset = np.where(is_zero, made.zp, (1 << np.maximum(right - 1, 0)) + made.zp * (1 << right))
    columns = np.where(is_zero, 0, multiplier), offset, right + 256 * left
    return np.stack(columns, 1).astype("<i4"), not left.any()


def _patches(layer: Conv, taps: int, words: int) -> Array:
    """Weights [oc, groups, 4] in the order of a patch: segments with zeros up to whole words."""
    segment = layer.kw // taps * layer.ic
    rows = layer.weight.astype(np.int16).reshape(layer.oc, layer.kh * taps, segment)
    padded = np.zeros((layer.oc, layer.kh * taps, 4 * words), np.int16)
    padded[..., :segment] = rows
    return padded.reshape(layer.oc, -1, 4)


def _pairs(weight: Array, bias: Array, scales: Array) -> bytes | None:
    """Two channels as the halves of int16; None where a weight or a sum has no room."""
    low, high = _two(weight)
    # (raw − low) >> 8 is the second sum while it has 24 bits.
    both = 256 * high + low
    if (np.abs(high).sum((1, 2)) * 128 >= 1 << 23).any() or both.min() < -32768:
        return None
    return _packed(both.astype("<i2"), bias, 0, scales)


def _pairs_apart(weight: Array, bias: Array, scales: Array) -> bytes:
    """Two channels as even and odd bytes."""
    low, high = _two(weight)
    words = np.stack([low, high], -1).astype(np.int8)
    return _packed(words.view("<i2")[..., 0], bias, 1, scales)


def _first(oc: int) -> Array:
    """The first of each two channels; the last two overlap if their number is odd."""
    return np.minimum(np.arange(0, oc, 2), oc - 2)


def _two(weight: Array) -> tuple[Array, Array]:
    """Both channels of each two, [pair, word, 2]: elements 0 and 2, then 1 and 3 of each four."""
    first = _first(len(weight))
    ordered = weight[:, :, [0, 2, 1, 3]].astype(np.int64).reshape(len(weight), -1, 2)
    return ordered[first], ordered[first + 1]


def _packed(halves: Array, bias: Array, is_apart: int, scales: Array) -> bytes:
    """Bias, words, bias (less the first if its sum begins with that), scales of two channels."""
    first = _first(len(bias))
    second = bias[first + 1].astype(np.int64) - is_apart * bias[first].astype(np.int64)
    body = np.ascontiguousarray(halves).view("<i4").reshape(len(first), -1)
    columns = bias[first][:, None], body, second[:, None], scales[first], scales[first + 1]
    packed: Array = np.concatenate([c.astype("<i4") for c in columns], 1)
    return packed.tobytes()


def _depthwise(layer: Conv, made: Requant, scales: Array, lut: bytes) -> Call | None:
    is_small = (layer.kh, layer.kw, layer.dy, layer.dx) == (3, 3, 1, 1) and layer.ic == layer.oc
    is_quick = is_small and (layer.sy, layer.sx) in ((1, 1), (2, 2)) and layer.out_bits == 8
    if layer.oc < 4:
        return None
    rows = np.concatenate([folded_bias(layer)[:, None], scales], 1).astype("<i4")
    if not is_quick or (scales[:, 2] >> 8).max() > 8:  # a weight with its shift is an int16
        return _any_depthwise(layer, made, rows, lut)
    weights = np.ascontiguousarray(layer.weight[[0, 1, 1, 2], ..., 0].transpose(2, 1, 0))
    columns = layer.sx * ((layer.ow + 1) // 2 * 2 - 1) + 3
    packed = (
        np.concatenate([weights.view("<i4").reshape(layer.oc, 3), rows], 1).astype("<i4").tobytes()
    )
    return Call(
        "tk_depthwise_s8_dsp", "depthwise_s8_dsp.h",
        (*layer.geometry, layer.x_zp, made.lo, made.hi, int((made.lo, made.hi) == (-128, 127))),
        packed, lut, scratch=4 * CHANNEL + 32 * columns + 4, align=8, streams=True,
    )  # fmt: skip


def _any_depthwise(layer: Conv, made: Requant, rows: Array, lut: bytes) -> Call:
    """Windows of every size, by four output channels."""
    weights = layer.weight.reshape(-1, layer.oc)
    first = np.minimum(np.arange(0, layer.oc, 4), layer.oc - 4)
    packed = [weights[:, c : c + 4].tobytes() + rows[c : c + 4].tobytes() for c in first]
    return Call(
        "tk_depthwise_any_s8_dsp", "depthwise_any_s8_dsp.h",
        (*layer.geometry, layer.x_zp, made.lo, made.hi, layer.out_bits), b"".join(packed), lut,
        scratch=4, streams=True,
    )  # fmt: skip


def add(layer: Add, core: Core) -> Call | None:
    """The sum of two tensors, each by a table."""
    found = sum_by_tables(layer, 33, 54, 1 << 31)
    if found is None:
        return None
    tables, shift = found
    offset = (1 << (shift - 33)) + (layer.requant.zp << (shift - 32))
    return sum_call("dsp", layer, tables, (offset, shift - 32))


def sum_by_tables(layer: Add, least: int, most: int, room: int) -> tuple[Array, int] | None:
    """Both tables, which have the sum's shift to the left up to the least one, and the shift."""
    shift = int(layer.requant.shift[0])
    tables = np.stack([layer.a, layer.b]).astype(np.int64) << max(least - shift, 0)
    shift = max(shift, least)
    return None if shift > most or np.abs(tables).max(1).sum() >= room else (tables, shift)


def sum_call(form: str, layer: Add, tables: Array, scale: tuple[int, ...]) -> Call:
    """The call of a form's sum: tables in the order of bytes, the multiplier and what is behind."""
    made = layer.requant
    numbers = np.array([int(made.multiplier[0]), *scale], "<i4")
    return Call(
        f"tk_add_s8_{form}", f"add_s8_{form}.h", (layer.size, made.lo, made.hi),
        np.roll(tables, 128, 1).astype("<i4").tobytes() + numbers.tobytes(),
        b"" if made.lut is None else made.lut.tobytes(),
    )  # fmt: skip


def matmul(layer: MatMul, core: Core) -> Call | None:
    """The product of matrices, a tile of columns packed at a time."""
    made = layer.requant
    if layer.bits != 8 or layer.out_bits == 32 or made is None or layer.width < 2:
        return None
    shift = int(made.shift[0])
    left = max(33 - shift, 0)
    if shift > 54 or (layer.c * 255 * 255) << left >= 1 << 31:
        return None
    right = max(shift - 32, 1)
    scale = int(made.multiplier[0]), (1 << (right - 1)) + (made.zp << right), right + 256 * left
    is_quick = left == 0 and (made.lo, made.hi) == (-128, 127)
    kind = 3 if layer.out_bits == 16 else 0 if is_quick else 2
    groups, tile = (layer.c + 3) // 4, min(layer.width, 32)
    return Call(
        "tk_matmul_s8_dsp", "matmul_s8_dsp.h",
        (layer.n, layer.h, layer.c, layer.width, layer.batches, int(layer.is_transposed), tile,
         layer.a_zp, layer.b_zp, *scale, made.lo, made.hi, kind),
        lut=b"" if made.lut is None else made.lut.tobytes(),
        scratch=24 * groups + BLOCK + (tile + 1) // 2 * 4 * (2 * groups + 8) + 4 * layer.h
        + 12 * groups, align=8,
    )  # fmt: skip


FORMS: Mapping[type, Callable[[Any, Core], Call | None]] = {
    Conv: conv, Add: add, MatMul: matmul,
}  # fmt: skip
