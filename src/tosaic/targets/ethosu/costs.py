"""Cost estimate of operators on an Ethos-U, in cycles.

They are there to compare equal forms, so operators that no form replaces have none. Fitted to
Vela 5.2.0 on ethos-u55-128 and ethos-u85-256; other configurations follow by their multipliers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tosaic.ir.graph import Op, Value
from tosaic.rewrite.axes import merged_axes
from tosaic.rewrite.transpose_forms import channel_order
from tosaic.spec.dtypes import I8, I16, I32, I48

_PRODUCTS = ("CONV2D", "DEPTHWISE_CONV2D", "CONV3D", "MATMUL", "TRANSPOSE_CONV2D")
_SCALE_BYTES = 10  # of a channel: bias, multiplier and shift
# A weight that is fetched from flash, where many are zeros, which take next to nothing.
_WEIGHT_BYTES = 0.25
_SHORT = 32  # channels up to which weights of one element lie like those of larger kernels
_FULL = 0.29  # of blocks of weights, below which they are compressed
_EMPTY = 0.1  # bytes of a 0 where they are
_COUNTED = 1 << 16  # weights, at most, of which those that are 0 are counted


_TABLE_BYTES = {I8: 256, I16: 2048}  # a cycle each, unless the table is part of what computes
_READ = 0.2  # a byte of a convolution's input
_AXES = 3  # that change places in one operation or two
# An element of several axes that change places, at most: Vela takes a tenth of it for some shapes.
_MIXED55, _MIXED85 = 10.0, 50.0
_GATHERED = 3.1  # an element of a GATHER
_SPREAD = 3.0  # an element of a depthwise convolution with several results a channel
_POOLED = 0.27  # of a copy: an element of a window
_COMPARED = 0.5  # of a copy: the larger of two elements


@dataclass(frozen=True, slots=True)
class Rates:
    """Cycles of a product, for ``macs`` multiplications a cycle.

    ``depth`` channels are multiplied at once where the kernel is gone through whole, which it is
    not where ``in_parts`` says so of its elements and channels. ``result`` is for each element that
    is written, ``copy`` for one that is read and written. ``load`` is for a byte of weights that is
    fetched meanwhile; ``keep`` is what a byte in the NPU's only memory is worth, of which there is
    less than of time.
    """

    macs: int
    depth: int
    result: float
    copy: float
    load: float
    keep: float
    in_parts: Callable[[int, int], bool]


def cycles(family: str, macs: int) -> Callable[[Op], float]:
    """The cycles of an operator on a product with so many multipliers, 0 where none are known."""
    if family == "u85":
        rates = Rates(macs, 64, 64 / macs, 0.51, 0.0, 1.1, _in_parts85)
        return partial(_cycles, rates, _turned85, 2.0)
    rates = Rates(macs, 32, 64 / macs, 128 / macs, 1.0, 0.0, _in_parts55)
    return partial(_cycles, rates, _turned55, 7.0)


def _in_parts55(elements: int, channels: int) -> bool:
    """Whether Vela goes through a kernel in fours: where that leaves no more places empty."""
    return _up(channels, 8) * _up(elements, 4) <= _up(channels, 32) * elements


def _in_parts85(elements: int, channels: int) -> bool:
    """The same, which is also so where a kernel of many channels leaves some of five places."""
    return channels <= _SHORT or elements % 5 > 1


Transposed = Callable[[Op], float]


def _cycles(rates: Rates, transposed: Transposed, apart: float, op: Op) -> float:
    if op.name == "CONV2D" or op.name == "TRANSPOSE_CONV2D":
        return _convolution(rates, op)
    if op.name == "DEPTHWISE_CONV2D":
        return _depthwise(rates, op)
    if op.name == "TRANSPOSE":
        return min(transposed(op), _shuffled(rates, op)) + _copied(rates, op.ins[0], "SLICE")
    if op.name == "CONCAT":
        return sum(_copied(rates, v, "", "SLICE", "RESHAPE", "CONCAT") for v in op.ins)
    if op.name in ("TABLE", "CLAMP"):
        loaded = _TABLE_BYTES.get(op.ins[0].dtype, 0) if op.name == "TABLE" else 0
        return 0.0 if _is_rescaled(op.ins[0]) else loaded + rates.copy * op.outs[0].type.size
    if op.name == "PAD":
        return rates.copy * op.outs[0].type.size
    if op.name == "MAX_POOL2D":
        window: int = math.prod(op.attrs["kernel"])
        return _POOLED * rates.copy * op.outs[0].type.size * window
    if op.name == "MAXIMUM":
        return _COMPARED * rates.copy * op.outs[0].type.size
    if op.name == "RESCALE":
        return _rescale(rates, apart, op)
    if op.name == "MATMUL" and not rates.load:  # U85 turns the right one
        return rates.copy * op.ins[1].type.size
    if op.name == "GATHER":
        return _GATHERED * op.outs[0].type.size
    if op.name == "REDUCE_SUM" and not rates.load:
        return _summed85(op)
    return 0.0


def _shuffled(rates: Rates, op: Op) -> float:
    """A TRANSPOSE as the product that shuffles channels, where it is one."""
    order = channel_order(op)
    if order is None:
        return math.inf
    each = max(rates.result, _up(len(order), rates.depth) / rates.macs)
    return op.outs[0].type.size * each + rates.keep * len(order) ** 2 * _EMPTY


def _summed85(op: Op) -> float:
    """Sums along an axis before the last: the terms of each change places with all of them."""
    axis: int = op.attrs["axis"]
    count, sums = op.ins[0].shape[axis], op.outs[0].type.size
    if axis == op.ins[0].type.rank - 1:
        return 0.0
    return sums * max(sums * min(count, 16) / 320, 0.6 * count)


def _copied(rates: Rates, value: Value, *movers: str) -> float:
    """What it takes to have a value in its place that nothing has computed there."""
    name = value.producer.name if value.producer is not None else ""
    return rates.copy * value.type.size if name in movers else 0.0


def _is_rescaled(value: Value) -> bool:
    """Whether a RESCALE makes a value of sums, which can take one function more."""
    made = value.producer
    return made is not None and made.name == "RESCALE" and made.ins[0].dtype in (I32, I48)


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _convolution(rates: Rates, op: Op) -> float:
    """Kernels are gone through in fours, or whole with many channels at once."""
    weight, result = op.operand("weight"), op.outs[0]
    elements, channels = math.prod(weight.shape[1:3]), weight.shape[-1]
    products = elements * _up(channels, rates.depth)
    if rates.in_parts(elements, channels):
        products = _up(elements, 4) * (8 if channels <= 8 else _up(channels, 16))
    pairs = _up(result.shape[2], 2) / result.shape[2]  # results come two columns at a time
    computed = result.type.size * max(rates.result, products / rates.macs * pairs)
    gaps = op.attrs.get("dilation", (1, 1))
    if max(gaps) > 2:  # a part for each of the places between two weights
        computed *= 0.8 * math.prod(gaps)
    computed = max(computed, _READ * op.ins[0].type.size)
    return _stored(rates, op, computed)


def _depthwise(rates: Rates, op: Op) -> float:
    elements = _up(math.prod(op.operand("weight").shape[:2]), 4)
    computed = op.outs[0].type.size * max(rates.result, elements * 8 / rates.macs)
    if op.operand("weight").shape[3] > 1:  # as many operations, and what puts them in order
        computed += _SPREAD * op.outs[0].type.size
    return _stored(rates, op, computed)


def _stored(rates: Rates, op: Op, computed: float) -> float:
    """Cycles together with what weights and scales take."""
    weights, scales = op.operand("weight").type.size, _SCALE_BYTES * op.outs[0].shape[-1]
    fetched = rates.load * (scales + _WEIGHT_BYTES * weights)
    return max(computed, fetched) + rates.keep * (scales + _encoded(op))


def _encoded(op: Op) -> float:
    """Bytes of weights in an Ethos-U85's memory.

    They lie there in blocks, for the faster of two decoders, unless these are mostly empty.
    """
    weight = op.operand("weight")
    if op.name == "DEPTHWISE_CONV2D":
        return weight.type.size
    out, *kernel, channels = weight.shape
    phases = math.prod(op.attrs["stride"]) if op.name == "TRANSPOSE_CONV2D" else 1
    strides = op.attrs["stride"] if phases > 1 else (1, 1)
    high, wide = (_eights(-(-size // stride)) for size, stride in zip(kernel, strides))
    elements = math.prod(-(-size // stride) for size, stride in zip(kernel, strides))
    is_long = elements == 1 and channels > _SHORT
    fives = sum(_up(rows * columns, 5) for rows in high for columns in wide)
    each = _up(channels, 64) if is_long else fives * _up(channels, 16)
    blocks, filled = phases * _up(out, 8) * each, _filled(weight)
    return blocks if filled > _FULL * blocks else filled + _EMPTY * (blocks - filled)


def _eights(size: int) -> list[int]:
    """The parts of a kernel along an axis, as an NPU goes through them."""
    return [min(8, size - start) for start in range(0, size, 8)]


def _filled(weight: Value) -> int:
    """How many weights are not 0, as far as that is quickly counted."""
    if weight.const is None or weight.type.size > _COUNTED:
        return weight.type.size
    return int(np.count_nonzero(weight.const.array))


def _rescale(rates: Rates, apart: float, op: Op) -> float:
    """Part of what makes the sums, but for transposed convolutions; otherwise a copy."""
    made, size = op.ins[0].producer, op.outs[0].type.size
    if op.ins[0].dtype in (I32, I48) and made is not None and made.name in _PRODUCTS:
        split = op.attrs["per_channel"] or not rates.load
        return size * apart if split and made.name == "TRANSPOSE_CONV2D" else 0.0
    is_cast = op.ins[0].dtype is I8 and op.outs[0].dtype in (I8, I16)
    return size * rates.copy if is_cast else 0.0


def _turned55(op: Op) -> float:
    """Two axes change places at a time; a last axis is read eight elements at once."""
    shape = op.ins[0].shape
    perms: list[int] = [p for p in op.attrs["perms"] if shape[p] != 1]
    if perms == sorted(perms):
        return 0.0
    ranked = [sorted(perms).index(p) for p in perms]
    swaps = 1 if sum(i != p for i, p in enumerate(ranked)) == 2 else 2
    last = shape[max(perms)]
    if len(merged_axes(shape, perms)[0]) > _AXES:
        return _MIXED55 * op.outs[0].type.size
    size = op.outs[0].type.size * op.ins[0].dtype.bits / 8
    return size * 0.375 * (swaps - 1 + _up(last, 8) / last)


def _turned85(op: Op) -> float:
    """Elements are written one after the other; a row by itself is very slow."""
    shape = op.outs[0].shape
    if len(merged_axes(op.ins[0].shape, op.attrs["perms"])[0]) > _AXES:
        return _MIXED85 * op.outs[0].type.size
    last = next((n for n in reversed(shape) if n != 1), 1)
    rows = math.prod(shape[:-2])
    each = max(0.51, 8 / last) if rows > 1 else max(0.51, 150 / last)
    return op.outs[0].type.size * (op.ins[0].dtype.bits / 8) * each
