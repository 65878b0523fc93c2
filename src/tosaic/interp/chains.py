"""The fused kernels of the interpreter: convolution with its RESCALE, and int8 pairs by table."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from tosaic.errors import Unpredictable
from tosaic.interp import products
from tosaic.interp.convert import rescaler
from tosaic.interp.fuse import FUSED, Group
from tosaic.interp.fused import ConvRescale, Table
from tosaic.interp.kernel import KERNELS, Context, Run, constant
from tosaic.ir.graph import Op, Value
from tosaic.spec.dtypes import I8


def _constants(op: Op) -> bool:
    return all(v.is_const for v in op.ins[1:])


def _clamp(group: Group) -> tuple[int, int] | None:
    last = group.ops[-1]
    return (last.attrs["min_val"], last.attrs["max_val"]) if last.name == "CLAMP" else None


def convolution(group: Group, context: Context, carrier: bool) -> Run | None:
    """CONV → RESCALE → CLAMP; declined where a weight or a scale is computed at run time."""
    conv, rescale = group.ops[0], group.ops[1]
    if not (_constants(conv) and _constants(rescale)) or not conv.ins[0].dtype.is_int:
        return None
    weights = [_present(constant(v)) for v in conv.ins[1:]]
    ready = products.integer_convolution(conv, *weights)
    try:
        behind = rescaler(rescale, clamp=_clamp(group), interval=ready.interval)
    except Unpredictable:  # no scale of TOSA's: an error of the run, and RESCALE's own
        return None
    return ConvRescale(ready, behind, torch.uint8 if carrier else torch.int8)


def pairwise(group: Group, context: Context, carrier: bool) -> Run | None:
    """An elementwise operation between int8 tensors: all 65,536 results, made once."""
    ins = group.ins
    if not 1 <= len(ins) <= 2 or any(v.dtype is not I8 for v in (*ins, group.result)):
        return None
    if any(op.name == "RESCALE" and _channelwise(op) for op in group.ops):
        return None
    if any(v.is_const and math.prod(v.shape) != 1 for op in group.ops for v in op.ins):
        return None  # a constant that differs from element to element is no function of x alone
    shape = group.result.shape
    function = _Scalars(group, context)
    try:
        table = Table(function, len(ins), torch.uint8 if carrier else torch.int8)
        table.prepare()
    except Unpredictable:  # some pair overflows: whether one comes shows at run time only
        return None
    return partial(_expanded, table, shape)


def _channelwise(op: Op) -> bool:
    return bool(op.attrs["per_channel"]) or not _constants(op)


def _expanded(table: Table, shape: tuple[int, ...], *operands: Tensor) -> Tensor:
    return table(*(x if x.shape == shape else x.expand(shape) for x in operands))


class _Scalars:
    """The group as a function of flat tensors; constants of one element stay as they are."""

    def __init__(self, group: Group, context: Context) -> None:
        self.group = group
        self.runs = [KERNELS[op.name](op, context) for op in group.ops]

    def __call__(self, *operands: Tensor) -> Tensor:
        values: dict[Value, Tensor] = dict(zip(self.group.ins, operands, strict=True))
        for op, run in zip(self.group.ops, self.runs, strict=True):
            values[op.outs[0]] = run(*(self._value(values, v) for v in op.ins))
        return values[self.group.result]

    def _value(self, values: dict[Value, Tensor], value: Value) -> Tensor:
        return values[value] if value in values else _present(constant(value)).reshape(-1)


def _present(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


FUSED["convolution"] = convolution
FUSED["pairwise"] = pairwise
