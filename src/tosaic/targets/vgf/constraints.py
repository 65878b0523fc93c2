"""Operators that TOSA allows and the model converter refuses, or the emulation computes wrongly."""

from __future__ import annotations

from tosaic.ir.graph import Op


def constraint(op: Op) -> str | None:
    """Why an operator has no place in a ``.vgf``; None if it has."""
    return None
