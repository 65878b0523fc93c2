"""CAST and RESCALE: from one type to another."""

from __future__ import annotations

import torch
from torch import Tensor

from tosaic.interp.kernel import TORCH, Context, Run, kernel
from tosaic.interp.operands import specialise
from tosaic.interp.rescale import Rescale
from tosaic.ir.graph import Op
from tosaic.spec import dtypes as d


@kernel("CAST")
def cast(op: Op, context: Context) -> Run:
    """Integers keep their low bits; floats round to the nearest, ties to even."""
    source, result = op.ins[0].dtype, op.outs[0].dtype
    target = TORCH[result]
    if source.is_float and result.is_int:
        return _float_to_int(result)
    if target in (torch.float8_e4m3fn, torch.float8_e5m2) and source is not d.F32:
        return lambda x: x.float().to(target)
    return lambda x: x.to(target)


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
    attrs = op.attrs

    def make(multiplier: Tensor, shift: Tensor, input_zp: Tensor, output_zp: Tensor) -> Run:
        return Rescale(
            multiplier,
            shift,
            input=TORCH[op.ins[0].dtype],
            output=TORCH[op.outs[0].dtype],
            input_zp=int(input_zp),
            output_zp=int(output_zp),
            rounding=attrs["rounding_mode"],
            input_unsigned=attrs["input_unsigned"],
            output_unsigned=attrs["output_unsigned"],
        )

    return specialise(op, "multiplier shift input_zp output_zp", make)
