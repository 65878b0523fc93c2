"""Plans which nodes of an ExecuTorch program become delegates; tags and preprocess share it.

The program may be in ATen or in the edge dialect. ExecuTorch gives a partitioner stand-ins for
parameters; real ones that the partitioner has seen under the same name are put in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

import tosaic.rules  # noqa: F401  (fills the registry)
from tosaic.boundary.memory_order import order_of
from tosaic.boundary.qparams import is_unsigned
from tosaic.errors import Unsupported
from tosaic.executorch.delegates import torch_type
from tosaic.executorch.specs import ArmCompileSpec
from tosaic.front import torchapi
from tosaic.front.program import Program, from_exported, program_of
from tosaic.ir.graph import Graph, Value
from tosaic.lowering.builder import TYPES
from tosaic.lowering.partition import Partition, Piece
from tosaic.lowering.sides import partition
from tosaic.passes.fold_constants import folded
from tosaic.passes.importer import import_model
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.driver import compiled, lowered
from tosaic.spec.dtypes import TensorType

_LIFTED = "_lifted_tensor_constant"  # how ExecuTorch names numbers that it made tensors of
Refuse = Callable[[fx.Node], str | None]


class Plan:
    """Groups of calls that become delegates, each with everything that belongs inside."""

    def __init__(self, graph: fx.Graph, program: Program, partition: Partition) -> None:
        self.program, self.partition = program, partition
        self.calls = [n for n in graph.nodes if n.op == "call_function"]
        self.pieces = [p for p in partition.pieces if p.graph is not None]
        self.group: dict[fx.Node, int] = {}
        for number, piece in enumerate(self.pieces):
            self.group.update(dict.fromkeys(piece.calls, number))
        self._gather()

    def _gather(self) -> None:
        """What PyTorch need not run, such as dequantizing for a group, goes to its readers."""
        runs = {p.node for p in self.partition.pieces}
        for node in reversed(self.calls):
            if node not in self.group and node not in runs:
                readers = {self.group.get(user) for user in node.users}
                if len(readers) == 1 and None not in readers:
                    self.group[node] = next(n for n in readers if n is not None)

    def misfits(self) -> dict[str, str]:
        """Calls whose delegate would not read or give exactly the tensors at its boundary."""
        found: dict[str, str] = {}
        for node, number in self.group.items():
            piece = self.pieces[number]
            for operand in node.all_input_nodes:
                constant = operand.op != "call_function" and operand in self.program.tensors
                if not constant and self.group.get(operand) != number:
                    found.update(self._crossing(node, piece.inputs, piece.graph, operand))
            if any(self.group.get(user) != number for user in node.users):
                found.update(self._crossing(node, piece.outputs, piece.graph, node))
        return found

    def _crossing(
        self, call: fx.Node, known: list[fx.Node], graph: Graph | None, tensor: fx.Node
    ) -> dict[str, str]:
        assert graph is not None
        values = dict(zip(known, graph.outputs if call is tensor else graph.inputs))
        if tensor not in values:
            return {call.name: f"{tensor.name} is read as real numbers outside of the delegate too"}
        reason = mismatch(tensor, values[tensor])
        return {call.name: reason} if reason else {}


def mismatch(node: fx.Node, value: Value) -> str | None:
    """Why the bytes of a tensor of PyTorch are not those of a value of TOSA."""
    example = node.meta.get("val")
    kind = torch.uint8 if is_unsigned(node) else torch_type(value)
    if isinstance(example, Tensor) and example.dtype is kind:
        plain = example.is_contiguous() or order_of(node) is not None
        return None if plain else f"{node.name} lies in memory in an order that TOSA does not have"
    given = getattr(example, "dtype", type(example).__name__)
    return f"{node.name} is {given} outside of the delegate and {value.dtype} inside"


def plan_of(
    exported: ExportedProgram, spec: ArmCompileSpec, seen: Mapping[str, Tensor], refuse: Refuse
) -> Plan:
    """Every group that can become a delegate as it stands in the program."""
    program = _real(exported, seen)
    kept = {n.name: reason for n in program.calls if (reason := refuse(n)) is not None}
    while True:
        plan = Plan(exported.graph, program, _partition(program, spec, kept))
        misfits = plan.misfits()
        if not misfits:
            return plan
        kept |= misfits


def _real(exported: ExportedProgram, seen: Mapping[str, Tensor]) -> Program:
    """The program's calls, with tensors that have values in place of stand-ins."""
    program, signature = from_exported(exported), exported.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    for node, tensor in program.tensors.items():
        program.tensors[node] = _with_values(names.get(node.name, ""), tensor, seen)
    return _with_numbers(program)


