"""Convolutions with equal weight bytes and unequal biases or zero points, one for Vela 5.2.

It encodes weights and biases together, once for all convolutions with equal bytes of weights and
equal scales, strides and dilations, and compares neither biases nor weight zero points. A module
that is used twice has such weights, and so have two layers of ones. Weights that are written
otherwise and mean the same keep the convolutions apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tosaic.ir.build import Builder
from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.spec import dtypes as d
from tosaic.spec.env import Env

_ROWS = {"CONV2D": 1, "DEPTHWISE_CONV2D": 0, "CONV3D": 2}  # the axis of the kernel's rows
_Key = tuple[bytes, tuple[int, ...]]
_Meaning = tuple[bytes, int]


def tell_apart(graph: Graph, env: Env) -> None:
    """Rewrite weights whose bytes an earlier convolution has with another bias or zero point."""
    known: dict[_Key, _Meaning] = {}
    for op in graph.walk():
        if op.name not in _ROWS or not all(v.is_const for v in op.ins[1:3]):
            continue
        for step, rows in _spellings(op):
            array, zero = _written(op, step, rows), _zero(op) + step
            meaning = _array(op.ins[2]).tobytes(), zero
            key = array.tobytes(), tuple(n for n in array.shape if n > 1)
            if known.setdefault(key, meaning) == meaning:
                if step or rows:
                    _write(op, array, zero, rows, env)
                break


def _spellings(op: Op) -> Iterator[tuple[int, int]]:
    """Steps of the zero point for which there is room, then rows of zeros below the kernel."""
    yield 0, 0
    if op.ins[1].dtype is d.I8:
        array, zero, (low, high) = _array(op.ins[1]), _zero(op), d.I8.range
        least, most = min(int(array.min()), zero), max(int(array.max()), zero)
        yield from ((step, 0) for step in range(low - least, high - most + 1) if step)
    yield from ((0, rows) for rows in range(1, 64))


def _written(op: Op, step: int, rows: int) -> Array:
    array = _array(op.ins[1])
    if not rows:
        moved: Array = array + np.asarray(step, array.dtype)
        return moved
    more = [(0, rows if n == _ROWS[op.name] else 0) for n in range(array.ndim)]
    return np.pad(array, more, constant_values=_zero(op))


def _write(op: Op, array: Array, zero: int, rows: int, env: Env) -> None:
    """Give an operator other weights; rows of zeros multiply padding."""
    b = Builder(env)
    op.ins[1] = b.const(array, op.ins[1].dtype)
    op.ins[4] = b.const([zero], op.ins[4].dtype)
    *front, top, bottom, left, right = op.attrs["pad"]
    bottom += rows * op.attrs["dilation"][-2]
    op.attrs = {**op.attrs, "pad": (*front, top, bottom, left, right)}


def _zero(op: Op) -> int:
    return int(_array(op.ins[4])[0])


def _array(value: Value) -> Array:
    assert value.const is not None
    return value.const.array
