"""Operators that TOSA allows and the model converter refuses, or changes.

What is refused otherwise is not in the environment at all: control flow, variables, int64 and
INEXACT_ROUND. A graph that the converter fails on nevertheless, or of which the file holds another
one, is refused when it is read back.
"""

from __future__ import annotations

import numpy as np

from tosaic.ir.graph import Op, Value
from tosaic.spec.dtypes import BOOL


def constraint(op: Op) -> str | None:
    """Why an operator has no place in a ``.vgf``; None if it has."""
    if op.name == "MUL" and op.ins[0].dtype.is_float and any(map(_is_zero, op.ins[:2])):
        return "the model converter drops a product with zero, and infinities and NaN with it"
    if op.name in ("GATHER", "SCATTER") and op.ins[0].dtype is BOOL:
        return "the model converter does not gather or scatter booleans"
    return None


def _is_zero(value: Value) -> bool:
    return value.is_const and value.const is not None and not np.any(value.const.array)
