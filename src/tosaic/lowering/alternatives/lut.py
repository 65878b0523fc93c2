"""Lookup tables of functions of one quantized value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import torch
from torch import Tensor

from tosaic.errors import Unsupported
from tosaic.ir.graph import Quant

Function = Callable[[Tensor], Tensor]

ROUNDING = 2.0**-24  # relative: what a scale in float32 is off at most
NEAR = 1.5  # steps of int16 below which tables are equally good
PLAIN = 1.0  # steps that a table may be worse whose results need no factor
LIMIT = 128  # steps of int16, half a step of int8: worse tables are no int16 function
FINE = 16  # steps of int16 beyond which more tables than one are worth their time
_FEW_BITS = 12  # of the mantissa of a whole number, a half, a quarter
_TABLES = 5  # of one function
_SEGMENTS = 512  # of a table, each of 128 inputs


def table8(function: Function, given: Quant, wanted: Quant) -> Tensor:
    """All 256 results, each rounded once; what is no number becomes 0."""
    real = _results(function, torch.arange(-128, 128), given, wanted)
    return real.nan_to_num(nan=wanted.one_zero).round().clamp(-128, 127)


@lru_cache(256)  # the steps of a recurrent layer ask for the same ones
def table16(function: Function, given: Quant, wanted: Quant) -> tuple[Tensor, float, float]:
    """513 nodes, between which TABLE interpolates, how much larger than meant they are, and how
    many steps the lines between them are off at most.

    A line from a node inside the range to one that saturates would bend too early. Then all
    nodes are made a little smaller, and RESCALE does what is left.
    """
    real = _at_nodes(function, given, wanted)
    real = real + _bend(function, real, given, wanted)
    inside = (real.abs() <= 32767).double()
    near = torch.nn.functional.max_pool1d(inside[None], 3, 1, 1)[0] > 0
    most = float(real[near & real.isfinite()].abs().max()) if near.any() else 0.0
    factors = {1.0, 32767 / most if 32767 < most < 65534 else 1.0}
    whole = _results(function, _all_inputs()[0], given, wanted)
    tried = [_nodes(whole, real, f) for f in sorted(factors, reverse=True)]
    off, nodes, factor = min(tried, key=lambda t: max(t[0], NEAR) + PLAIN * (t[2] != 1))
    return nodes, factor, off


@dataclass(frozen=True, slots=True, eq=False)
class Zone:
    """A table of what others miss within ``2^bits`` segments from ``start``; 0 at both ends.

    It holds that divided by ``gain``: the slope of a jump must fit int16.
    """

    nodes: Tensor
    start: int
    bits: int
    gain: int = 1

    @property
    def middle(self) -> int:
        """The input that is 0 for this table."""
        return self.start * 128 - 32768 + (64 << self.bits)

    @property
    def factor(self) -> int:
        """How much further apart the inputs are for this table."""
        return _SEGMENTS >> self.bits


@lru_cache(256)
def zones16(function: Function, given: Quant, wanted: Quant) -> tuple[Zone, ...]:
    """Tables whose sum is the function: one for all inputs, and finer ones where it bends or jumps.

    Inputs outside of a zone saturate to its ends, where it has nothing to add.
    """
    inputs = torch.arange(-32768, 32768)
    real = _results(function, inputs, given, wanted)
    nodes = _at_nodes(function, given, wanted).round().clamp(-32767, 32767)
    found = [_gentle(nodes, 0, 9)]
    missed = real.clamp(-32767, 32767) - _between(found[0], inputs)
    missed[~real.isfinite()] = 0.0
    while (off := float(missed.abs().max())) > FINE and len(found) < _TABLES:
        tried = [_zone(missed, start, bits) for start, bits in _places(missed)]
        found.append(min(tried, key=lambda zone: _left(missed, zone, inputs)))
        missed = missed - _between(found[-1], inputs)
    if off > LIMIT:
        raise Unsupported(
            f"{len(found)} tables of 513 int16 entries are {off:.0f} steps off this function"
        )
    return tuple(found)


def _left(missed: Tensor, zone: Zone, inputs: Tensor) -> float:
    """What is missed at most, with a zone."""
    start, end = zone.start * 128, (zone.start + (1 << zone.bits)) * 128
    inside = missed[start:end] - _between(zone, inputs[start:end])
    parts = (missed[:start], inside, missed[end:])
    return max(float(part.abs().max()) for part in parts if len(part))


def _places(missed: Tensor) -> list[tuple[int, int]]:
    """Where a zone may be, first segment and bits of its length: round the worst, or all bad ones.

    The last segment of a zone is a good one, unless all inputs end there: the largest int16 is
    1/128 of a segment short of its end.
    """
    worst = missed.abs().reshape(_SEGMENTS, 128).amax(1)
    bad = (worst > FINE).nonzero()[:, 0]
    first, last, peak = int(bad[0]), int(bad[-1]), int(worst.argmax())
    places: list[tuple[int, int]] = []
    for bits in range(1, 9):
        length = 1 << bits
        for start in (peak - length // 2 + 1, first, last - length + 2, peak, peak - length + 2):
            start = min(max(start, 0), _SEGMENTS - length)
            end = start + length
            if end == _SEGMENTS or worst[end - 1] <= FINE:
                places.append((start, bits))
    return places or [(0, 8)]


def _zone(missed: Tensor, start: int, bits: int) -> Zone:
    count = 128 << bits
    inside = missed[start * 128 :][: count + 1]
    if len(inside) == count:  # the last input stands for the end behind it
        inside = torch.cat([inside, inside[-1:]])
    places = torch.linspace(0, count, _SEGMENTS + 1).double()
    below = places.floor().long().clamp(max=count - 1)
    nodes = inside[below] + (inside[below + 1] - inside[below]) * (places - below)
    nodes[0] = 0.0
    if start * 128 + count < 65536:
        nodes[-1] = 0.0
    return _gentle(nodes, start, bits)


def _gentle(nodes: Tensor, start: int, bits: int) -> Zone:
    """A zone of numbers that may be too large, or their slopes too steep, for int16."""
    largest = max(float(nodes.abs().max()), float(nodes.diff().abs().max()))
    gain = max(math.ceil(largest / 32767), 1)
    return Zone(nodes.round() if gain == 1 else (nodes / gain).trunc(), start, bits, gain)


def _between(zone: Zone, inputs: Tensor) -> Tensor:
    """What a table gives, on the lines between its nodes."""
    place = ((inputs - zone.middle) * zone.factor).clamp(-32768, 32767) + 32768
    index, part = place // 128, (place % 128) / 128
    return (zone.nodes[index] + (zone.nodes[index + 1] - zone.nodes[index]) * part) * zone.gain


def _at_nodes(function: Function, given: Quant, wanted: Quant) -> Tensor:
    """Real results at the nodes; beyond the domain the last one in it, so that no line jumps."""
    real = _results(function, torch.arange(-256, 257) * 128, given, wanted)
    known = (~real.isnan()).nonzero()[:, 0]
    if len(known):
        first, last = int(known[0]), int(known[-1])
        real[:first], real[last + 1 :] = real[first], real[last]
    return real.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)


def _bend(function: Function, nodes: Tensor, given: Quant, wanted: Quant) -> Tensor:
    """Half of what the lines beside each node miss in their middle: halves the largest error."""
    middle = _results(function, torch.arange(-256, 256) * 128 + 64, given, wanted)
    missed = (middle - (nodes[:-1] + nodes[1:]) / 2).nan_to_num(0.0, 0.0, 0.0)
    missed[missed.abs() > LIMIT] = 0.0
    around = torch.cat([missed[:1], missed, missed[-1:]])
    return (around[:-1] + around[1:]) / 4


@cache
def _all_inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Every int16, the node below each, and how far it is from there to the next."""
    inputs = torch.arange(-32768, 32768)
    return inputs, (inputs + 32768) // 128, (inputs % 128) / 128


