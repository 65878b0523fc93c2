"""Quantization annotations of nodes: operands by role, specifications of inputs and outputs."""

from __future__ import annotations

from typing import Any

from torch import fx

from tosaic.front import torchapi
from tosaic.front.roles import is_real, role_of
from tosaic.passes.match import only_user
from tosaic.quant.pt2e import QuantizationAnnotation

ANNOTATION = "quantization_annotation"  # where torchao keeps it


def annotate_ends(graph: fx.Graph, spec: Any) -> None:
    """Let the real inputs and outputs of a graph be what a specification says; others stay."""
    for node in graph.nodes:
        if ANNOTATION in node.meta:
            continue
        if node.op == "placeholder" and is_real(node):
            node.meta[ANNOTATION] = annotation({}, spec)
        elif node.op == "output":
            read = {n: spec for n in node.all_input_nodes if is_real(n)}
            node.meta[ANNOTATION] = annotation(read, None)


def inputs_of(node: fx.Node) -> dict[fx.Node, Any]:
    """What a call reads its operands as."""
    found: dict[fx.Node, Any] = (
        node.meta[ANNOTATION].input_qspec_map if ANNOTATION in node.meta else {}
    )
    return found


def brings_numbers(node: fx.Node) -> bool:
    """Whether a call writes a number of its own beside what it moves, as padding does."""
    value = torchapi.bound_arguments(node).get("value", 0)
    return isinstance(value, (int, float)) and value != 0


def operands_of(node: fx.Node, kind: str) -> list[fx.Node]:
    """The tensors of real numbers that a call reads in that role."""
    bound = torchapi.bound_arguments(node)
    flat = [(role_of(node, name), v) for name, value in bound.items() for v in _leaves(value)]
    return [v for role, v in flat if role.kind == kind and is_real(v)]


def _leaves(value: Any) -> list[fx.Node]:
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value] if isinstance(value, fx.Node) else []


def annotation(inputs: dict[fx.Node, Any], output: Any) -> QuantizationAnnotation:
    return QuantizationAnnotation(input_qspec_map=inputs, output_qspec=output, _annotated=True)


def norm_of(node: fx.Node) -> fx.Node | None:
    """The batch norm that alone reads a convolution's result, and becomes part of it."""
    user = only_user(node)
    if user is None or torchapi.target_name(user) != "aten.batch_norm.default":
        return None
    return user if torchapi.target_name(node).startswith("aten.conv") else None
