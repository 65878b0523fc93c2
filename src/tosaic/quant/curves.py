"""Calls that are one function of one value: nothing between them is observed."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.front.calls import rides
from tosaic.front.curves import Curve, Curves, is_pointwise
from tosaic.front.marks import MARK, mark_of
from tosaic.quant.annotations import ANNOTATION, only_user, values_of
from tosaic.quant.trial import Trial


def curves_in(
    graph: fx.Graph,
    joined: Container[fx.Node],
    scheme: Callable[[fx.Node], Any],
    specs: Callable[[Curve], list[Any]],
    trial: Trial,
) -> dict[fx.Node, Curve]:
    """The calls of a graph that are parts of int8 functions of one int8 value, each with all.

    What rides on a layer or a sum is no part of one: it is free there, and leaves its value a
    smaller range. ``joined`` are sums of accumulators.
    """

    def is_other(node: fx.Node) -> bool:
        return ANNOTATION in node.meta or MARK in node.meta or node in joined

    def ends(node: fx.Node) -> bool:
        return is_other(node) or _is_rider(node, is_other)

    def fits(curve: Curve) -> bool:
        wide = any(mark_of(n).wide or mark_of(n).carried for n in curve.sources)
        if wide or any(scheme(call) != scheme(curve.last) for call in curve.calls):
            return False
        is_byte = all(spec.dtype is torch.int8 for spec in specs(curve))
        return is_byte and trial.refuses_curve(curve) is None

    found: dict[fx.Node, Curve] = {}
    curves = Curves(values_of, lambda node: list(node.users), ends)
    for node in reversed(graph.nodes):
        if node in found or node.op != "call_function" or is_other(node):
            continue
        curve = None if scheme(node) is None else curves.to(node, fits)
        if curve is not None:
            found |= dict.fromkeys(curve.calls, curve)
    return found


def _is_rider(node: fx.Node, is_other: Callable[[fx.Node], bool]) -> bool:
    source = next(iter(node.all_input_nodes), node)
    if source.op != "call_function" or only_user(source) is not node:
        return False
    if not rides(torchapi.target_name(source), torchapi.target_name(node)):
        return False
    several = len([n for n in source.all_input_nodes if values_of(n) is None]) > 1
    return several or is_other(source) or not is_pointwise(source)