def _with_numbers(program: Program) -> Program:
    """Numbers where ExecuTorch made tensors of them, as the rules have numbers for operands."""
    numbers: dict[fx.Node, Any] = {
        n: t for n, t in program.tensors.items() if n.name.startswith(_LIFTED) and t.dim() == 0
    }
    for node in program.calls:
        if node.all_input_nodes and all(n in numbers for n in node.all_input_nodes):
            made = folded(node, numbers)
            if isinstance(made, Tensor) and made.dim() == 0:
                numbers[node] = made
    tensors = program.tensors | {n: t.item() for n, t in numbers.items()}
    return replace(
        program, calls=[n for n in program.calls if n not in numbers], tensors=tensors, users={}
    )


def _with_values(name: str, tensor: Tensor, seen: Mapping[str, Tensor]) -> Tensor:
    if not torchapi.is_stand_in(tensor):
        return tensor
    known = seen.get(name)
    if known is not None and known.shape == tensor.shape and known.dtype is tensor.dtype:
        return known
    # Any value serves to ask what can be lowered; one is a legal scale and a legal divisor.
    return torch.ones((), dtype=tensor.dtype).expand(tuple(tensor.shape))


def _partition(program: Program, spec: ArmCompileSpec, kept: Mapping[str, str]) -> Partition:
    return partition(program, spec.device, kept=kept)


def whole_graph(exported: ExportedProgram, spec: ArmCompileSpec) -> Graph:
    """The one graph that a delegate's program becomes, its boundary in the program's order."""
    program = _real(exported, {})
    found = lowered(program, spec.device, {})
    pieces = [p for p in found.pieces if p.graph is not None]
    if len(pieces) != 1 or len(found.pieces) != 1:
        reason = str(found.refused[0]) if found.refused else "it is not one group"
        raise Unsupported(f"the delegated program does not lower as a whole: {reason}")
    return _ordered(program, pieces[0])


def compiled_artifact(exported: ExportedProgram, spec: ArmCompileSpec) -> Artifact:
    """The whole program as an artifact: what the target takes, and PyTorch round it."""
    program = program_of(import_model(exported, ()))
    found, delegates, _ = compiled(program, spec.device)
    return Artifact(program, found, spec.target, delegates, made_for=spec.device)


def _ordered(program: Program, piece: Piece) -> Graph:
    """Put the boundary of a graph in the program's order, inputs that nothing reads included."""
    graph = piece.graph
    assert graph is not None
    inputs, outputs = dict(zip(piece.inputs, graph.inputs)), dict(zip(piece.outputs, graph.outputs))
    graph.inputs = [inputs.get(n) or _unread(n) for n in program.inputs]
    graph.outputs = [outputs[n] for n in program.outputs]
    for node, value in (*zip(program.inputs, graph.inputs), *zip(program.outputs, graph.outputs)):
        reason = mismatch(node, value)
        if reason:
            raise Unsupported(reason)
    return graph


def _unread(node: fx.Node) -> Value:
    """An input that nothing reads: the runtime gives it all the same."""
    example = node.meta["val"]
    kind = TYPES.get(torch.int8 if is_unsigned(node) else example.dtype)
    if kind is None:
        raise Unsupported(f"{node.name} is {example.dtype}, which TOSA does not have")
    return Value(TensorType(kind, tuple(example.shape)), node.name)
