"""Block-scaled (MX) schemes: layers become calls of operators that round in blocks of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.front.imported import Imported
from tosaic.front.precision import CHOICE
from tosaic.lowering.target import Target
from tosaic.passes.engine import Call, Pass, Replacement, run, visit
from tosaic.passes.fold_affine import linear_of_matmul
from tosaic.passes.fold_batch_norm import LAYERS, fold_norm_into_layer
from tosaic.passes.fold_constants import fold_constants
from tosaic.passes.match import rank_of, values_of
from tosaic.quant.schemes import BlockScheme
from tosaic.quant.selection import Schemes, check_names, choice_of
from tosaic.spec.dtypes import BLOCK

aten = torch.ops.aten


def with_block_layers(source: Imported, schemes: Schemes, target: Target) -> Imported:
    """The program with layers as block-scaled calls, where a scheme says so; nothing is calibrated.

    Batch norms go into the layer before them first.
    """
    schemes.check(target.env)
    module = torchapi.module_of(source.model)
    check_names(module, schemes)

    def block_layers(node: fx.Node) -> Replacement:
        return _block_layer(node, schemes)

    to_blocks = Pass("block_layers", lambda part: visit(part.graph, [block_layers], LAYERS))
    run(module, (fold_constants, linear_of_matmul, fold_norm_into_layer, to_blocks))
    return source.with_model(module)


def _block_layer(node: fx.Node, schemes: Schemes) -> Replacement:
    choice = choice_of(node, schemes)
    if not isinstance(choice.scheme, BlockScheme):
        return None
    bound, element = torchapi.bound_arguments(node), choice.scheme.element.name
    reason = _refusal(node, bound)
    node.meta[CHOICE] = choice.refused(reason) if reason else choice
    if reason:
        return None
    if torchapi.target_name(node) == "aten.linear.default":
        operands = (bound["input"], bound["weight"], bound["bias"], element)
        return Call(torchapi.MX_LINEAR, operands)
    return _convolution(node, bound, element)


def _refusal(node: fx.Node, bound: dict[str, Any]) -> str:
    """Why a layer stays in float; "" if it does not."""
    if values_of(bound["weight"]) is None:
        return "its weights are computed, and are rounded when the model is compiled"
    axes = rank_of(bound["weight"]) - 2
    if "transpose" in torchapi.target_name(node) or bound.get("transposed"):
        return "TOSA has no transposed convolution in block-scaled types"
    if axes == 3:
        return "TOSA has no convolution over three axes in block-scaled types"
    share = bound["weight"].meta["val"].shape[1]
    if int(bound.get("groups", 1)) > 1 and share < BLOCK:
        return f"its groups have {share} channels, and {BLOCK} of them share a scale"
    return ""


def _convolution(node: fx.Node, bound: dict[str, Any], element: str) -> Replacement:
    """Over two axes; one axis becomes two, and uneven padding a call of its own."""
    x, weight, axes = bound["input"], bound["weight"], rank_of(bound["weight"]) - 2
    stride, dilation = (_each(bound[name], axes) for name in ("stride", "dilation"))
    pads = _pads(bound["padding"], weight.meta["val"].shape[2:], dilation)
    if any(before != after for before, after in pads):
        listed = [n for pair in reversed(pads) for n in pair]
        x = torchapi.new_call(node, aten.constant_pad_nd.default, (x, listed, 0.0))
        pads = [(0, 0)] * axes
    padding = [before for before, _ in pads]
    if axes == 2:
        return Call(torchapi.MX_CONV2D, (
            x, weight, bound["bias"], stride, padding, dilation, bound["groups"], element,
        ))  # fmt: skip
    x = torchapi.new_call(node, aten.unsqueeze.default, (x, -2))
    weight = torchapi.new_call(node, aten.unsqueeze.default, (weight, -2))
    y = torchapi.new_call(node, torchapi.MX_CONV2D, (
        x, weight, bound["bias"], [1, *stride], [0, *padding], [1, *dilation], bound["groups"],
        element,
    ))  # fmt: skip
    return Call(aten.squeeze.dim, (y, -2))


def _each(values: Any, axes: int) -> list[int]:
    given = [int(n) for n in values]
    return given * axes if len(given) == 1 else given


def _pads(given: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    if given == "valid":
        return [(0, 0)] * len(dilation)
    if given == "same":
        totals = [(k - 1) * n for k, n in zip(kernel, dilation)]
        return [(t // 2, t - t // 2) for t in totals]
    return [(n, n) for n in _each(given, len(dilation))]
