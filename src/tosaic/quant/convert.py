"""Replaces observers by quantize and dequantize calls, as convert_pt2e does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (registers the operators)

from tosaic.front import torchapi
from tosaic.lowering.support import constants
from tosaic.passes.match import free_name
from tosaic.quant.annotations import ANNOTATION
from tosaic.quant.pt2e import ObserverBase

_KEPT = "nn_module_stack", "stack_trace"
_QUANTIZE = {f"quantized_decomposed.quantize_per_{kind}.default" for kind in ("tensor", "channel")}


def convert(module: fx.GraphModule) -> fx.GraphModule:
    """What ``convert_pt2e`` does after training."""
    graph = module.graph
    for node in list(graph.nodes):
        if node.op != "call_module":
            continue
        observer: Any = module.get_submodule(str(node.target))
        if hasattr(observer, "convert"):
            observer.convert(module, node)
        elif isinstance(observer, ObserverBase):
            _replace(graph, node, observer)
    for name, part in list(module.named_children()):
        if isinstance(part, ObserverBase):
            delattr(module, name)
    _fold(module)
    torchapi.sweep(graph)
    module.recompile()
    return module


def _fold(module: fx.GraphModule) -> None:
    """Integers in place of parameters that are quantized, be it after other calls."""
    graph, known = module.graph, constants(module.graph)
    values: dict[fx.Node, Any] = {}
    wanted = _behind(node for node in known if torchapi.target_name(node) in _QUANTIZE)
    for number, node in enumerate(list(graph.nodes)):
        if node not in wanted:
            continue
        if node.op == "get_attr":
            values[node] = torchapi.attribute(module, str(node.target))
        else:
            values[node] = torchapi.computed(node, values)
        if torchapi.target_name(node) in _QUANTIZE:
            name = free_name(module, f"_levels_{number}")
            module.register_buffer(name, values[node])
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.get_attr(name))


def _behind(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """Nodes, and all that they are computed from."""
    found, left = set[fx.Node](), list(nodes)
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left += node.all_input_nodes
    return found


def _replace(graph: fx.Graph, node: fx.Node, observer: Any) -> None:
    """One quantize call, and a dequantize call for each reader that is quantized."""
    operators, source = torch.ops.quantized_decomposed, node.all_input_nodes[0]
    scale, zero_point = observer.calculate_qparams()
    meaning = (
        float(scale), int(zero_point), observer.quant_min, observer.quant_max, observer.dtype
    )  # fmt: skip
    example: Any = source.meta.get("val")
    real = isinstance(example, torch.Tensor) and example.dtype is not torch.float32
    options = {"out_dtype": example.dtype} if real else {}
    with graph.inserting_before(node):
        levels = graph.call_function(operators.quantize_per_tensor.default, (source, *meaning))
        levels.meta = {k: source.meta[k] for k in _KEPT if k in source.meta}
        again = graph.call_function(
            operators.dequantize_per_tensor.default, (levels, *meaning), options
        )
    node.replace_all_uses_with(again)
    graph.erase_node(node)
    for user in list(again.users) if len(again.users) > 1 else ():
        if ANNOTATION in user.meta:
            with graph.inserting_before(again):
                own = graph.node_copy(again)
            user.replace_input_with(again, own)
    if not again.users:
        graph.erase_node(again)
