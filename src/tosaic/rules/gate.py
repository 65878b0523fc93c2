"""GLU: one half of the channels gates the other."""

from __future__ import annotations

import torch

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.data_movement import piece
from tosaic.lowering.builder import Lowering
from tosaic.rules.elementwise import mul
from tosaic.spec import dtypes as d

_FULL = {d.I8: Quant(1 / 255, -128), d.I16: Quant(1 / 32767)}  # what a gate is quantized to


@rule(
    "aten.glu.default",
    samples=[
        Sample(((4, 8),), steps16=2),
        Sample(((2, 6, 3),), (1,), steps16=2),
        Sample(((2, 4, 3, 3),), (-3,), steps16=2),
    ],
)
def glu(b: Lowering, self: Value, dim: int = -1) -> Value:
    """The first half times the sigmoid of the second."""
    axis = dim % self.type.rank
    half = self.shape[axis] // 2
    value, gate = piece(b, self, axis, 0, half), piece(b, self, axis, half, 2 * half)
    if gate.quant is None:
        return mul(b, value, b.SIGMOID(gate))
    if gate.dtype not in _FULL:
        raise Unsupported("a gate of integers is int8 or int16")
    with b.wanting((_FULL[gate.dtype], gate.dtype)):
        share = b.table(gate, torch.sigmoid)
    return mul(b, value, share)
