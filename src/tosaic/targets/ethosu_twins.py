"""Convolutions with equal weights and other biases, which Vela 5.2 takes for one.

It encodes weights and biases together, once for all convolutions with the same weights and scales,
and does not look at the biases. A module that is used twice has such, as each use corrects its own.
Weights that are written otherwise and mean the same keep them apart.
"""

from __future__ import annotations

import numpy as np

from tosaic.ir.build import Builder
from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.spec import dtypes as d
from tosaic.spec.env import Env

_CONVOLUTIONS = {"CONV2D", "DEPTHWISE_CONV2D", "CONV3D", "TRANSPOSE_CONV2D"}
_ROWS = {"CONV2D": 1, "DEPTHWISE_CONV2D": 0}  # the axis of the kernel's rows


def tell_apart(graph: Graph, env: Env) -> None:
    """Give convolutions that share weights, but not the bias, weights that differ in writing."""
    found: dict[Value, dict[bytes, list[Op]]] = {}
    for op in graph.ops:
        for region in op.regions:
            tell_apart(region, env)
        if op.name in _CONVOLUTIONS and all(v.is_const for v in op.ins[1:3]):
            bias = _array(op.ins[2]).tobytes()
            found.setdefault(op.ins[1], {}).setdefault(bias, []).append(op)
    for weight, twins in found.items():
        if len(twins) > 1:
            _write_otherwise(weight, list(twins.values())[1:], env)


def _write_otherwise(weight: Value, twins: list[list[Op]], env: Env) -> None:
    """Another zero point for as many as there is room for; rows of zeros for the others."""
    array = _array(weight)
    zero = int(_array(twins[0][0].ins[4])[0])
    low, high = d.I8.range
    steps = [n for n in range(low - int(array.min()), high - int(array.max()) + 1) if n]
    steps = [n for n in steps if low <= zero + n <= high] if weight.dtype is d.I8 else []
    for number, ops in enumerate(twins):
        b = Builder(env)
        if number < len(steps):
            step = steps[number]
            moved = b.const(array + np.asarray(step, array.dtype), weight.dtype)
            for op in ops:
                op.ins[1], op.ins[4] = moved, b.const([zero + step], op.ins[4].dtype)
            continue
        for op in ops:
            if op.name in _ROWS:
                _lengthen(b, op, array, number - len(steps) + 1, zero)


def _lengthen(b: Builder, op: Op, array: Array, rows: int, zero: int) -> None:
    """Rows that multiply padding by nothing at the end of the kernel."""
    axis = _ROWS[op.name]
    more = [(0, rows if n == axis else 0) for n in range(array.ndim)]
    op.ins[1] = b.const(np.pad(array, more, constant_values=zero), op.ins[1].dtype)
    top, bottom, *sides = op.attrs["pad"]
    bottom += rows * op.attrs["dilation"][0]
    op.attrs = {**op.attrs, "pad": (top, bottom, *sides)}


def _array(value: Value) -> Array:
    assert value.const is not None
    return value.const.array
