"""Rows chosen and written by index."""

from __future__ import annotations

import torch
from torch import Tensor

from tosaic.interp.kernel import Context, Run, kernel
from tosaic.interp.operands import moving, require, specialise, within
from tosaic.ir.graph import Op


def _rows(indices: Tensor, rows: int, reach: int = 1) -> Tensor:
    """Indices into [N * K] rows, once all of them and ``reach - 1`` rows behind them exist."""
    last = rows - reach
    require(within(indices, 0, last), f"an index is outside of 0 to {last}")
    batches = torch.arange(indices.shape[0], dtype=torch.int64)
    return indices + rows * batches[:, None]


@kernel("GATHER")
def gather(op: Op, context: Context) -> Run:
    _, rows, channels = op.ins[0].shape
    shape = op.outs[0].shape

    def run(values: Tensor, indices: Tensor) -> Tensor:
        places = _rows(indices, rows).flatten()
        return values.reshape(-1, channels).index_select(0, places).reshape(shape)

    return moving(op, run)


@kernel("ROW_GATHER")
def row_gather(op: Op, context: Context) -> Run:
    """Each index stands for a run of rows that starts there."""
    _, rows, channels = op.ins[0].shape
    shape = op.outs[0].shape

    def make(row_count: Tensor) -> Run:
        count = int(row_count)
        run_of_rows = torch.arange(count)

        def run(values: Tensor, indices: Tensor) -> Tensor:
            places = (_rows(indices, rows, count)[..., None] + run_of_rows).flatten()
            return values.reshape(-1, channels).index_select(0, places).reshape(shape)

        return moving(op, run)

    return specialise(op, "row_count", make)


@kernel("SCATTER")
def scatter(op: Op, context: Context) -> Run:
    batch, rows, channels = op.ins[0].shape

    def run(values: Tensor, indices: Tensor, update: Tensor) -> Tensor:
        places = _rows(indices, rows).flatten()
        written = torch.zeros(batch * rows, dtype=torch.bool)
        written[places] = True
        require(int(written.sum()) == places.numel(), "two indices write the same row")
        result = values.reshape(-1, channels).clone()
        result[places] = update.reshape(-1, channels)
        return result.reshape(values.shape)

    return moving(op, run)
