"""RESCALE by one multiplier, with known bounds of its input: the narrowest exact arithmetic.

A power of two is a shift in int32. Otherwise every number on the way is a multiple of a power of
two, so a float holds all of them exactly where the largest has few enough digits; then rounding is
a floor. Where none has, int64 computes what the specification says.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tosaic.interp.bounds import Ends, rescaled
from tosaic.interp.kernel import TORCH, Run
from tosaic.ir.graph import Op

_EXACT = ((torch.float32, 1 << 24), (torch.float64, 1 << 53))
_INT32 = (-(1 << 31), (1 << 31) - 1)


def scalar_rescale(op: Op, ends: Ends) -> Run | None:
    """The kernel of a RESCALE with one known multiplier, or None where it needs checks."""
    found = rescaled(op, ends)
    if found is None or op.attrs["per_channel"] or op.attrs["output_unsigned"]:
        return None
    numbers = (int(v.const.array.reshape(-1)[0]) for v in op.ins[1:] if v.const is not None)
    multiplier, shift, input_zp, output_zp = numbers
    low, high = op.outs[0].dtype.range
    limits = None if low <= found[0] and found[1] <= high else (low, high)
    target = TORCH[op.outs[0].dtype]
    common = (multiplier & -multiplier).bit_length() - 1 if multiplier else shift
    factor, bits = multiplier >> common, shift - common
    peak = max(abs(end - input_zp) for end in ends)
    if factor == 1 or not multiplier:
        return _shifted(bits if multiplier else 62, input_zp, output_zp, peak, limits, target)
    largest = (peak + abs(input_zp)) * factor + ((abs(output_zp) + 1) << max(bits, 0))
    for dtype, most in _EXACT:
        if bits >= 1 and largest < most and max(map(abs, ends)) < most:
            slope = factor * 2.0**-bits
            return _in_floats(slope, 0.5 + output_zp - input_zp * slope, dtype, limits, target)
    half = 1 << shift - 1

    def run(x: Tensor, *_: Tensor) -> Tensor:
        value = x.to(torch.int64, copy=True)
        if input_zp:
            value.sub_(input_zp)
        value.mul_(multiplier).add_(half).bitwise_right_shift_(shift)
        if output_zp:
            value.add_(output_zp)
        return (value.clamp_(*limits) if limits else value).to(target)

    return run


def _in_floats(
    slope: float, offset: float, dtype: torch.dtype, limits: Ends | None, target: torch.dtype
) -> Run:
    added = torch.tensor(offset, dtype=dtype)

    def run(x: Tensor, *_: Tensor) -> Tensor:
        value = x.to(dtype, copy=True)
        # Both are exact, so that one pass of multiplying and adding rounds nothing either.
        value = torch.add(added, value, alpha=slope, out=value).floor_()
        return (value.clamp_(*limits) if limits else value).to(target)

    return run


def _shifted(
    bits: int, input_zp: int, output_zp: int, peak: int, limits: Ends | None, target: torch.dtype
) -> Run:
    """Times 2^-bits: the least of subtracting, shifting, adding and saturating."""
    half = 1 << bits - 1 if bits > 0 else 0
    largest = (peak + half + abs(input_zp)) << max(-bits, 0)
    narrow = largest + abs(output_zp) <= _INT32[1]
    wide = torch.int32 if narrow else torch.int64
    # Below 1 and without rounding, zero points are one number.
    before = half - input_zp + (output_zp << bits if 0 <= bits < 16 and narrow else 0)
    after = 0 if 0 <= bits < 16 and narrow else output_zp
    if narrow and largest + abs(before) > _INT32[1]:
        wide = torch.int64

    def run(x: Tensor, *_: Tensor) -> Tensor:
        if limits is None and not before and not after and bits == 0:
            return x.to(target)
        value = x.to(wide)
        if before:
            value = value + before
        if bits > 0:
            value = value >> min(bits, 31 if wide is torch.int32 else 63)
        elif bits < 0:
            value = value << -bits
        if after:
            value = value + after
        return (value.clamp(*limits) if limits else value).to(target)

    return run
