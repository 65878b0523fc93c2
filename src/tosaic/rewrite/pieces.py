"""Functions of a piece next to the sum that it is a piece of.

A table behind a SLICE is an operation of its own, for which an NPU loads the whole table. Where
the piece itself is added up, the table is part of that operation; pieces of operands are free.
"""

from __future__ import annotations

from tosaic.ir.graph import Op, Value
from tosaic.rewrite.match import Matcher, form
from tosaic.spec.dtypes import I32


@form("TABLE")
def add_pieces(m: Matcher, op: Op) -> Value | None:
    """A table of a piece of a sum as a table of a sum of pieces."""
    piece = m.made_by(op.ins[0], "SLICE") if m.only(op.ins[0]) else None
    rounded = m.made_by(piece.ins[0], "RESCALE") if piece is not None else None
    if piece is None or rounded is None or rounded.attrs["per_channel"]:
        return None
    total = m.made_by(rounded.ins[0], "ADD", "SUB", "MUL")
    if total is None or not m.only(rounded.ins[0]) or total.ins[0].dtype is not I32:
        return None
    operands = []
    for value in total.ins[:2]:
        wide = m.made_by(value, "RESCALE")
        if wide is None or wide.attrs["per_channel"] or value.shape != piece.ins[0].shape:
            return None
        source = m.b.SLICE(wide.ins[0], *piece.ins[1:])
        operands.append(m.b.RESCALE(source, *wide.ins[1:], out=I32, **wide.attrs))
    value = m.b.op(total.name, *operands, *total.ins[2:], out=I32, **total.attrs)
    value = m.b.RESCALE(value, *rounded.ins[1:], out=rounded.outs[0].dtype, **rounded.attrs)
    made: Value = m.b.TABLE(value, *op.ins[1:], out=op.outs[0].dtype)
    return made
