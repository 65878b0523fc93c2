"""Dilated convolutions without dilation: rows and columns of one phase are made adjacent.

Rows that a kernel sees together are neighbours when the rows of one gap lie side by side, which is
another shape of the same memory. Columns are laid beside one another as channels, copies of them.
"""

from __future__ import annotations

from tosaic.ir.graph import Op, Value
from tosaic.rewrite.epilogue import FUNCTIONS, chain
from tosaic.rewrite.match import Matcher, form, one_number


@form("CONV2D", *FUNCTIONS)
def close_gaps(m: Matcher, op: Op) -> Value | None:
    """A kernel of one column without gaps, over rows of several images side by side."""
    found = chain(m, op, "CONV2D")
    if found is None:
        return None
    conv, *functions = found
    weight, zero = conv.operand("weight"), one_number(conv.operand("input_zp"))
    if max(conv.attrs["dilation"]) < 2 or conv.attrs["stride"] != (1, 1) or zero is None:
        return None
    if not weight.is_const or not conv.ins[0].dtype.is_int:
        return None
    (batch, high, wide, out), (_, rows, columns, channels) = conv.outs[0].shape, weight.shape
    (gap, across), (top, bottom, left, right) = conv.attrs["dilation"], conv.attrs["pad"]
    x = conv.ins[0]
    if rows == x.shape[1] == high == 1:  # one row is as good as one column
        (gap, across), (rows, columns) = (across, gap), (columns, rows)
        (high, wide), (top, bottom, left, right) = (wide, high), (left, right, top, bottom)
        x = m.b.RESHAPE(x, m.b.shape((batch, x.shape[2], 1, channels)))
    height = x.shape[1]
    whole = all(n % gap == 0 for n in (top, bottom, height))
    after = 0 if whole else -(height + top + bottom) % gap
    around = [(0, 0) if whole else (top, bottom + after), (left, right)]
    if any(map(any, around)):
        sizes = (0, 0, *around[0], *around[1], 0, 0)
        x = m.b.PAD(x, m.b.shape(sizes), m.b.const([int(zero)], x.dtype))
    beside = _beside(m, x, columns, across, wide)
    flat = m.b.shape((batch, x.shape[1] // gap, gap * wide, columns * channels))
    shape = (out, rows, 1, columns * channels)
    kernel = m.b.remade(weight, lambda a: a.reshape(shape), shape)
    edges = (top // gap, bottom // gap) if whole else (0, 0)
    value = m.b.CONV2D(
        m.b.RESHAPE(beside, flat), kernel, *conv.ins[2:], out=conv.outs[0].dtype,
        **{**conv.attrs, "pad": (*edges, 0, 0), "dilation": (1, 1)},
    )  # fmt: skip
    for function in functions:
        value = m.b.op(
            function.name, value, *function.ins[1:], out=function.outs[0].dtype, **function.attrs
        )
    made = m.b.RESHAPE(value, m.b.shape((batch, high + after, wide, out)))
    if after:
        made = m.b.SLICE(made, m.b.shape((0,) * 4), m.b.shape((batch, high, wide, out)))
    return (
        made if made.shape == op.outs[0].shape else m.b.RESHAPE(made, m.b.shape(op.outs[0].shape))
    )


def _beside(m: Matcher, x: Value, count: int, gap: int, wide: int) -> Value:
    """The columns that a kernel sees together, as channels."""
    if count == 1:
        return x
    size = m.b.shape((*x.shape[:2], wide, x.shape[3]))
    parts = [m.b.SLICE(x, m.b.shape((0, 0, index * gap, 0)), size) for index in range(count)]
    return m.b.CONCAT(*parts, axis=3)
