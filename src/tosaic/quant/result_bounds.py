"""Bounds of results: what no value of a call exceeds, be its operand what it may.

A range with room for unseen inputs ends there: at 0 and 6 behind a ReLU6, at -0.375 below a
hardswish, at the extremes of a constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.front.roles import is_weighted
from tosaic.quant.unary_function import function_of, is_pointwise

Bounds = tuple[float, float]
_ANY: Bounds = (-math.inf, math.inf)
_OF_TWO: dict[str, Bounds] = {"aten.atan2.default": (-math.pi, math.pi)}
_POWERS = 2.0 ** torch.arange(-149, 128, dtype=torch.float64)  # of float32
_OPERANDS = torch.cat(
    [-_POWERS, torch.zeros(1), _POWERS, torch.linspace(-8, 8, 2049, dtype=torch.float64)]
)


def bounds_of(module: fx.GraphModule, values: set[fx.Node]) -> Bounds:
    """The bounds of values that calls between them only move."""
    first = [v for v in values if not any(n in values for n in v.all_input_nodes)]
    return _around(_bounds(module, value) for value in first)


def _bounds(module: fx.GraphModule, value: fx.Node) -> Bounds:
    if value.op == "get_attr":
        known = torchapi.attribute(module, str(value.target)).detach()
        is_real = known.is_floating_point() and known.numel()
        low, high = map(float, known.aminmax()) if is_real else _ANY
        return (low, high) if low <= high else _ANY
    if value.op == "call_function" and torchapi.target_name(value) in _OF_TWO:
        return _OF_TWO[torchapi.target_name(value)]
    sources = [n for n in value.all_input_nodes if n.op != "get_attr"]
    if value.op != "call_function" or len(sources) != 1 or is_weighted(value):
        return _ANY
    function = function_of(module, sources[0], value)
    if function is None or not is_pointwise(function):
        return _ANY
    results = function(_OPERANDS)
    results = results[~results.isnan()]
    return (float(results.min()), float(results.max())) if results.numel() else _ANY


def _around(found: Iterable[Bounds]) -> Bounds:
    lows, highs = zip(*found, strict=True)
    return min(lows), max(highs)
