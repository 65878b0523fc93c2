"""The tables of functions of one quantized value."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from tosaic.errors import Unsupported
from tosaic.ir.graph import Quant

Function = Callable[[Tensor], Tensor]

NEAR = 1.5  # steps of int16 below which tables are equally good
PLAIN = 0.125  # steps that a table may be worse whose results need no factor: NPUs have such tables
LIMIT = 128  # steps of int16, half a step of int8: a worse table is no int16 function


def table8(function: Function, given: Quant, wanted: Quant) -> Tensor:
    """All 256 results, each rounded once; what is no number becomes 0."""
    real = _results(function, torch.arange(-128, 128), given, wanted)
    return real.nan_to_num(nan=wanted.one_zero).round().clamp(-128, 127)


@lru_cache(256)  # the steps of a recurrent layer ask for the same ones
def table16(function: Function, given: Quant, wanted: Quant) -> tuple[Tensor, float]:
    """513 nodes, between which TABLE interpolates, and how much larger than meant they are.

    A line from a node inside the range to one that saturates would bend too early. Then all
    nodes are made a little smaller, and RESCALE does what is left. Unsupported where no line
    comes near the function.
    """
    real = _results(function, torch.arange(-256, 257) * 128, given, wanted)
    real = real + _bend(function, real, given, wanted)
    inside = (real.abs() <= 32767).double()
    near = torch.nn.functional.max_pool1d(inside[None], 3, 1, 1)[0] > 0
    most = float(real[near & real.isfinite()].abs().max()) if near.any() else 0.0
    factors = {1.0, 32767 / most if 32767 < most < 65534 else 1.0}
    tried = [_nodes(function, given, wanted, real, f) for f in sorted(factors, reverse=True)]
    off, nodes, factor = min(tried, key=lambda t: max(t[0], NEAR) + PLAIN * (t[2] != 1))
    if off > LIMIT:
        raise Unsupported(f"a table of 513 int16 entries is {off:.0f} steps off this function")
    return nodes, factor


def _bend(function: Function, nodes: Tensor, given: Quant, wanted: Quant) -> Tensor:
    """Half of what the lines beside each node miss in their middle: halves the largest error."""
    middle = _results(function, torch.arange(-256, 256) * 128 + 64, given, wanted)
    missed = (middle - (nodes[:-1] + nodes[1:]) / 2).nan_to_num(0.0, 0.0, 0.0)
    missed[missed.abs() > LIMIT] = 0.0
    around = torch.cat([missed[:1], missed, missed[-1:]])
    return (around[:-1] + around[1:]) / 4


def _nodes(
    function: Function, given: Quant, wanted: Quant, real: Tensor, factor: float
) -> tuple[float, Tensor, float]:
    """Nodes for a factor, and how far off the lines between them are at most."""
    nodes = (real * factor).nan_to_num(nan=0.0).round().clamp(-32767, 32767)
    if (nodes.diff().abs() > 32767).any():  # a pole: its slope has no int16
        nodes[~real.isfinite()] = 0.0
    if (nodes.diff().abs() > 32767).any():
        return math.inf, nodes, factor
    inputs = torch.arange(-32768, 32768)
    real = _results(function, inputs, given, wanted)
    index, part = (inputs + 32768) // 128, (inputs % 128) / 128
    made = (nodes[index] + (nodes[index + 1] - nodes[index]) * part) / factor
    inside = real.abs() <= 32767  # what saturates anyway does not count
    off = float((made - real)[inside].abs().max()) if inside.any() else 0.0
    return off, nodes, factor


def _results(function: Function, inputs: Tensor, given: Quant, wanted: Quant) -> Tensor:
    """Real results in steps of the result."""
    real = function((inputs.double() - given.one_zero) * given.one_scale)
    return real.double() / wanted.one_scale + wanted.one_zero
