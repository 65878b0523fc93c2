"""Polyphase transposed convolution: one plain convolution for each phase of the stride.

Of the results at every s-th row each needs the same rows of the kernel, and none of the zeros that
a device would put between the elements. The columns of a stride are channels side by side, which is
how they lie in memory, and rows follow one another as the parts of a CONCAT along the columns do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from tosaic.errors import Unsupported
from tosaic.ir.conv_kernels import Phase, kernel_of, phases, together
from tosaic.ir.graph import Op, Value
from tosaic.rewrite.epilogue import FUNCTIONS, again, chain, repeated, taken
from tosaic.rewrite.match import Matcher, form, one_number, rewrite

_MOST = 4  # times the products, those with zeros in the kernels of phases included


@rewrite(*FUNCTIONS)
def convolve_quickly(m: Matcher, op: Op) -> Value | None:
    """The phases with the fewest products, for a target whose transposed convolutions are slow."""
    found = _constant_chain(m, op) if m.traits.deconvolution == "slow" else None
    if found is None or not found[0].ins[0].dtype.is_int:
        return None
    conv, functions, zero = found
    start = min(range(conv.attrs["stride"][1]), key=partial(_products, conv))
    (_, height, width, _), (_, *kernel, _) = conv.ins[0].shape, conv.operand("weight").shape
    if _products(conv, start) > _MOST * height * width * kernel[0] * kernel[1]:
        return None
    return _whole(m, conv, functions, start, zero)


@form("TRANSPOSE_CONV2D", *FUNCTIONS)
def convolve_phases(m: Matcher, op: Op) -> Iterator[Value]:
    """Plain convolutions in the place of a transposed one, with all that follows its sums."""
    found = _constant_chain(m, op)
    if found is None:
        return
    conv, functions, zero = found
    for start in range(conv.attrs["stride"][1]):
        with suppress(Unsupported):
            yield _whole(m, conv, functions, start, zero)


def _constant_chain(m: Matcher, op: Op) -> tuple[Op, list[Op], int] | None:
    """A transposed convolution by constants, the functions of its sums, the zero of its weights."""
    found = chain(m, op, "TRANSPOSE_CONV2D")
    if found is None:
        return None
    conv, *functions = found
    zero = one_number(conv.operand("weight_zp"))
    is_known = conv.operand("weight").is_const and conv.operand("bias").is_const
    return None if zero is None or not is_known else (conv, functions, int(zero))


def _phases(conv: Op, start: int) -> tuple[list[Phase], list[Phase], tuple[int, int]]:
    """Phases of rows and of columns, which begin so many before the first, and results of each."""
    (down, right), (top, _, left, _) = conv.attrs["stride"], conv.attrs["out_pad"]
    (_, height, width, _), (_, high, wide, _) = conv.ins[0].shape, conv.outs[0].shape
    kernel = conv.operand("weight").shape
    counts = -(-high // down), -(-(start + wide) // right)
    rows = phases(height, counts[0], kernel[1], down, top)
    columns = together(phases(width, counts[1], kernel[2], right, left + start))
    return rows, columns, counts


def _products(conv: Op, start: int) -> int:
    """Weights times results of all phases, for a channel in and out."""
    rows, columns, (high, wide) = _phases(conv, start)
    taps = sum(len(row.taps) for row in rows), sum(len(column.taps) for column in columns)
    return high * wide * taps[0] * taps[1]


def _whole(m: Matcher, conv: Op, functions: list[Op], start: int, fill: int) -> Value:
    """All phases, the columns of which begin so many before the first one.

    Where these read the same elements, as those of a kernel of 4 and a stride of 2 do one column
    before the first, no weight is 0.
    """
    rows, columns, counts = _phases(conv, start)
    (down, right), (batch, high, wide, out) = conv.attrs["stride"], conv.outs[0].shape
    channels = repeated(out, right)
    parts = [
        again(m, _part(m, conv, row, columns, counts, fill), functions, channels) for row in rows
    ]
    whole = m.b.CONCAT(*parts, axis=2) if down > 1 else parts[0]
    size = (batch, counts[0] * down, counts[1] * right, out)
    made = m.b.RESHAPE(whole, m.b.shape(size))
    if size[1:3] != (high, wide):
        made = m.b.SLICE(made, m.b.shape((0, 0, start, 0)), m.b.shape((batch, high, wide, out)))
    return made


def _part(
    m: Matcher, conv: Op, row: Phase, columns: list[Phase], counts: tuple[int, int], fill: int
) -> Value:
    """The sums of one phase of rows and all phases of columns."""
    weight, (_, height, width, channels) = conv.operand("weight"), conv.ins[0].shape
    out = weight.shape[0]
    shape = len(columns) * out, len(row.taps), len(columns[0].taps), channels
    kernel = m.b.remade(weight, lambda a: kernel_of(a, row, columns, fill), shape)
    bias = taken(m, conv.operand("bias"), repeated(out, len(columns)))
    return m.b.CONV2D(
        conv.ins[0], kernel, bias, *conv.ins[3:],
        pad=(*row.pads(height, counts[0]), *columns[0].pads(width, counts[1])), stride=(1, 1),
        dilation=(1, 1), acc_type=conv.attrs["acc_type"], loc=conv.loc,
    )  # fmt: skip
