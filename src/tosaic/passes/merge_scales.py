"""Products with one constant after another are one product: each would be rounded.

Boxes of detectors are decoded so: offsets times a spread, times the sizes of anchors, over two.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.match import PRODUCTS, QUOTIENTS, hold, values_of


def join_factors(module: fx.GraphModule) -> None:
    """Calls that multiply what only they read, and that is a product, take both factors."""
    joined = 0
    for node in module.graph.nodes:
        if (outer := _factor(node)) is None or len(outer[0].users) != 1:
            continue
        if (inner := _factor(outer[0])) is None:
            continue
        factor = (inner[1].double() * outer[1].double()).to(node.meta["val"].dtype)
        if not bool(factor.isfinite().all()):
            continue
        node.target, node.kwargs = torch.ops.aten.mul.Tensor, {}
        held = hold(node, f"_factor_{joined}", factor) if factor.dim() else float(factor)
        node.args = (inner[0], held)
        joined += 1
    if joined:
        module.graph.eliminate_dead_code()
        module.recompile()


def _factor(node: fx.Node) -> tuple[fx.Node, Tensor] | None:
    """What a call multiplies by a constant, and the constant."""
    name = torchapi.target_name(node) if node.op == "call_function" else ""
    if name not in PRODUCTS + QUOTIENTS or not node.meta["val"].is_floating_point():
        return None
    bound = torchapi.bound_arguments(node)
    for one, other in (("self", "other"), ("other", "self")):
        source, factor = bound[one], _constant(bound[other])
        is_computed = isinstance(source, fx.Node) and source.op != "get_attr"
        if is_computed and factor is not None and source.meta["val"].is_floating_point():
            return source, 1 / factor if name in QUOTIENTS else factor
        if name in QUOTIENTS:
            break
    return None


def _constant(value: Any) -> Tensor | None:
    if isinstance(value, fx.Node):
        known = values_of(value)
        return known.detach().double() if known is not None and known.is_floating_point() else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return torch.tensor(float(value), dtype=torch.float64)
    return None
