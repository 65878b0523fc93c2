"""im2col: a convolution at few positions as a product over its windows.

The weights of a kernel may lie in memory in fives, whose gaps are stored as well; those of a
product of one element have none. What a kernel reads side by side, copied as the channels of one
element each, makes the one into the other. It takes place where the copies are smaller than the
gaps: for kernels of a sequence, and at the small end of a network.
"""

from __future__ import annotations

import math

from tosaic.ir.graph import Op, Value
from tosaic.rewrite.match import Matcher, form

_MANY = 16  # channels of the result for each of its places: copies are few beside weights


@form("CONV2D")
def unfold(m: Matcher, conv: Op) -> Value | None:
    """A product of one element over channels that are the windows of the kernel."""
    weight, zero = conv.operand("weight"), conv.operand("input_zp")
    elements, places = math.prod(weight.shape[1:3]), math.prod(conv.outs[0].shape[:3])
    if elements == 1 or not (weight.is_const and zero.is_const and weight.dtype.is_int):
        return None
    if weight.shape[0] < _MANY * places:
        return None
    source, channels = weight.const, elements * weight.shape[3]
    assert source is not None
    shape = weight.shape[0], 1, 1, channels
    kernel = m.b.const(lambda: source.array.reshape(shape), weight.dtype, shape=shape)
    image = conv.ins[0]
    if any(conv.attrs["pad"]):
        image = m.b.PAD(image, m.b.shape((0, 0, *conv.attrs["pad"], 0, 0)), zero)
    attrs = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
    windows = _windows(m, conv, image)
    if windows is None:
        return None
    made: Value = m.b.CONV2D(windows, kernel, *conv.ins[2:], **{**conv.attrs, **attrs})
    return made


def _windows(m: Matcher, conv: Op, image: Value) -> Value | None:
    """All windows [N, H, W, elements · C]: element by element, or one after the other."""
    (_, rows, columns, channels), (batch, high, wide, _) = image.shape, conv.outs[0].shape
    kernel, (down, right) = conv.operand("weight").shape[1:3], conv.attrs["stride"]
    gaps, elements = conv.attrs["dilation"], math.prod(kernel)
    size = batch, high, wide, elements * channels
    if (batch, high, gaps) == (1, 1, (1, 1)) and (wide <= elements or right > 1):
        if wide == 1 and kernel == (rows, columns):
            only: Value = m.b.RESHAPE(image, m.b.shape(size))
            return only
        starts, part = [(0, right * at) for at in range(wide)], kernel
        axis, each = 2, (1, 1, 1, size[-1])
    elif (down, right) == (1, 1):
        starts = [(gaps[0] * y, gaps[1] * x) for y in range(kernel[0]) for x in range(kernel[1])]
        axis, part, each = 3, (high, wide), (batch, high, wide, channels)
    else:
        return None
    shape = m.b.shape((batch, *part, channels))
    parts = [m.b.SLICE(image, m.b.shape((0, y, x, 0)), shape) for y, x in starts]
    if kernel[0] > 1:
        parts = [m.b.RESHAPE(value, m.b.shape(each)) for value in parts]
    made: Value = m.b.CONCAT(*parts, axis=axis)
    return m.b.RESHAPE(made, m.b.shape(size)) if made.shape != size else made
