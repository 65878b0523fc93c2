"""Roles of operands: activation, weight, bias or constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.registry import RULES


@dataclass(frozen=True, slots=True)
class Role:
    """An activation, a bias, a weight with its axis of output channels, or a number left alone."""

    kind: Literal["activation", "weight", "bias", "constant"] = "activation"
    axis: int = 0


def role_of(call: fx.Node, argument: str) -> Role:
    """The role of an argument by its name in the operator's schema."""
    rule = RULES.get(torchapi.target_name(call))
    if rule is None:
        return Role()
    bound = torchapi.bound_arguments(call)
    if rule.policy == "WEIGHTED" and argument == "weight":
        return Role("weight", 1 if bound.get("transposed") else rule.weight_axis)
    if rule.policy == "WEIGHTED" and argument == "bias":
        return Role("bias")
    if argument in rule.masks:
        return Role("constant" if _is_constant(bound[argument]) else "activation")
    first = next(iter(bound))
    return Role("constant") if rule.constants and argument != first else Role()


def is_weighted(node: fx.Node) -> bool:
    """Whether a call is a layer: sums of products with a weight."""
    rule = RULES.get(torchapi.target_name(node)) if node.op == "call_function" else None
    return rule is not None and rule.policy == "WEIGHTED"


def _is_constant(argument: object) -> bool:
    """Whether a value is a parameter or a buffer, or is computed from nothing else."""
    if not isinstance(argument, fx.Node):
        return False
    inputs = argument.all_input_nodes
    if argument.op == "call_function":
        return bool(inputs) and all(_is_constant(n) for n in inputs)
    return argument.op == "get_attr"


def is_real(node: fx.Node) -> bool:
    """Whether it is a tensor of floating-point numbers: integers and masks are not quantized."""
    example = node.meta.get("val")
    return isinstance(example, Tensor) and example.dtype.is_floating_point
