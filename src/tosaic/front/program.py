"""A PyTorch program as Tosaic sees it: calls in order, its tensors, its inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from tosaic.errors import InvalidInput, Unsupported
from tosaic.front import torchapi


@dataclass(slots=True)
class Program:
    """An exported or converted program. ``tensors`` are its parameters, buffers and constants."""

    calls: list[fx.Node]
    inputs: list[fx.Node]
    outputs: list[Any]
    tensors: dict[fx.Node, Tensor]
    out_spec: Any
    users: dict[fx.Node, list[fx.Node]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.calls:
            for argument in node.all_input_nodes:
                self.users.setdefault(argument, []).append(node)


def program_of(model: Any, example_inputs: tuple[Any, ...]) -> Program:
    """A program from a module, an exported program or a converted graph module."""
    if isinstance(model, fx.GraphModule):
        return _from_graph_module(model)
    if isinstance(model, torch.nn.Module):
        model = torchapi.export(model, example_inputs)
    if not isinstance(model, ExportedProgram):
        raise InvalidInput(
            f"a model is an nn.Module, an ExportedProgram or a converted GraphModule, "
            f"not {type(model).__name__}"
        )
    return _from_exported(model)


def _from_graph_module(module: fx.GraphModule) -> Program:
    nodes = list(module.graph.nodes)
    tensors = {n: torchapi.attribute(module, str(n.target)) for n in nodes if n.op == "get_attr"}
    inputs = [n for n in nodes if n.op == "placeholder"]
    outputs, _ = torchapi.flatten(nodes[-1].args[0])
    spec = getattr(module, "_out_spec", None)
    return Program(_calls(nodes), inputs, outputs, tensors, spec)


def _from_exported(exported: ExportedProgram) -> Program:
    nodes = {n.name: n for n in exported.graph.nodes}
    tensors, inputs = {}, []
    for spec in exported.graph_signature.input_specs:
        node = nodes[spec.arg.name]
        if spec.kind is InputKind.USER_INPUT:
            inputs.append(node)
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            tensors[node] = (
                exported.state_dict.get(spec.target)
                if (spec.target in exported.state_dict)
                else exported.constants[spec.target]
            )
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            tensors[node] = exported.constants[spec.target]
    outputs = []
    for out in exported.graph_signature.output_specs:
        if out.kind is not OutputKind.USER_OUTPUT:
            raise Unsupported(f"the program changes {out.target}, which is not lowered yet")
        outputs.append(nodes.get(getattr(out.arg, "name", ""), getattr(out.arg, "value", None)))
    return Program(
        _calls(list(exported.graph.nodes)), inputs, outputs, tensors, exported.call_spec.out_spec
    )


def _calls(nodes: list[fx.Node]) -> list[fx.Node]:
    """The calls of operators; guards that torch adds to a program are none."""
    return [n for n in nodes if n.op == "call_function"]
