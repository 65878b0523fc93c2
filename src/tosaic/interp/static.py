"""Runs of small integer operators on arrays that are allocated once.

On a few hundred elements PyTorch's call of a kernel takes longer than the kernel, as in a step of
a recurrence. Only operators that are defined for all values that can come take part, so that
nothing is checked at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from torch import Tensor

from tosaic.errors import Unpredictable
from tosaic.interp.bounds import Bounds, Ends
from tosaic.interp.exact import FLOAT64_EXACT
from tosaic.interp.fuse import Group
from tosaic.interp.kernel import KERNELS, Context, constant
from tosaic.interp.onednn import from_carrier
from tosaic.interp.static_kernels import REDUCE, VIEWS, Static, numbers_of
from tosaic.ir.graph import Op, Value
from tosaic.spec import dtypes as d

_LARGEST = 1 << 12  # elements of a value, beyond which PyTorch's kernels are faster
_WEIGHTS = 1 << 17  # elements of a matrix
_LEAST, _ELEMENTS = 8, 1 << 19  # operators of a run, and elements at most
_INTS = {d.I8, d.I16, d.I32, d.I48}
_INT32 = d.I32.range
Defined = Callable[..., bool]
_BOUNDED = {"ADD", "SUB", "ABS", "REDUCE_SUM", "CAST", "MUL"}  # if their results are


def _rescales(rounding: str, is_wide: bool, ends: Ends, *constants: Value) -> bool:
    """Whether a RESCALE of values between such ends is defined for all of them, in int64."""
    multiplier, shift, (input_zp,), (output_zp,) = map(numbers_of, constants)
    last = 62 if rounding == "SINGLE_ROUND" else 31
    if rounding == "INEXACT_ROUND" or multiplier.min() < 0:
        return False
    if shift.min() < 2 or shift.max() > last:
        return False
    peak = max(abs(end - int(input_zp)) for end in ends)
    half = 1 << int(shift.min()) - 1
    if is_wide and peak >= half:
        return False
    if peak * int(multiplier.max()) + (1 << int(shift.max())) >= 1 << 62:
        return False
    scaled = [(peak * int(m) >> int(s)) + 1 for m, s in zip(multiplier, shift)]
    return max(scaled) + abs(int(output_zp)) <= _INT32[1]


def takes(op: Op, bounds: Bounds, is_defined: Defined = _rescales) -> bool:
    """Whether an operator can be part of such a run: small, on integers, defined for all values."""
    if len(op.outs) != 1 or op.regions:
        return False
    values = [v for v in (*op.ins, *op.outs) if v.dtype is not d.SHAPE]
    if any(v.dtype not in _INTS for v in values) or not all(op.outs[0].shape):
        return False
    if max(v.type.size for v in (*op.outs, *op.ins[:1])) > _LARGEST:
        return False
    if op.name == "RESCALE":
        return _is_defined(op, bounds, is_defined)
    if op.name in ("CONV2D", "MATMUL"):
        return _is_product(op, bounds)
    if op.name in VIEWS or op.name in ("CONCAT", "CLAMP", "MAXIMUM", "MINIMUM") or (
        op.name in REDUCE and op.name not in _BOUNDED
    ):  # fmt: skip
        return all(v.is_const for v in op.ins if v.dtype is d.SHAPE)
    if op.name == "TABLE":
        return op.ins[1].is_const and (op.ins[0].dtype is d.I8 or _is_smooth(op.ins[1]))
    return op.name in _BOUNDED and bounds.holds(op)


def _is_smooth(table: Value) -> bool:
    assert table.const is not None
    return int(np.abs(np.diff(table.const.array.astype(np.int64))).max()) <= d.I16.range[1]


def _is_defined(op: Op, bounds: Bounds, is_defined: Defined) -> bool:
    attrs = op.attrs
    if attrs["input_unsigned"] or attrs["output_unsigned"] or not all(
        v.is_const for v in op.ins[1:]
    ):  # fmt: skip
        return False
    rounding, is_wide = str(attrs["rounding_mode"]), bool(attrs["scale32"])
    return is_defined(rounding, is_wide, bounds.of(op.ins[0]), *op.ins[1:])


def _is_product(op: Op, bounds: Bounds) -> bool:
    """A product of matrices whose sums fit their accumulators; tells their bounds."""
    a, b = op.ins[:2]
    points = op.ins[3:5] if op.name == "CONV2D" else op.ins[2:4]
    if not all(v.is_const for v in points) or b.type.size > _WEIGHTS:
        return False
    bias = 0
    if op.name == "CONV2D":
        plain = b.shape[1:3] == (1, 1) and not any(op.attrs["pad"])
        if not plain or set(op.attrs["stride"]) != {1} or not (b.is_const and op.ins[2].is_const):
            return False
        bias = int(np.abs(numbers_of(op.ins[2])).max())
    peaks = [max(abs(end - int(numbers_of(zp)[0])) for end in bounds.of(v))
             for v, zp in zip((a, b), points)]  # fmt: skip
    most = peaks[0] * peaks[1] * a.shape[-1] + bias
    if most >= FLOAT64_EXACT or most > op.outs[0].dtype.range[1]:
        return False
    bounds.setdefault(op.outs[0], (-most, most))
    return True


def static_runs(found: Sequence[Group], bounds: Bounds) -> list[Group]:
    """Groups of operators in their order, with those in a row that are small as one."""
    made, run, size = list[Group](), list[Group](), 0
    is_defined = cache(_rescales)  # the steps of a recurrence have one set of constants
    for group in found:
        taken = group.kind in ("", "convolution") and all(
            takes(op, bounds, is_defined) for op in group.ops
        )
        if not taken or size > _ELEMENTS:
            made += _joined(run)
            run, size = [], 0
        if taken:
            run.append(group)
            size += sum(op.outs[0].type.size for op in group.ops)
        else:
            made.append(group)
    return made + _joined(run)


def _joined(run: list[Group]) -> list[Group]:
    ops = tuple(op for group in run for op in group.ops)
    return [Group("static", ops)] if len(ops) >= _LEAST else run


class StaticRun:
    """The kernel of such a run: prepared when it is first called."""

    def __init__(self, group: Group, context: Context, outs: Sequence[Value]) -> None:
        self._group, self._context, self._outs = group, context, outs
        self._kernels: Static | None = None
        self._lock = Lock()

    def __call__(self, *ins: Tensor) -> list[Tensor]:
        if not self._lock.acquire(blocking=False):  # another thread works on these arrays
            return self._one_by_one(ins)
        try:
            if self._kernels is None:
                group = self._group
                self._kernels = Static(group.ops, self._context, group.ins, self._outs)
            return self._kernels(*ins)
        except Unpredictable:  # of a table, for a number that need not come
            return self._one_by_one(ins)
        finally:
            self._lock.release()

    def _one_by_one(self, ins: Sequence[Tensor]) -> list[Tensor]:
        known: dict[Value, Any] = dict(zip(self._group.ins, map(from_carrier, ins)))
        for op in self._group.ops:
            given = (known[v] if v in known else constant(v) for v in op.ins)
            known[op.outs[0]] = KERNELS[op.name](op, self._context)(*given)
        return [known[v] for v in self._outs]
