"""Folds PAD into the padding of convolutions and pools."""

from __future__ import annotations

import numpy as np

from tosaic.ir.graph import Op, Value
from tosaic.rewrite.layout import groups_of
from tosaic.rewrite.match import Matcher, form, one_number, rewrite, sizes
from tosaic.rewrite.value_bounds import ends
from tosaic.spec.dtypes import I8, I32


def _around(m: Matcher, op: Op) -> tuple[Op, list[int]] | None:
    """The PAD before an operator and how much it adds to its spatial axes, if to no others."""
    pad = m.made_by(op.ins[0], "PAD")
    amounts = sizes(pad.ins[1]) if pad is not None else None
    if pad is None or amounts is None or any(amounts[:2]) or any(amounts[-2:]):
        return None
    return pad, amounts[2:-2]


@rewrite("RESHAPE")
def reshape_first(m: Matcher, op: Op) -> Value | None:
    """A PAD behind the RESHAPE that it stands before, next to whoever may take it in."""
    pad = m.made_by(op.ins[0], "PAD") if m.only(op.ins[0]) else None
    amounts = sizes(pad.ins[1]) if pad is not None else None
    groups = groups_of(op.ins[0].shape, op.outs[0].shape)
    if pad is None or amounts is None or groups is None:
        return None
    shape = list(op.outs[0].shape)
    moved = [0] * 2 * len(shape)
    for before, after in groups:
        if not any(any(amounts[2 * axis : 2 * axis + 2]) for axis in before):
            continue
        wide = [axis for axis in after if shape[axis] != 1]
        if len(before) != 1 or len(wide) != 1:
            return None
        (old,), (new,) = before, wide
        moved[2 * new : 2 * new + 2] = amounts[2 * old : 2 * old + 2]
        shape[new] = pad.ins[0].shape[old]
    whole = m.b.RESHAPE(pad.ins[0], m.b.shape(shape))
    made: Value = m.b.PAD(whole, m.b.shape(moved), pad.ins[2])
    return made


@rewrite("SLICE")
def pad_less(m: Matcher, op: Op) -> Value | None:
    """A padded value that is cut gets less padding, and is itself cut by what is more than that."""
    pad = m.made_by(op.ins[0], "PAD") if m.only(op.ins[0]) else None
    start, size = sizes(op.ins[1]), sizes(op.ins[2])
    amounts = sizes(pad.ins[1]) if pad is not None else None
    if pad is None or amounts is None or start is None or size is None:
        return None
    whole, left, kept, borders = pad.ins[0], [], [], []
    for axis, length in enumerate(whole.shape):
        first = start[axis] - amounts[2 * axis]  # where the piece begins in what is padded
        low, high = max(first, 0), min(first + size[axis], length)
        left.append(low)
        kept.append(high - low)
        borders += [low - first, first + size[axis] - high]
    if min(kept) <= 0:
        return None
    if kept != list(whole.shape):
        whole = m.b.SLICE(whole, m.b.shape(left), m.b.shape(kept))
    made: Value = m.b.PAD(whole, m.b.shape(borders), pad.ins[2]) if any(borders) else whole
    return made


@form("PAD")
def pad_channels(m: Matcher, op: Op) -> Value | None:
    """Channels of one number as sums of nothing in a layer that gives the others as they are."""
    x, amounts, number = op.ins[0], sizes(op.ins[1]), one_number(op.ins[2])
    if x.dtype is not I8 or x.type.rank != 4 or amounts is None or number is None:
        return None
    if any(amounts[:-2]) or x.shape[0] > 1:
        return None
    ones = np.eye(op.outs[0].shape[-1], x.shape[-1], -amounts[-2])
    sums = m.b.layer("CONV2D", x, ones[:, None, None], int(number), m.b.const([0] * len(ones), I32))
    return m.b.levels(sums, I8, zero=int(number))


@rewrite("CONV2D", "CONV3D", "DEPTHWISE_CONV2D")
def pad_convolution(m: Matcher, op: Op) -> Value | None:
    """Zeros round the values: the zero point, which a convolution pads with itself."""
    found = _around(m, op)
    if found is None:
        return None
    pad, more = found
    number = one_number(pad.ins[2])
    if number is None or number != one_number(op.operand("input_zp")):
        return None
    attrs = {**op.attrs, "pad": [a + b for a, b in zip(op.attrs["pad"], more)]}
    return m.b.op(op.name, pad.ins[0], *op.ins[1:], **attrs)


@rewrite("MAX_POOL2D")
def pad_maximum(m: Matcher, op: Op) -> Value | None:
    """A padding that no value is below never wins, and every window keeps a value."""
    found = _around(m, op)
    if found is None:
        return None
    pad, more = found
    number = one_number(pad.ins[2])
    if number is None or not number <= ends(m, pad.ins[0])[0]:
        return None
    total = [a + b for a, b in zip(op.attrs["pad"], more)]
    rows, columns = op.attrs["kernel"]
    if max(total[:2]) >= rows or max(total[2:]) >= columns:
        return None
    return m.b.MAX_POOL2D(pad.ins[0], **{**op.attrs, "pad": total})
