"""Fuses a TABLE of a slice, or of a shared sum, with an ADD or MUL of its own.

A table behind a SLICE, or of a sum that others read as well, is an operation of its own, for which
the whole table is loaded. Where the piece itself is added up, or the sum multiplied by 1, the
table is part of that operation; pieces of operands are free.
"""

from __future__ import annotations

import numpy as np

from tosaic.ir.graph import Op, Value
from tosaic.rewrite.match import Matcher, form, rewrite
from tosaic.spec.dtypes import I8, I16, I32

_FEW = {I8: 256, I16: 2048}  # elements that are added in less time than a table is loaded in


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
    return m.b.TABLE(value, *op.ins[1:], out=op.outs[0].dtype)


@rewrite("TABLE")
def table_again(m: Matcher, op: Op) -> Value | None:
    """A table of few sums that others read, too, as a table of their product with 1."""
    x = op.ins[0]
    if not m.forms or not m.traits.loads_tables or op.outs[0].type.size > _FEW.get(x.dtype, 0):
        return None
    rounded = m.made_by(x, "RESCALE")
    if rounded is None or m.only(x) or rounded.attrs["per_channel"]:
        return None
    total = m.made_by(rounded.ins[0], "ADD", "SUB", "MUL")
    if total is None or total.outs[0].dtype is not I32:
        return None
    zero = m.b.const([0], I8)
    one = m.b.const(np.ones((1,) * x.type.rank), x.dtype)
    unit = m.b.const([1 << 30], I32), m.b.const([30], I8)
    zeros = m.b.const([0], I32), m.b.const([0], x.dtype)
    value = m.b.RESCALE(m.b.MUL(x, one, zero, out=I32), *unit, *zeros, out=x.dtype, **rounded.attrs)
    return m.b.TABLE(value, *op.ins[1:], out=op.outs[0].dtype)
