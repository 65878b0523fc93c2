"""RESIZE: nearest neighbour and bilinear, in whole numbers for integers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tosaic.interp.kernel import TORCH, Context, Run, kernel
from tosaic.interp.operands import moving, specialise
from tosaic.ir.graph import Op


@dataclass(frozen=True, slots=True)
class Axis:
    """For each output place: the input places before and after it, and how far it lies between.

    ``fraction`` counts in units of 1 / ``unit``.
    """

    before: Tensor
    after: Tensor
    fraction: Tensor
    unit: int

    @property
    def nearest(self) -> Tensor:
        return torch.where(2 * self.fraction >= self.unit, self.after, self.before)


def _axis(size: int, out_size: int, unit: int, step: int, offset: int) -> Axis:
    position = torch.arange(out_size) * step + offset
    before = torch.div(position, unit, rounding_mode="floor")
    last = size - 1
    return Axis(before.clamp(0, last), (before + 1).clamp(0, last), position - before * unit, unit)


@kernel("RESIZE")
def resize(op: Op, context: Context) -> Run:
    _, height, width, _ = op.ins[0].shape
    _, out_height, out_width, _ = op.outs[0].shape

    def make(scale: Tensor, offset: Tensor, border: Tensor) -> Run:
        y_unit, y_step, x_unit, x_step = scale.tolist()
        rows = _axis(height, out_height, y_unit, y_step, int(offset[0]))
        columns = _axis(width, out_width, x_unit, x_step, int(offset[1]))
        if op.attrs["mode"] == "NEAREST_NEIGHBOR":
            return moving(op, _nearest(rows.nearest, columns.nearest))
        return _bilinear(op, rows, columns)

    return specialise(op, "scale offset border", make)


def _nearest(rows: Tensor, columns: Tensor) -> Run:
    return lambda x: x.index_select(1, rows).index_select(2, columns)


def _bilinear(op: Op, rows: Axis, columns: Axis) -> Run:
    """Rows first, then columns; int8 with weights to 2^11 twice stays inside of int32."""
    kind = op.outs[0].dtype
    target = TORCH[kind]
    computed = torch.float32 if kind.is_float else target

    def weights(axis: Axis, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        after = axis.fraction.reshape(shape).to(computed)
        return (axis.unit - after, after) if not kind.is_float else (
            1 - after / axis.unit, after / axis.unit
        )  # fmt: skip

    top, bottom = weights(rows, (-1, 1, 1))
    left, right = weights(columns, (-1, 1))

    def run(x: Tensor) -> Tensor:
        x = x.to(computed)
        x = x.index_select(1, rows.before) * top + x.index_select(1, rows.after) * bottom
        x = x.index_select(2, columns.before) * left + x.index_select(2, columns.after) * right
        return x.to(target)

    return run
