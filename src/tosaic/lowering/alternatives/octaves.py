"""Functions of an int32 that is not negative: one TABLE of all its octaves.

The index is the number of the highest bit and the eleven bits behind it, so that a table has 16
nodes in each octave, and lines between them: a logarithm is 5·10^-4 off at most, a power 10^-3 of
its value times the square of its exponent, as far down as there are bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tosaic.ir.graph import Quant, Value
from tosaic.spec import dtypes as d

if TYPE_CHECKING:
    from tosaic.lowering.builder import Lowering

_BITS = 11  # of an index behind the highest one
_NODES = 16  # in an octave


def of_octaves(
    b: Lowering, x: Value, function: Callable[[Tensor], Tensor], quant: Quant, out: d.DType
) -> Value:
    """A function of a magnitude in some parameters; what is negative counts as 0."""
    assert x.quant is not None
    positive = b.MAXIMUM(b.with_quant(b.IDENTITY(x), None), b.number(0, x))
    zeros = b.MINIMUM(b.CLZ(positive), b.number(31, x))
    one = b.number(1, x)
    mantissa = b.LOGICAL_LEFT_SHIFT(positive, b.SUB(zeros, one))
    mantissa = b.proved(mantissa, 0, d.I32.range[1])  # the highest bit that is set becomes bit 30
    fraction = b.rescale(mantissa, [2.0 ** (_BITS - 30)], 0, d.I32)
    octave = b.mul(b.SUB(b.number(31, x), zeros), b.number(1 << _BITS, x))
    index = b.ADD(octave, b.SUB(fraction, b.number((1 << 15) + (1 << _BITS), x)))
    finer = 1 if out is d.I16 else 128
    nodes = _nodes(function, x.quant.one_scale, quant.one_scale / finer)
    made = b.TABLE(b.levels(index, d.I16), b.const(nodes.numpy(), d.I16))
    return b.with_quant(b.rescale(made, [1 / 128 / finer], quant.one_zero, out), quant)


def _nodes(function: Callable[[Tensor], Tensor], unit: float, step: float) -> Tensor:
    """The results at the nodes in steps; at the first it is that of 0.

    A chord of a bent function lies on one side of it: nodes are moved by half of what it is off.
    """
    places = torch.arange(513, dtype=torch.float64)
    octaves = (places // _NODES).clamp(max=31)
    real = unit * 2.0**octaves * (1 + (places - _NODES * octaves) / _NODES)
    real[0] = 0.0
    results = function(real)
    between = function((real[1:] + real[:-1]) / 2) - (results[1:] + results[:-1]) / 2
    bend = torch.zeros_like(results)
    bend[2:-1] = (between[1:-1] + between[2:]) / 4
    moved = torch.where(bend.isfinite(), results + bend, results) / step
    moved = torch.nan_to_num(moved, nan=0.0, posinf=32767.0, neginf=-32767.0)
    return moved.round().clamp(-32767, 32767)
