"""What TOSA allows and has no C: reasons that the partitioner and the verifier are told."""

from __future__ import annotations

from tosaic.ir.graph import Op
from tosaic.spec import dtypes as d
from tosaic.targets.cortexm.views import C_TYPES

_REFUSED = {"FFT2D", "RFFT2D", "VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE", "CUSTOM"}


def constraint(op: Op) -> str | None:
    """Why an operator has no C; None if it has."""
    if op.name in _REFUSED:
        return "it has no kernel in C"
    for value in (*op.ins, *op.outs):
        if value.dtype not in (*C_TYPES, d.SHAPE):
            more = "; model.float() is compiled in int8 and float32" if value.dtype.is_float else ""
            return f"{value.dtype} has no C{more}"
    return None
