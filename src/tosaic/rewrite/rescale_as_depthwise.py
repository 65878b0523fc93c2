"""A standalone RESCALE as a depthwise convolution with ones, which fuses the scale."""

from __future__ import annotations

import numpy as np

from tosaic.ir.graph import Op, Value
from tosaic.rewrite.match import Matcher, form, one_number
from tosaic.spec.dtypes import I8, I16, I32

_CHANNELS = (16, 8)  # of an image that stands for a tensor of any shape


@form("RESCALE")
def scale_by_convolution(m: Matcher, op: Op) -> Value | None:
    """(x - zero) · 1, rescaled: the same numbers, the same rounding."""
    x, flags = op.ins[0], ("input_unsigned", "output_unsigned")
    kind = op.outs[0].dtype
    if x.dtype is not I8 or kind not in (I8, I16) or any(op.attrs[f] for f in flags):
        return None
    zero = one_number(op.ins[3])
    fixed = op.attrs["per_channel"] or (x.type.rank == 4 and not m.only(x))
    channels = x.shape[-1] if fixed else _channels(x)  # another shape for one reader is a copy
    if zero is None or channels is None or not all(v.is_const for v in op.ins[1:]):
        return None
    b, image = m.b, (1, 1, x.type.size // channels, channels)
    same = x.type.rank == 4 and x.shape[-1] == channels
    given = x if same else b.RESHAPE(x, b.shape(image))
    sums = b.layer("DEPTHWISE_CONV2D", given, np.ones((1, 1, channels, 1)), int(zero))
    ends = [*op.ins[1:3], b.const([0], I32), op.ins[4]]
    value: Value = b.RESCALE(sums, *ends, out=kind, **op.attrs)
    return value if same else b.RESHAPE(value, b.shape(op.outs[0].shape))


def _channels(x: Value) -> int | None:
    """The channels of an image with those elements: few, since each has a scale in memory."""
    if x.type.rank == 4 and x.shape[-1] <= 64:
        return x.shape[-1]
    return next((n for n in _CHANNELS if x.type.size % n == 0), None)
