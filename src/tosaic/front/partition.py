"""What of a program becomes TOSA, in which groups, and why the rest does not.

Every call runs its rule once. What is accepted forms groups: calls between which no path leads
through PyTorch. A call's level counts how often the way to it changes sides, so the accepted
calls of one level are such a group, and as large as can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.lower import TYPES, Lowering
from tosaic.front.program import Program
from tosaic.front.walk import DEQUANTIZE, QUANTIZE, Walker, parameters
from tosaic.ir.graph import Graph, Value
from tosaic.spec.dtypes import TensorType
from tosaic.spec.env import Env


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that stays in PyTorch: its operator, the reason, and where the user wrote it."""

    op: str
    reason: str
    where: str
    node: str = ""

    def __str__(self) -> str:
        return f"{self.op}: {self.reason}" + (f" (at {self.where})" if self.where else "")


@dataclass(slots=True)
class Piece:
    """A part of a program that runs in one place: a graph, or one call of PyTorch.

    An order says which axis of a tensor is which of the graph's, where they are not the same.
    """

    node: fx.Node | None = None
    graph: Graph | None = None
    inputs: list[fx.Node] = field(default_factory=list)
    outputs: list[fx.Node] = field(default_factory=list)
    input_orders: list[tuple[int, ...] | None] = field(default_factory=list)
    output_orders: list[tuple[int, ...] | None] = field(default_factory=list)
    calls: list[fx.Node] = field(default_factory=list)  # that a graph was made of


@dataclass(slots=True)
class Partition:
    """Pieces in an order in which they can run, and why PyTorch keeps what it keeps."""

    pieces: list[Piece]
    refused: list[Refusal]

    @property
    def graphs(self) -> list[Graph]:
        return [p.graph for p in self.pieces if p.graph is not None]


def partition(
    program: Program,
    env: Env,
    *,
    expose: bool = False,
    kept: Mapping[str, str] = MappingProxyType({}),
) -> Partition:
    """Split a program into TOSA graphs and what PyTorch runs round them.

    With ``expose`` the graphs give every value that they compute. ``kept`` are calls that PyTorch
    keeps whatever their rules say, by the name of the node, with the reason.
    """
    return _Partitioner(program, env, expose, kept).run()


def _output(b: Lowering, value: Any, name: str) -> Value:
    """A value under its own name; an input, a constant or an output already is copied first."""
    if not isinstance(value, Value):
        raise Unsupported(f"{name} is no tensor, so no graph can give it")
    if value.producer is None or value in b.graph.outputs:
        value = b.marked(b.IDENTITY(value), value.quant)
    result: Value = value
    result.name = name
    return result


