"""CAST and RESCALE: from one type to another."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tosaic.interp.bounds import Ends
from tosaic.interp.device import is_gpu
from tosaic.interp.exact import Interval
from tosaic.interp.kernel import TORCH, Context, Run, kernel
from tosaic.interp.operands import specialise
from tosaic.interp.rescale import Rescale
from tosaic.interp.rescale_scalar import scalar_rescale
from tosaic.ir.graph import Op
from tosaic.spec import dtypes as d


@kernel("CAST")
def cast(op: Op, context: Context) -> Run:
    """Integers keep their low bits; floats round to the nearest, ties to even."""
    source, result = op.ins[0].dtype, op.outs[0].dtype
    target = TORCH[result]
    if source.is_float and result.is_int:
        return _float_to_int(result)
    if result is d.F8E4M3:
        return _to_float8_e4m3
    if result is d.F8E5M2:
        return lambda x: x.float().to(target)
    return lambda x: x.to(target)


def _to_float8_e4m3(x: Tensor) -> Tensor:
    """What rounds to more than 448 becomes NaN, as there is no infinity; torch saturates."""
    wide = x.float()
    return torch.where(wide.abs() > 464, torch.nan, wide).to(torch.float8_e4m3fn)


def _float_to_int(result: d.DType) -> Run:
    """Rounded and saturated. What a NaN gives is the reference model's choice."""
    low, high = result.range
    of_nan = low if result.bits == 32 else 0
    computed = torch.float64 if result.bits >= 32 else torch.float32
    target = TORCH[result]

    def run(x: Tensor) -> Tensor:
        whole = x.to(computed).nan_to_num(nan=of_nan, posinf=high, neginf=low).round_()
        return whole.clamp_(low, high).to(target)

    return run


@kernel("RESCALE")
def rescale(op: Op, context: Context) -> Run:
    """Made once for all operators that have the same parameters."""
    types = op.ins[0].dtype, op.outs[0].dtype, bool(op.outs[0].shape)
    known = [v.const.array.tobytes() for v in op.ins[1:] if v.const is not None]
    if len(known) < len(op.ins) - 1:
        return _rescale(op)
    ends = context.bounds.of(op.ins[0])
    key = (*types, *known, *op.attrs.values(), ends)
    if key not in context.rescales:
        scalar = None if is_gpu() else scalar_rescale(op, ends)
        context.rescales[key] = scalar or _rescale(op, ends)
    return context.rescales[key]


def _rescale(op: Op, ends: Ends | None = None) -> Run:
    def make(multiplier: Tensor, shift: Tensor, input_zp: Tensor, output_zp: Tensor) -> Run:
        known = None
        if ends is not None and not op.attrs["input_unsigned"]:
            known = Interval(torch.tensor([ends[0]]), torch.tensor([ends[1]]))
        ready = rescaler(op, (multiplier, shift, input_zp, output_zp), interval=known)
        return ready if op.outs[0].shape else lambda x: ready(x).reshape(x.shape)

    return specialise(op, "multiplier shift input_zp output_zp", make)


def rescaler(
    op: Op,
    parameters: Sequence[Tensor],
    clamp: tuple[int, int] | None = None,
    interval: Interval | None = None,
) -> Rescale:
    """A RESCALE of known parameters, with what is known of its input and a CLAMP behind."""
    multiplier, shift, input_zp, output_zp = parameters
    return Rescale(
        multiplier,
        shift,
        input=TORCH[op.ins[0].dtype],
        output=TORCH[op.outs[0].dtype],
        input_zp=int(input_zp),
        output_zp=int(output_zp),
        rounding=op.attrs["rounding_mode"],
        scale32=op.attrs["scale32"],
        input_unsigned=op.attrs["input_unsigned"],
        output_unsigned=op.attrs["output_unsigned"],
        clamp=clamp,
        interval=interval,
    )
