"""Chains of calls that are one function of one value; values inside are not observed."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.front.calls import fuses_activation
from tosaic.front.hints import MARK, mark_of
from tosaic.front.roles import is_real
from tosaic.passes.fuse_unary import Curve, Curves, is_pointwise
from tosaic.passes.match import only_user, values_of
from tosaic.passes.step_lattice import Steps
from tosaic.quant.annotations import ANNOTATION
from tosaic.quant.support import Trial


def curves_in(
    graph: fx.Graph,
    joined: Container[fx.Node],
    scheme: Callable[[fx.Node], Any],
    specs: Callable[[Curve], list[Any]],
    trial: Trial,
    steps: Steps,
) -> dict[fx.Node, Curve]:
    """The calls of a graph that are parts of functions of one value, each with all.

    What is fused with a layer or a sum is no part of one: it is free there, and leaves its value a
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
        return takes(curve, specs(curve), steps) and trial.refuses_curve(curve) is None

    found: dict[fx.Node, Curve] = {}
    curves = Curves(values_of, lambda node: list(node.users), ends)
    for node in reversed(graph.nodes):
        if node in found or node.op != "call_function" or is_other(node):
            continue
        curve = None if scheme(node) is None else curves.to(node, fits)
        if curve is not None:
            found |= dict.fromkeys(curve.calls, curve)
    return found


def takes(curve: Curve, specs: list[Any], steps: Steps) -> bool:
    """Whether a table does what a curve does, by how its result and its sources are observed.

    Of 16 bits it takes what has jumps alone, up to the first value that has a step: what is
    computed of such is exact in any case.
    """
    kinds = {None if spec is None else spec.dtype for spec in specs}
    if kinds == {torch.int8}:
        return True
    if specs[0] is not None and {s and s.dtype for s in specs[1:]} == {torch.int32}:
        return not curve.jumps and specs[0].dtype is not torch.int32  # of a magnitude
    if specs[0] is None:
        return curve.jumps
    if not getattr(specs[0], "step", 0.0) or not curve.jumps:
        return False
    if {spec.dtype for spec in specs[1:]} == {torch.int8}:
        return specs[0].dtype is torch.int16
    inner = (steps.of(call) for call in curve.calls[:-1] if is_real(call))
    return kinds == {torch.int16} and not any(inner)


def _is_rider(node: fx.Node, is_other: Callable[[fx.Node], bool]) -> bool:
    source = next(iter(node.all_input_nodes), node)
    if source.op != "call_function" or only_user(source) is not node:
        return False
    if not fuses_activation(torchapi.target_name(source), torchapi.target_name(node)):
        return False
    several = len([n for n in source.all_input_nodes if values_of(n) is None]) > 1
    return several or is_other(source) or not is_pointwise(source)