def _nodes(whole: Tensor, real: Tensor, factor: float) -> tuple[float, Tensor, float]:
    """Nodes for a factor, and how far off the lines between them are at most from the ``whole``."""
    nodes = (real * factor).nan_to_num(nan=0.0).round().clamp(-32767, 32767)
    if (nodes.diff().abs() > 32767).any():  # a pole: its slope has no int16
        nodes[~real.isfinite()] = 0.0
    if (nodes.diff().abs() > 32767).any():
        return math.inf, nodes, factor
    _, index, part = _all_inputs()
    low, slope = nodes[index], nodes.diff()[index]
    made = (low + slope * part) / factor
    missed = (made - whole).abs()
    missed[~(whole.abs() <= 32767)] = 0.0  # what saturates anyway does not count
    return float(missed.max()), nodes, factor


def _results(function: Function, inputs: Tensor, given: Quant, wanted: Quant) -> Tensor:
    """Real results in steps of the result."""
    real = function(reals(inputs, given))
    return real.double() / wanted.one_scale + wanted.one_zero


def reals(inputs: Tensor, given: Quant) -> Tensor:
    """What integers mean; a number of few bits where the product of float32 is one.

    Functions break or end there: an asin of 1.0000001 is no number.
    """
    exact = (inputs.double() - given.one_zero) * given.one_scale
    near = exact.float().double()
    digits = torch.frexp(near)[0] * (1 << _FEW_BITS)
    return torch.where(digits == digits.round(), near, exact)
