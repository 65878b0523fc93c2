"""Polyphase transposed convolution: one plain convolution for each phase of the stride.

Of the results at every s-th row each needs the same rows of the kernel, and none of the zeros that
a device would put between the elements. The columns of a stride are channels side by side, which is
how they lie in memory, and rows follow one another as the parts of a CONCAT along the columns do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from tosaic.errors import Unsupported
from tosaic.ir.conv_kernels import Phase, kernel_of, phases, together
from tosaic.ir.graph import Op, Value
from tosaic.rewrite.epilogue import FUNCTIONS, again, chain, repeated, taken
from tosaic.rewrite.match import Matcher, form, one_number


@form("TRANSPOSE_CONV2D", *FUNCTIONS)
def convolve_phases(m: Matcher, op: Op) -> Iterator[Value]:
    """Plain convolutions in the place of a transposed one, with all that follows its sums."""
    found = chain(m, op, "TRANSPOSE_CONV2D")
    if found is None:
        return
    conv, *functions = found
    weight, zero = conv.operand("weight"), one_number(conv.operand("weight_zp"))
    if not (weight.is_const and conv.operand("bias").is_const) or zero is None:
        return
    for start in range(conv.attrs["stride"][1]):
        with suppress(Unsupported):
            yield _whole(m, conv, functions, start, int(zero))


def _whole(m: Matcher, conv: Op, functions: list[Op], start: int, fill: int) -> Value:
    """All phases, the columns of which begin so many before the first one.

    Where these read the same elements, as those of a kernel of 4 and a stride of 2 do one column
    before the first, no weight is 0.
    """
    (down, right), (top, _, left, _) = conv.attrs["stride"], conv.attrs["out_pad"]
    (batch, height, width, _), (_, high, wide, out) = conv.ins[0].shape, conv.outs[0].shape
    kernel = conv.operand("weight").shape
    counts = -(-high // down), -(-(start + wide) // right)
    rows = phases(height, counts[0], kernel[1], down, top)
    columns = together(phases(width, counts[1], kernel[2], right, left + start))
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
