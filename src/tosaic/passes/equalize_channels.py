"""Cross-layer equalization: factors of channels move from activations into the weights behind them.

One scale stands for all channels of a tensor, so that channels far smaller than the largest keep
few of its steps. A layer or a norm that gives each channel divided by a factor of its own, and
readers whose weights are multiplied by it, compute the same. What is gained in the tensor is lost
in the readers' weights, which share a scale over their inputs, but for depthwise ones; the factors
are those of the least estimated noise of both, for 8 and for 16 bits of activations at once, and
powers of two, so that no weight is rounded.

No data is needed: batch norms and norms tell the mean and the deviation of what they give, and
those of other layers follow from their weights and the power of their inputs, which is that of the
layers before or, of the network's own inputs, taken as equal. Where it is not known, as behind the
magnitudes of a spectrum, nothing is changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.hints import mark_of
from tosaic.passes.channel_paths import (
    Place,
    inputs_by_outputs,
    readers_of,
    scale_inputs,
    unshared,
)
from tosaic.passes.engine import Call, graph_pass, replace
from tosaic.passes.fold_affine import channel_axis
from tosaic.passes.fold_batch_norm import MOMENTS, is_layer, parameters, scale_layer
from tosaic.passes.match import constant_of, name_of, rank_of, values_of

_NORMS = frozenset({"aten.layer_norm.default", "aten.rms_norm.default"})
_FAR, _LEAST = 4.0, 2.0  # deviations that a range reaches from the mean, and from zero at least
_LEVELS, _WIDE, _WEIGHT = 255.0, 65534.0, 127.0
_MOST = 8  # exponents of two between channels at most
_WORTH = 0.9  # of the noise before, or it is left as it is
_ROWS = 128  # outputs of a layer that are looked at
_SHARES = 0.0, 0.25, 0.5, 0.75, 1.0
_TIE = 1e-6  # what differs by less is the same on any processor


@dataclass(frozen=True, slots=True)
class _Channels:
    """What is expected of a tensor's channels: mean and deviation, before it is rectified."""

    mean: Tensor
    deviation: Tensor

    def ends(self, rectified: bool) -> tuple[Tensor, Tensor]:
        """How far the values of each channel reach below zero and above it."""
        reach = _FAR * self.deviation
        least = _LEAST * self.deviation
        below, above = (torch.maximum(reach + m, least) for m in (-self.mean, self.mean))
        return torch.zeros_like(below) if rectified else below, above

    def power(self, rectified: bool) -> Tensor:
        """The mean square, of a normal distribution whose negative half may be zero."""
        whole = self.mean.square() + self.deviation.square()
        if not rectified:
            return whole
        places = self.mean / self.deviation.clamp(min=1e-30)
        share = torch.special.ndtr(places)
        density = torch.exp(-places.square() / 2) / math.sqrt(2 * math.pi)
        made: Tensor = (whole * share + self.mean * self.deviation * density).clamp(min=0)
        return made


@graph_pass
def equalize_channels(module: fx.GraphModule) -> bool:
    """Give each channel its share of the steps, from the first layer to the last."""
    is_own, powers, changed = unshared(module), dict[fx.Node, Tensor](), False
    for node in list(module.graph.nodes):
        axis = _channels_of(node)
        found = None if axis is None else readers_of(Place(node, axis))
        if axis is None or not found or len({p.rectified for p in found}) > 1:
            continue
        given, rectified = _expected(node, powers), found[0].rectified
        if given is None or any(mark_of(n).long for n in (node, *(p.value for p in found))):
            continue
        factor = None
        if is_own(node) and all(is_own(p.value) for p in found):
            factor = _factor(given, rectified, found)
        if factor is not None:
            _scale(node, 1 / factor)
            for place in found:
                scale_inputs(place.value, factor.repeat_interleave(place.inner))
            given, changed = _Channels(given.mean / factor, given.deviation / factor), True
        for place in found:
            power = given.power(rectified)
            powers[place.value] = power.repeat_interleave(place.inner)
    return changed


def _channels_of(node: fx.Node) -> int | None:
    """The axis of the channels that a layer or a norm has weights for."""
    if is_layer(node):
        return channel_axis(node)
    if name_of(node) in _NORMS and rank_of(torchapi.bound_arguments(node).get("weight")) == 1:
        return rank_of(node) - 1
    return None


