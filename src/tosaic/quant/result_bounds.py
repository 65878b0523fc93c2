"""Interval analysis of a prepared program: what no observed value exceeds.

An operand lies in the range of its observer, and so does what is computed of it in an interval: a
sum of a place and a small offset needs little more than the place, a product with a gate no more
than its other factor, a spectrum no more than its bases add up to. A range with room for unseen
inputs ends there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.registry import RULES
from tosaic.front.roles import is_real, is_weighted, role_of
from tosaic.lowering.support import constants
from tosaic.quant.annotations import brings_numbers
from tosaic.quant.bias_correction import known_value
from tosaic.quant.loops import observer_of
from tosaic.quant.observer import RangeObserver
from tosaic.quant.pt2e import FixedQParamsObserver, ObserverBase
from tosaic.quant.unary_function import function_of, is_pointwise

Bounds = tuple[float, float]
_ANY: Bounds = (-math.inf, math.inf)
_POWERS = 2.0 ** torch.arange(-149, 128, dtype=torch.float64)  # of float32
_OPERANDS = torch.cat(
    [-_POWERS, torch.zeros(1), _POWERS, torch.linspace(-8, 8, 2049, dtype=torch.float64)]
)
_PLACES = 2049  # in an interval at which a function is looked at
_MAGNITUDE = "aten.hypot.default"
_ALIKE = frozenset({_MAGNITUDE, "aten.add.Tensor", "aten.sub.Tensor"})
# Functions of two numbers that have their extremes where both have theirs, or one is 0.
_PAIRS = frozenset({
    "aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor",
    "aten.maximum.default", "aten.minimum.default", _MAGNITUDE,
})  # fmt: skip
_MEANS = frozenset({
    "aten.mean.dim", "aten.mean.default", "aten.amax.default", "aten.amin.default",
    "aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.max_pool1d.default",
    "aten.max_pool2d.default", "aten.adaptive_avg_pool1d.default",
    "aten.adaptive_avg_pool2d.default",
})  # fmt: skip
_DEEPEST = 64  # calls that wait for their operands


def tell_bounds(prepared: fx.GraphModule) -> None:
    """Give each observer of a part of a program the bounds of what it observes."""
    intervals = Intervals(prepared)
    for observer in intervals.places:
        intervals.of_observer(observer)


class Intervals:
    """The intervals of values of one part of a program, which observers have looked at."""

    def __init__(self, prepared: fx.GraphModule) -> None:
        self.module, self._constants = prepared, constants(prepared.graph)
        self.places = defaultdict[ObserverBase, list[fx.Node]](list)  # what they look at
        for node in prepared.graph.nodes:
            if (observer := observer_of(node)) is not None:
                self.places[observer].append(node.all_input_nodes[0])
        self._known: dict[Any, Bounds] = {}
        self._begun: list[Any] = []

    def of_observer(self, observer: ObserverBase) -> Bounds:
        """The range of an observer, whose bounds are found first."""
        if isinstance(observer, RangeObserver) and observer not in self._known:
            if observer in self._begun or len(self._begun) > _DEEPEST:
                return _ANY  # it depends on itself
            self._begun.append(observer)
            sources = [n for n in self.places[observer] if not self._is_moved(n, observer)]
            low, high = _around(map(self.of, sources))
            likely = self._likely(observer, sources)
            observer.bound(max(low, -likely), min(high, likely))
            self._begun.pop()
            (least, most), step = _ends(observer), float(observer.calculate_qparams()[0])
            self._known[observer] = max(least, low - step), min(most, high + step)
        return self._known[observer] if observer in self._known else _ends(observer)

    def of(self, node: fx.Node) -> Bounds:
        """The interval of a value."""
        observer = observer_of(node)
        if observer is not None and isinstance(observer, (RangeObserver, FixedQParamsObserver)):
            return self.of_observer(observer)
        if node not in self._known:
            self._known[node] = self._found(node)
        return self._known[node]

    def _found(self, node: fx.Node) -> Bounds:
        if node.op == "get_attr":
            return _extremes(torchapi.attribute(self.module, str(node.target)).detach())
        if node.op != "call_function" or not is_real(node) or _adds_up(node):
            return _ANY
        if torchapi.target_name(node) == "aten.atan2.default":
            return -math.pi, math.pi
        if is_weighted(node):
            return self._sum(node)
        name = torchapi.target_name(node)
        rule, sources = RULES.get(name), list(node.all_input_nodes)
        if name in _MEANS or (rule is not None and rule.policy == "SHARED"):
            is_whole = not brings_numbers(node) and all(is_real(self._origin(n)) for n in sources)
            return _around(map(self.of, sources), (0.0, 0.0)) if is_whole else _ANY
        if name in _PAIRS and len(sources) == 2:
            return self._pair(node, sources)
        return self._function(node, sources[0]) if len(sources) == 1 else _ANY

    def _function(self, node: fx.Node, source: fx.Node) -> Bounds:
        """Of a function of one value; of any value, if that is not bounded."""
        function = function_of(self.module, source, node)
        if function is None or not is_pointwise(function):
            return _ANY
        low, high = self.of(source)
        places = _OPERANDS[_OPERANDS.clamp(low, high) == _OPERANDS]
        if math.isfinite(low) and math.isfinite(high):
            places = torch.cat([places, torch.linspace(low, high, _PLACES, dtype=torch.float64)])
        return _extremes(function(places))

    def _pair(self, node: fx.Node, sources: list[fx.Node]) -> Bounds:
        (a, b), (c, d) = map(self.of, sources)
        if not all(map(math.isfinite, (a, b, c, d))):
            return _ANY
        if torchapi.target_name(node) == "aten.div.Tensor" and c <= 0 <= d:
            return _ANY
        corners = torch.tensor([[a, a, b, b, 0.0], [c, d, c, d, 0.0 if c <= 0 <= d else c]])
        given = dict(zip(sources, corners.double(), strict=True))
        target: Any = node.target
        args, kwargs = fx.map_arg((node.args, node.kwargs), given.__getitem__)
        return _around([_extremes(target(*args, **kwargs))], (0.0, 0.0))

    def _sum(self, node: fx.Node) -> Bounds:
        """Of a layer: as if each operand had its largest magnitude, with the weight's sign."""
        bound = torchapi.bound_arguments(node)
        most = max(map(abs, self.of(bound["input"])))
        if not math.isfinite(most) or not self._is_known(bound["weight"], bound.get("bias")):
            return _ANY
        weights = known_value(self.module, bound["weight"]).detach()
        rows = weights.transpose(0, role_of(node, "weight").axis).flatten(1)
        sums = torch.linalg.vector_norm(rows, 1, 1, dtype=torch.float64)
        end = float(sums.max()) * most
        if bound.get("bias") is not None:
            end += float(known_value(self.module, bound["bias"]).detach().abs().max())
        return -end, end

    def _likely(self, observer: RangeObserver, sources: list[fx.Node]) -> float:
        """How large parts of spectra and their magnitudes become if operands fill their ranges.

        They are as much larger than what was seen as their operands are; after few inputs, tones
        that were not seen make them a little larger.
        """
        if observer.dtype is not torch.int32:
            return math.inf
        rooms, pending, is_first = list[float](), list(sources), False
        while pending:
            node = pending.pop()
            read = observer_of(node)
            if read is None and not is_weighted(node) and torchapi.target_name(node) not in _ALIKE:
                return math.inf
            if isinstance(read, RangeObserver):
                rooms.append(_room(read))
                is_first |= read.dtype is not torch.int32
            elif read is None:
                pending += node.all_input_nodes
        other = 1 + 1 / (2 * max(len(observer.seen.peaks), 1)) if is_first else 1.0
        return max(map(abs, observer.seen.ends)) * max(rooms, default=math.inf) * other

    def _is_known(self, *operands: fx.Node | None) -> bool:
        """Whether operands are parameters, or are computed of these."""
        return all(n is None or self._origin(n) in self._constants for n in operands)

    def _is_moved(self, source: fx.Node, observer: ObserverBase) -> bool:
        """Whether a value is moved from others that one observer has looked at."""
        rule = RULES.get(torchapi.target_name(source)) if source.op == "call_function" else None
        is_mover = rule is not None and rule.policy == "SHARED" and not brings_numbers(source)
        return is_mover and all(observer_of(n) is observer for n in source.all_input_nodes)

    def _origin(self, node: fx.Node) -> fx.Node:
        """A value behind its observers."""
        while observer_of(node) is not None:
            node = node.all_input_nodes[0]
        return node


def _ends(observer: ObserverBase) -> Bounds:
    if not isinstance(observer, (RangeObserver, FixedQParamsObserver)):
        return _ANY
    scale, zero_point = (float(v) for v in observer.calculate_qparams())
    low, high = observer.quant_min, observer.quant_max
    if low is None or high is None:
        return _ANY
    return (low - zero_point) * scale, (high - zero_point) * scale


def _adds_up(node: fx.Node) -> bool:
    """Whether a call that moves or averages values can give more than the largest of them."""
    bound = torchapi.bound_arguments(node)
    return bool(bound.get("accumulate") or bound.get("divisor_override"))


def _room(observer: RangeObserver) -> float:
    """How much larger a range is than what was seen."""
    most = max(map(abs, observer.seen.ends))
    return max(map(abs, _ends(observer))) / most if most else math.inf


def _extremes(values: Tensor) -> Bounds:
    values = values[~values.isnan()] if values.is_floating_point() else values.new_zeros(0)
    return (float(values.min()), float(values.max())) if values.numel() else _ANY


def _around(found: Iterable[Bounds], *more: Bounds) -> Bounds:
    lows, highs = zip(*found, *more, strict=True)
    return min(lows), max(highs)