class _Partitioner:
    def __init__(self, program: Program, env: Env, expose: bool, kept: Mapping[str, str]) -> None:
        self.program, self.env, self.expose, self.kept = program, env, expose, kept
        self.trial = Walker(program, env)
        self.accepted: set[fx.Node] = set()
        self.refused: list[Refusal] = []
        self.level: dict[fx.Node, int] = {}

    def run(self) -> Partition:
        for node in self.program.inputs:
            self._outside(node)
        for node in self.program.calls:
            self._try(node)
            self._place(node)
        return Partition(self._pieces(), self.refused)

    def _try(self, node: fx.Node) -> None:
        """Run the rule of a call; a boundary quantize is PyTorch's, and no refusal."""
        target = torchapi.target_name(node)
        if target == QUANTIZE and not self._is_inside(node.args[0]):
            self._boundary(node)
            return
        try:
            with self.trial.b.scratch() as scratch:
                if node.name in self.kept:
                    raise Unsupported(self.kept[node.name])
                self.trial.call(node)
                scratch.commit()
        except Unsupported as refusal:
            place = torchapi.location(node).place
            self.refused.append(Refusal(target, refusal.reason, place, node.name))
            self._outside(node)
            return
        if target not in DEQUANTIZE:
            self.accepted.add(node)

    def _is_inside(self, node: Any) -> bool:
        return self.source(node) in self.accepted

    def source(self, node: fx.Node) -> fx.Node:
        """The node that a value comes from: dequantizing only says what integers mean."""
        while node.op == "call_function" and torchapi.target_name(node) in DEQUANTIZE:
            node = node.all_input_nodes[0]
        return node

    def _boundary(self, node: fx.Node) -> None:
        """PyTorch quantizes; the integers it gives are an input."""
        quant, kind = parameters(torchapi.bound_arguments(node))
        example = node.args[0].meta.get("val") if isinstance(node.args[0], fx.Node) else None
        if isinstance(example, torch.Tensor):
            value = Value(TensorType(kind, tuple(example.shape)), node.name, quant=quant)
            self.trial.take(node, value)

    def _outside(self, node: fx.Node) -> None:
        """A value that PyTorch computes, as far as TOSA can hold such a value."""
        example = node.meta.get("val")
        if not isinstance(example, torch.Tensor):
            return
        kind = TYPES.get(example.dtype)
        if kind is None or not all(isinstance(n, int) for n in example.shape):
            return
        self.trial.take(node, Value(TensorType(kind, tuple(example.shape)), node.name))

    def _place(self, node: fx.Node) -> None:
        """Count how often the way to a call changes between TOSA and PyTorch."""
        inside, level = node in self.accepted, 0
        for argument in map(self.source, node.all_input_nodes):
            if argument in self.level:
                crossing = (argument in self.accepted) is not inside
                level = max(level, self.level[argument] + crossing)
            elif argument not in self.program.tensors and inside:
                level = max(level, 1)
        self.level[node] = level

    def _pieces(self) -> list[Piece]:
        levels: dict[int, list[fx.Node]] = {}
        for node in self.program.calls:
            levels.setdefault(self.level[node], []).append(node)
        pieces: list[Piece] = []
        for level in sorted(levels):
            inside = [n for n in levels[level] if n in self.accepted]
            outside = [n for n in levels[level] if n not in self.accepted and self._runs(n)]
            pieces += [Piece(n, inputs=n.all_input_nodes, outputs=[n]) for n in outside]
            if inside:
                pieces.append(self._group(inside))
        return pieces

    def _runs(self, node: fx.Node) -> bool:
        """Whether PyTorch has to call a node: not if it only dequantizes for TOSA."""
        if torchapi.target_name(node) not in DEQUANTIZE or node in self.program.outputs:
            return True
        users = self.program.users.get(node, [])
        return any(u not in self.accepted and self._runs(u) for u in users)

    def _group(self, nodes: list[fx.Node]) -> Piece:
        """Lower the calls of one level together, from what they read to what others read."""
        walker, members = Walker(self.program, self.env), set(nodes)
        inputs: list[fx.Node] = []
        for node in nodes:
            for argument in node.all_input_nodes:
                self._reach(walker, members, argument, inputs)
            walker.call(node)
        outputs = [
            n
            for n in nodes
            if self._is_read(n, members) or (self.expose and isinstance(walker.values[n], Value))
        ]
        for node in outputs:
            walker.b.output(_output(walker.b, walker.values[node], node.name))
        graph, before, after = walker.b.graph, [None] * len(inputs), [None] * len(outputs)
        return Piece(None, graph, inputs, outputs, [*before], [*after], calls=nodes)

    def _reach(
        self, walker: Walker, members: set[fx.Node], node: fx.Node, inputs: list[fx.Node]
    ) -> None:
        """Make an operand known to a group: a constant, a meaning, or an input."""
        if node in walker.values or node in members:
            return
        if node.op == "call_function" and torchapi.target_name(node) in DEQUANTIZE:
            for argument in node.all_input_nodes:
                self._reach(walker, members, argument, inputs)
            walker.call(node)
            return
        given = self.trial.values.get(node)
        if not isinstance(given, Value):
            raise Unsupported(f"{node.name} cannot be an input of a TOSA graph")
        if given.is_const:
            walker.values[node] = given
            return
        walker.take(node, given)
        inputs.append(node)

    def _is_read(self, node: fx.Node, members: set[fx.Node]) -> bool:
        """Whether anything outside of a group reads a value, dequantized or not."""
        if node in self.program.outputs:
            return True
        return any(
            self._is_read(user, members)
            if torchapi.target_name(user) in DEQUANTIZE
            else user not in members
            for user in self.program.users.get(node, [])
        )