def _expected(node: fx.Node, powers: dict[fx.Node, Tensor]) -> _Channels | None:
    bound = torchapi.bound_arguments(node)
    weight, bias = values_of(bound["weight"]), constant_of(bound.get("bias"))
    if weight is None or not weight.is_floating_point() or not weight.numel():
        return None
    if bound.get("bias") is not None and bias is None:
        return None
    if node.meta.get(MOMENTS) is not None:
        return _Channels(*node.meta[MOMENTS])
    if name_of(node) in _NORMS:
        weight = weight.detach().double()
        return _Channels(torch.zeros_like(weight) if bias is None else bias, weight.abs())
    grouped = inputs_by_outputs(node, weight.detach()).double().square().sum(3)  # [g, out, in]
    power = powers.get(node)
    if power is None and node.all_input_nodes[0].op != "placeholder":
        return None
    if power is not None:
        grouped = grouped * power.reshape(len(grouped), 1, -1)
    deviation = grouped.sum(2).reshape(-1).sqrt()
    return _Channels(torch.zeros_like(deviation) if bias is None else bias, deviation)


def _scale(node: fx.Node, factor: Tensor) -> None:
    """A layer or a norm gives its results times a factor of each channel."""
    if is_layer(node):
        scale_layer(node, factor, torch.zeros_like(factor))
        return
    bound = torchapi.bound_arguments(node)
    held = {n: values_of(v) for n in ("weight", "bias") if (v := bound.get(n)) is not None}
    made = {n: (v.detach().double() * factor).to(v.dtype) for n, v in held.items() if v is not None}
    bound |= dict(zip(made, parameters(node, **made), strict=True))
    replace(node, Call(node.target, tuple(bound.values())))


@dataclass(frozen=True, slots=True)
class _Reader:
    """A layer's weights, as far as its noise depends on them: [groups, outputs, inputs]."""

    largest: Tensor
    squares: Tensor
    power: Tensor  # of its inputs, with how many taps each has: [groups, 1, inputs]
    signal: float

    @classmethod
    def of(cls, place: Place, power: Tensor) -> _Reader | None:
        weight = values_of(torchapi.bound_arguments(place.value)["weight"])
        assert weight is not None
        grouped = inputs_by_outputs(place.value, weight.detach())
        grouped = grouped[:, :: max(grouped.shape[1] // _ROWS, 1)]
        each = power.repeat_interleave(place.inner)
        if grouped.shape[0] * grouped.shape[2] != len(each):
            return None
        squares, each = grouped.square().sum(3).double(), each.reshape(len(grouped), 1, -1)
        power = each * grouped.shape[3]
        signal = float((squares * power).sum().clamp(min=1e-30))
        return cls(grouped.abs().amax(3).double(), squares, power, signal)

    def noise(self, factor: Tensor) -> tuple[float, float]:
        """The rounding of activations by steps of 1, and that of weights, in the result."""
        factor = factor.repeat_interleave(self.power.numel() // len(factor))
        factor = factor.reshape(len(self.power), 1, -1)
        steps = (self.largest * factor).amax(2) / _WEIGHT
        weights = steps.square() * (self.power / factor.square()).sum(2)
        return float((self.squares * factor.square()).sum()), float(weights.sum()) / self.signal


def _factor(given: _Channels, rectified: bool, places: list[Place]) -> Tensor | None:
    """Powers of two, one for each channel; None if there is nothing to be gained."""
    below, above = given.ends(rectified)
    reach, power = torch.maximum(below, above), given.power(rectified)
    readers = [_Reader.of(p, power) for p in places]
    if not bool(reach.isfinite().all() & (reach > 0).any()) or None in readers:
        return None
    known = [r for r in readers if r is not None]

    def noise(factor: Tensor) -> float:
        span = float((below / factor).max() + (above / factor).max())
        parts, found = [(r.signal, *r.noise(factor)) for r in known], 0.0
        for step in (span / _LEVELS, span / _WIDE):
            whole = sum(given * step**2 / signal + weights for signal, given, weights in parts)
            found += math.log(max(whole, 1e-30))
        return found

    candidates = list(_candidates(reach, known))
    costs = [noise(c) for c in candidates]
    best = min(range(len(costs)), key=lambda i: (round(costs[i] / _TIE), i))
    return candidates[best] if costs[best] < costs[0] + 2 * math.log(_WORTH) else None


def _candidates(reach: Tensor, readers: list[_Reader]) -> Iterator[Tensor]:
    """Ones, and mixtures of the ranges of channels and of the weights that read them."""
    yield torch.ones_like(reach)
    inner = [r.power.numel() // len(reach) for r in readers]
    columns = torch.stack([
        r.largest.amax(1).reshape(len(reach), n, -1).amax((1, 2)) / r.largest.max().clamp(min=1e-30)
        for r, n in zip(readers, inner, strict=True)
    ]).amax(0)  # fmt: skip
    sizes, weights = (torch.log2(t / t.max()).clamp(min=-24) for t in (reach, columns))
    for of_reach in _SHARES:
        for of_weights in _SHARES[:3]:
            exponents = sizes * of_reach - weights * of_weights
            exponents = (exponents - exponents.max() + _TIE).round().clamp(min=-_MOST)
            yield torch.exp2(exponents)
