"""Multiply-accumulates of convolutions and matrix products."""

from __future__ import annotations

from collections.abc import Callable

from tosaic.ir.graph import Op


def macs(op: Op) -> int:
    """Multiplications of a convolution or a matrix product."""
    known = _MACS.get(op.name)
    return known(op) if known is not None and op.outs else 0


def _of_convolution(op: Op) -> int:
    weight = op.ins[2 if op.name == "CONV2D_BLOCK_SCALED" else 1].type
    return op.outs[0].type.size * weight.size // weight.shape[0]


def _of_matmul(op: Op) -> int:
    return op.outs[0].type.size * op.ins[0].shape[2]


def _of_depthwise(op: Op) -> int:
    weight = op.operand("weight").shape
    return op.outs[0].type.size * weight[0] * weight[1]


def _of_transposed(op: Op) -> int:
    return op.ins[0].type.size * op.operand("weight").type.size // op.ins[0].shape[-1]


_MACS: dict[str, Callable[[Op], int]] = {
    **dict.fromkeys(("CONV2D", "CONV3D", "CONV2D_BLOCK_SCALED"), _of_convolution),
    **dict.fromkeys(("MATMUL", "MATMUL_T", "MATMUL_T_BLOCK_SCALED"), _of_matmul),
    "TRANSPOSE_CONV2D": _of_transposed,
    "DEPTHWISE_CONV2D": _of_depthwise,
}
