"""Merges products with one constant after another into one product: each would be rounded.

Boxes of detectors are decoded so: offsets times a spread, times the sizes of anchors, over two.
"""

from __future__ import annotations

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.engine import Call, graph_pass, replace
from tosaic.passes.match import BOTH, PRODUCTS, QUOTIENTS, constant_of, hold, name_of, real_type


@graph_pass
def merge_scales(module: fx.GraphModule) -> bool:
    """Calls that multiply what only they read, and that is a product, take both factors."""
    merged = 0
    for node in module.graph.nodes:
        if (outer := _factor(node)) is None or len(outer[0].users) != 1:
            continue
        if (inner := _factor(outer[0])) is None:
            continue
        factor = (inner[1] * outer[1]).to(node.meta["val"].dtype)
        if bool(factor.isfinite().all()):
            held = hold(node, f"_factor_{merged}", factor) if factor.dim() else float(factor)
            replace(node, Call(torch.ops.aten.mul.Tensor, (inner[0], held)))
            merged += 1
    return merged > 0


def _factor(node: fx.Node) -> tuple[fx.Node, Tensor] | None:
    """What a call multiplies by a constant, and the constant."""
    divides = name_of(node) == QUOTIENTS
    if not (divides or name_of(node) == PRODUCTS) or real_type(node) is None:
        return None
    bound = torchapi.bound_arguments(node)
    for one, other in BOTH[: 1 if divides else 2]:
        source, factor = bound[one], constant_of(bound[other])
        if factor is not None and real_type(source) is not None and source.op != "get_attr":
            return source, 1 / factor if divides else factor
    return None
