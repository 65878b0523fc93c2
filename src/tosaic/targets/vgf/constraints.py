"""Operators that TOSA allows and the model converter refuses.

What is refused otherwise is not in the environment at all: control flow, variables, int64 and
INEXACT_ROUND. A graph that the converter fails on nevertheless, or of which the file holds another
one, is refused when it is read back.
"""

from __future__ import annotations

from tosaic.ir.graph import Op
from tosaic.spec.dtypes import BOOL


def constraint(op: Op) -> str | None:
    """Why an operator has no place in a ``.vgf``; None if it has."""
    if op.name in ("GATHER", "SCATTER") and op.ins[0].dtype is BOOL:
        return "the model converter does not gather or scatter booleans"
    return None
