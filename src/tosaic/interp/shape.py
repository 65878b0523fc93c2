"""Shape operators (TOSA 1.1); what they compute is a matter of the specification."""

from __future__ import annotations

import torch
from torch import Tensor

from tosaic.errors import Unpredictable, Unsupported
from tosaic.interp.kernel import Context, Run, kernel
from tosaic.ir.graph import Op
from tosaic.spec.ops_shape import Shape, evaluate

_OPERATORS = (
    "ADD_SHAPE", "SUB_SHAPE", "MUL_SHAPE", "MAX_SHAPE", "MIN_SHAPE", "MOD_SHAPE",
    "DIV_CEIL_SHAPE", "DIV_FLOOR_SHAPE", "EXP2_SHAPE", "LOG2_CEIL_SHAPE", "LOG2_FLOOR_SHAPE",
    "CONCAT_SHAPE", "SLICE_SHAPE", "DIM",
)  # fmt: skip


@kernel(*_OPERATORS)
def shape_operator(op: Op, context: Context) -> Run:
    name, attrs = op.name, op.attrs

    def run(*ins: Tensor) -> Tensor:
        args: list[Shape] = [
            tuple(x.shape) if name == "DIM" else tuple(x.reshape(-1).tolist()) for x in ins
        ]
        try:
            return torch.tensor(evaluate(name, args, attrs), dtype=torch.int64)
        except Unsupported as refusal:
            raise Unpredictable(refusal.reason) from None

    return run


@kernel("ASSERT_EQUAL_SHAPE")
def assert_equal_shape(op: Op, context: Context) -> Run:
    """What the verifier has proved of constants holds; there is nothing left to do."""
    return lambda a, b: None
