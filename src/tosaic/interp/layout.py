"""Kernels that move elements: views where possible, gathers of rows otherwise."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.interp.kernel import Context, Run, kernel
from tosaic.interp.operands import as_bits, moving, require, specialise, within
from tosaic.ir.graph import Op


@kernel("IDENTITY")
def identity(op: Op, context: Context) -> Run:
    return lambda x: x


@kernel("CONCAT")
def concat(op: Op, context: Context) -> Run:
    axis = op.attrs["axis"]
    return moving(op, lambda *parts: torch.cat(parts, axis))


@kernel("RESHAPE")
def reshape(op: Op, context: Context) -> Run:
    shape = op.outs[0].shape
    return lambda x, _: x.reshape(shape)


@kernel("REVERSE")
def reverse(op: Op, context: Context) -> Run:
    axis = op.attrs["axis"]
    return moving(op, lambda x: x.flip(axis))


@kernel("TRANSPOSE")
def transpose(op: Op, context: Context) -> Run:
    perms = op.attrs["perms"]
    return lambda x: x.permute(perms)


@kernel("TILE")
def tile(op: Op, context: Context) -> Run:
    counts = [after // before for before, after in zip(op.ins[0].shape, op.outs[0].shape)]
    return moving(op, lambda x, _: x.repeat(counts))


@kernel("SLICE")
def slice_(op: Op, context: Context) -> Run:
    size, whole = op.outs[0].shape, op.ins[0].shape

    def make(start: Tensor) -> Run:
        places: list[int] = start.tolist()
        cuts = [
            (axis, places[axis], length)
            for axis, length in enumerate(size)
            if length != whole[axis]
        ]

        def run(x: Tensor, _: Tensor) -> Tensor:
            for axis, place, length in cuts:
                x = x.narrow(axis, place, length)
            return x

        return run

    return specialise(op, "start", make)


@kernel("PAD")
def pad(op: Op, context: Context) -> Run:
    def make(padding: Tensor, pad_const: Tensor) -> Run:
        # torch wants the last axis first; [before, after] pairs keep their order
        pairs = padding.reshape(-1, 2).flip(0).flatten().tolist()
        value = as_bits(pad_const).item()
        return moving(op, lambda x: F.pad(x, pairs, value=value))

    return specialise(op, "padding pad_const", make)


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
