"""Space-to-depth: columns of an image become channels, which fills the multipliers.

Vector units multiply many input channels at once. An image [H, W, C] is in memory what
[H, W / n, n · C] is; a kernel over the latter has zeros where it had no weights, and where it
moves by less than n columns it gives several results at once, side by side as channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from tosaic.errors import Unsupported
from tosaic.ir.conv_kernels import Fold, fold_of
from tosaic.ir.graph import Op, Value
from tosaic.rewrite.epilogue import FUNCTIONS, again, chain, repeated, taken
from tosaic.rewrite.match import Matcher, form, one_number

_MOST_CHANNELS = 128  # beyond which there is nothing to gain
_MOST_COLUMNS = 32
_TRIED = 4  # folds, of those that formulas find cheapest


def _folds(conv: Op) -> Iterator[Fold]:
    _, _, width, channels = conv.ins[0].shape
    kernel, stride = conv.operand("weight").shape[2], conv.attrs["stride"][1]
    pads = tuple(conv.attrs["pad"][2:])
    for results in range(1, min(_MOST_COLUMNS, _MOST_CHANNELS // channels) // stride + 1):
        found = fold_of(width, kernel, stride, pads, results) if results * stride > 1 else None
        if found is not None:
            yield found


@form("CONV2D", *FUNCTIONS)
def fold_columns(m: Matcher, op: Op) -> Iterator[Value]:
    """Folds of a convolution, with all that follows its sums: those that cost least."""
    found = chain(m, op, "CONV2D")
    if found is None or m.cost is None:
        return
    conv, *functions = found
    weight, zero = conv.operand("weight"), one_number(conv.operand("weight_zp"))
    if not (weight.is_const and conv.operand("bias").is_const) or zero is None:
        return
    if conv.attrs["dilation"][1] != 1 or not conv.ins[0].dtype.is_int:
        return
    costs = {}
    for fold in _folds(conv):
        with m.b.scratch(), suppress(Unsupported):
            tried = _folded(m, conv, fold, int(zero)).producer
            if tried is not None and (cost := m.cost(tried)) < m.cost(conv):
                costs[fold] = cost
    for fold in sorted(costs, key=costs.__getitem__)[:_TRIED]:
        channels = repeated(weight.shape[0], fold.results)
        with suppress(Unsupported):
            value = again(m, _folded(m, conv, fold, int(zero)), functions, channels)
            yield m.b.RESHAPE(value, m.b.shape(op.outs[0].shape)) if fold.results > 1 else value


def _folded(m: Matcher, conv: Op, fold: Fold, fill: int) -> Value:
    """The sums of a convolution whose columns are folded."""
    (batch, height, width, channels), weight = conv.ins[0].shape, conv.operand("weight")
    down, right = conv.attrs["stride"]
    shape = (fold.results * weight.shape[0], weight.shape[1], fold.blocks, fold.columns * channels)
    kernel = m.b.remade(weight, lambda a: fold.kernel(a, right, fill), shape)
    bias = taken(m, conv.operand("bias"), repeated(weight.shape[0], fold.results))
    blocks = m.b.shape((batch, height, width // fold.columns, fold.columns * channels))
    pads = (*conv.attrs["pad"][:2], fold.before, fold.after)
    return m.b.CONV2D(
        m.b.RESHAPE(conv.ins[0], blocks, loc=conv.loc), kernel, bias, *conv.ins[3:],
        out=conv.outs[0].dtype, loc=conv.loc,
        **{**conv.attrs, "pad": pads, "stride": (down, 1)},
    )  # fmt: skip
