"""Reads parameters and buffers of one element as numbers, as converters of other formats hold them.

An exponent of 2, an epsilon or a factor in a tensor of its own hides norms, squares and functions
from the passes that recognise them. What is trained stays a tensor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from tosaic.front import torchapi
from tosaic.passes.match import ADDS, PRODUCTS, QUOTIENTS, name_of, rank_of, real_type

aten = torch.ops.aten
_POWER = "aten.pow.Tensor_Tensor"
_CALLS = frozenset({ADDS, PRODUCTS, QUOTIENTS, "aten.sub.Tensor", _POWER})
_COMMUTES = frozenset({ADDS, PRODUCTS})


def number_constants(exported: ExportedProgram) -> None:
    """Put numbers in the place of constants of one element, in calls on a tensor and a number."""
    signature = exported.graph_signature
    targets = {
        **signature.inputs_to_parameters, **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }  # fmt: skip
    values: dict[str, Any] = {**exported.constants, **exported.state_dict}
    for node in exported.graph.find_nodes(op="placeholder"):
        held = values.get(targets.get(node.name, ""))
        if isinstance(held, Tensor) and held.numel() == 1 and _is_known(held):
            for user in list(node.users):
                _read_as(user, node, held)


def _is_known(held: Tensor) -> bool:
    is_plain = held.device.type == "cpu" and not torchapi.is_stand_in(held)
    return is_plain and held.is_floating_point() and not held.requires_grad


def _read_as(call: fx.Node, constant: fx.Node, held: Tensor) -> None:
    """A call reads a constant as a number, if its other operand has the type and rank it gives."""
    name = name_of(call)
    if name not in _CALLS:
        return
    bound = torchapi.bound_arguments(call)
    one, other, *rest = bound.values()
    if one is constant and name in _COMMUTES and bound.get("alpha", 1) == 1:
        one, other = other, one
    if other is not constant or one is constant or not isinstance(one, fx.Node):
        return
    kind = real_type(one)
    if kind is None or kind != real_type(call) or rank_of(one) < held.dim():
        return
    number = float(held)
    if name == _POWER:
        call.target = aten.pow.Tensor_Scalar
        number = int(number) if number.is_integer() else number
    call.args, call.kwargs = (one, number), {"alpha": bound["alpha"]} if rest else {}
