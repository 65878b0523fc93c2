"""Reductions along one axis, and ARGMAX."""

from __future__ import annotations

import torch
from torch import Tensor

from tosaic.interp.kernel import TORCH, Context, Run, kernel
from tosaic.interp.operands import in_float32, require
from tosaic.ir.graph import Op
from tosaic.spec import dtypes as d


@kernel("REDUCE_ALL")
def reduce_all(op: Op, context: Context) -> Run:
    axis = op.attrs["axis"]
    return lambda x: x.all(axis, keepdim=True)


@kernel("REDUCE_ANY")
def reduce_any(op: Op, context: Context) -> Run:
    axis = op.attrs["axis"]
    return lambda x: x.any(axis, keepdim=True)


def _extreme(op: Op, compute: Run, neutral: float) -> Run:
    """The largest or smallest element; NaNs win, or lose to everything else."""
    axis = op.attrs["axis"]
    if not op.outs[0].dtype.is_float or op.attrs["nan_mode"] != "IGNORE":
        return lambda x: compute(x, axis, keepdim=True)

    def run(x: Tensor) -> Tensor:
        nan = x.isnan()
        found: Tensor = compute(torch.where(nan, neutral, x), axis, keepdim=True)
        return torch.where(nan.all(axis, keepdim=True), torch.nan, found)

    return run


@kernel("REDUCE_MAX")
def reduce_max(op: Op, context: Context) -> Run:
    return _extreme(op, torch.amax, -torch.inf)


@kernel("REDUCE_MIN")
def reduce_min(op: Op, context: Context) -> Run:
    return _extreme(op, torch.amin, torch.inf)


@kernel("REDUCE_PRODUCT")
def reduce_product(op: Op, context: Context) -> Run:
    axis = op.attrs["axis"]
    return in_float32(op, lambda x: x.prod(axis, keepdim=True))


@kernel("REDUCE_SUM")
def reduce_sum(op: Op, context: Context) -> Run:
    axis, kind = op.attrs["axis"], op.outs[0].dtype
    if kind.is_float:
        return in_float32(op, lambda x: x.sum(axis, keepdim=True))
    if op.outs[0] in context.bounds:
        return lambda x: x.sum(axis, keepdim=True, dtype=x.dtype)
    length, highest = op.ins[0].shape[axis], kind.range[1]

    def run(x: Tensor) -> Tensor:
        low, high = torch.aminmax(x)
        if max(-int(low), int(high)) * length > highest:
            require(_stays_inside(x, axis, kind), "a partial sum overflows")
        return x.sum(axis, keepdim=True, dtype=x.dtype)

    return run


def _stays_inside(x: Tensor, axis: int, kind: d.DType) -> bool:
    """Whether every partial sum in the order of the axis fits, as TOSA demands."""
    before = x.cumsum(axis, dtype=x.dtype)  # wraps where a step overflows, so look at each step
    total = before.narrow(axis, 0, x.shape[axis] - 1)
    term, result = x.narrow(axis, 1, x.shape[axis] - 1), before.narrow(axis, 1, x.shape[axis] - 1)
    return bool((((total ^ result) & (term ^ result)) >= 0).all())


@kernel("ARGMAX")
def argmax(op: Op, context: Context) -> Run:
    """The first largest element; torch, too, lets the first NaN win."""
    axis, target, kind = op.attrs["axis"], TORCH[op.outs[0].dtype], op.ins[0].dtype
    narrow_float = kind.is_float and kind.bits == 8
    ignore = kind.is_float and op.attrs["nan_mode"] == "IGNORE"

    def run(x: Tensor) -> Tensor:
        if narrow_float:
            x = x.float()
        if not ignore:
            return x.argmax(axis).to(target)
        number = ~x.isnan()
        largest, place = torch.where(number, x, -torch.inf).max(axis)
        # -inf may stand for a NaN there: then every number is -inf, and the first one counts
        return torch.where(largest == -torch.inf, number.to(torch.int8).argmax(axis), place).to(
            target
        )

    return run
