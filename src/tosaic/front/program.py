"""A PyTorch program: calls in order, tensors, inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.imported import Imported


@dataclass(slots=True)
class Program:
    """An exported or converted program. ``tensors`` are its parameters, buffers and constants.

    ``inputs`` are the leaves of the user's arguments, then the buffers in ``states``, each with
    its first value. ``outputs`` are the leaves of the result, then the new values of the states,
    then those of the inputs at the positions in ``written``. ``names`` are those of the results,
    where they are known from elsewhere.
    """

    calls: list[fx.Node]
    inputs: list[fx.Node]
    outputs: list[Any]
    tensors: dict[fx.Node, Tensor]
    in_spec: Any = None
    out_spec: Any = None
    regions: dict[fx.Node, fx.GraphModule] = field(default_factory=dict)
    states: tuple[tuple[str, Tensor], ...] = ()
    written: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    users: dict[fx.Node, list[fx.Node]] = field(default_factory=dict)
    results: set[fx.Node] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.results = {n for n in self.outputs if isinstance(n, fx.Node)}
        self._drop_unread()
        for node in self.calls:
            for argument in node.all_input_nodes:
                self.users.setdefault(argument, []).append(node)

    def _drop_unread(self) -> None:
        """Calls only make new values here, so one that nothing reads has no effect."""
        read = set(self.results)
        for node in reversed(self.calls):
            if node in read:
                read.update(node.all_input_nodes)
        self.calls = [node for node in self.calls if node in read]

    @property
    def changes(self) -> int:
        """How many of the outputs are new values of buffers and inputs."""
        return len(self.states) + len(self.written)

    @property
    def arguments(self) -> list[fx.Node]:
        """The inputs that the user gives."""
        return self.inputs[: len(self.inputs) - len(self.states)]


def program_of(source: Imported) -> Program:
    """A program from what was imported."""
    graph = source.model
    made = from_exported(graph) if isinstance(graph, ExportedProgram) else from_module(graph)
    made.in_spec, made.out_spec = source.in_spec, source.out_spec
    made.states, made.written = source.changes.states, source.changes.written
    made.names = source.outputs
    _check_static(made)
    return made


def from_module(module: fx.GraphModule) -> Program:
    """A program from a graph that holds its tensors itself: converted, or a region."""
    nodes = list(module.graph.nodes)
    found = {n: torchapi.attribute(module, str(n.target)) for n in nodes if n.op == "get_attr"}
    inputs = [n for n in nodes if n.op == "placeholder"]
    outputs, _ = torchapi.flatten(nodes[-1].args[0])
    return Program(_calls(nodes), inputs, outputs, _tensors(found), regions=_regions(found))


def from_exported(exported: ExportedProgram) -> Program:
    """A program from a graph whose tensors are inputs."""
    nodes = {n.name: n for n in exported.graph.nodes}
    tensors, inputs = {}, []
    for spec in exported.graph_signature.input_specs:
        node = nodes[spec.arg.name]
        if spec.kind is InputKind.USER_INPUT:
            inputs.append(node)
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            tensors[node] = (
                exported.state_dict[spec.target]
                if spec.target in exported.state_dict
                else exported.constants[spec.target]
            )
        else:
            what = spec.kind.name.lower().replace("_", " ")
            if isinstance(exported.constants.get(str(spec.target)), torch.Generator):
                what = "torch.Generator, whose numbers belong into a buffer or an input"
            raise InvalidInput(f"the program takes a {what} ({spec.target}), which is no tensor")
    found = {
        n: torchapi.attribute(exported.graph_module, str(n.target))
        for n in nodes.values() if n.op == "get_attr"
    }  # fmt: skip
    outputs = [
        nodes.get(getattr(out.arg, "name", ""), getattr(out.arg, "value", None))
        for out in exported.graph_signature.output_specs
    ]
    calls = _calls(list(exported.graph.nodes))
    return Program(calls, inputs, outputs, tensors | _tensors(found), regions=_regions(found))


def _tensors(found: dict[fx.Node, Any]) -> dict[fx.Node, Tensor]:
    return {n: v for n, v in found.items() if isinstance(v, Tensor)}


def _regions(found: dict[fx.Node, Any]) -> dict[fx.Node, fx.GraphModule]:
    return {n: v for n, v in found.items() if isinstance(v, fx.GraphModule)}


def _calls(nodes: list[fx.Node]) -> list[fx.Node]:
    """The calls of operators; guards that torch adds to a program are none."""
    return [n for n in nodes if n.op == "call_function"]


def _check_static(program: Program) -> None:
    """TOSA 1.0 has sizes that are known; the sentence names the one that is not."""
    for number, node in enumerate(program.arguments):
        example = node.meta.get("val")
        sizes: tuple[Any, ...] = tuple(example.shape) if isinstance(example, Tensor) else ()
        for axis, size in enumerate(sizes):
            if torchapi.known_size(size) is None:
                raise InvalidInput(
                    f"dimension {axis} of input {number} ({node.name}) is dynamic, and TOSA's "
                    "sizes are fixed: export it without dynamic_shapes, or compile with sizes=[...]"
                )
        if isinstance(example, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise InvalidInput(
                f"input {number} ({node.name}) is a number that may change, and TOSA's sizes are "
                "fixed: export it as a constant"
            )
