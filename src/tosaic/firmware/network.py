"""A network of an image: stages on the NPU and in C, its tensors, and its state.

An artifact's pieces become stages in their order. What PyTorch does before the first and behind
the last of them, to quantize and to give real numbers, is left to the caller; a state that passes
through it from run to run is kept as integers, by a table where the two sides differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from tosaic.boundary.memory_order import ordered
from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE, label
from tosaic.front.program import Program
from tosaic.ir.graph import Graph, Value
from tosaic.lowering.partition import Piece
from tosaic.pipeline import execution
from tosaic.pipeline.artifact import Artifact
from tosaic.targets.cortexm.cores import Core
from tosaic.targets.cortexm.delegate import Network as Code
from tosaic.targets.cortexm.delegate import compile_graph
from tosaic.targets.ethosu.delegate import Delegate
from tosaic.targets.ethosu.vela import VelaResult

CONVERSIONS = (QUANTIZE, *DEQUANTIZE)


@dataclass(frozen=True, slots=True)
class Port:
    """A tensor that a network takes or gives, as integers."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class State:
    """A tensor that lasts from run to run: what reads it, what makes it, and its first bytes.

    ``table`` has for each integer that is made the one that the next run takes; empty: the same.
    """

    name: str
    input: fx.Node
    output: fx.Node
    data: bytes
    table: bytes = b""
    element: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A piece that runs on the NPU or in C."""

    piece: Piece
    made: VelaResult | Code

    @property
    def on_npu(self) -> bool:
        return isinstance(self.made, VelaResult)


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Stages in order; ``inputs`` and ``outputs`` are the values that the caller has, by node."""

    name: str
    artifact: Artifact
    stages: tuple[Stage, ...]
    inputs: Mapping[fx.Node, Port]
    outputs: Mapping[fx.Node, Port]
    states: tuple[State, ...]
    values: Mapping[fx.Node, Value] = field(default_factory=dict)


def network_of(name: str, artifact: Artifact, core: Core) -> Network:
    """The network that an artifact becomes; InvalidInput where a part of it stays in PyTorch."""
    program, partition = artifact.program, artifact.partition
    if partition.refused or not partition.graphs:
        why = f"; the first reason: {partition.refused[0]}" if partition.refused else ""
        raise InvalidInput(
            f"firmware has no PyTorch in it, and some calls of '{name}' stay there{why}: compile "
            f"for a target with a host core, such as {artifact.target}+{core.name}"
        )
    pieces = [piece for piece in partition.pieces if piece.graph is not None]
    if any(piece.parts for piece in partition.pieces):
        raise InvalidInput(
            f"a recurrence of '{name}' is a loop that PyTorch runs, which firmware has not: "
            f"compile for {artifact.target}+{core.name}, which unrolls it, or a step with a state"
        )
    made = {id(each.graph): each for each in artifact.delegates}
    stages = tuple(
        Stage(piece, _made(made.get(id(piece.graph)), piece, core, f"{name}_{number}", artifact))
        for number, piece in enumerate(pieces)
    )
    values = dict[fx.Node, Value]()
    for piece in pieces:
        graph = _graph(piece)
        values |= zip(piece.inputs, graph.inputs, strict=True)
        values |= zip(piece.outputs, graph.outputs, strict=True)
    given = {node for piece in pieces for node in piece.outputs}
    roots = _Roots(program, given)
    states = tuple(_states(program, pieces, roots, values))
    taken = {state.input for state in states}
    inputs = [n for p in pieces for n in p.inputs if n not in given and n not in taken]
    own = (
        program.outputs[: len(program.outputs) - len(program.states)]
        + program.outputs[len(program.outputs) - len(program.written) :]
    )
    wanted: set[fx.Node] = set()
    for node in own:
        if isinstance(node, fx.Node):
            wanted |= roots.made(node)
    for node in inputs:
        _check_input(program, roots, node, name)
    outputs = [n for p in pieces for n in p.outputs if n in wanted]
    return Network(
        name, artifact, stages, _ports(inputs, values, program), _ports(outputs, values, program),
        states, values,
    )  # fmt: skip


def _made(
    compiled: Any, piece: Piece, core: Core, name: str, artifact: Artifact
) -> VelaResult | Code:
    if isinstance(compiled, Delegate):
        return compiled.result
    if not isinstance(compiled, Code):
        raise InvalidInput(
            f"{artifact.target} makes nothing that firmware can hold: name an NPU or a core"
        )
    small = artifact.device.options.get("memory") == "small"
    return compile_graph(_graph(piece), core, name, small)


def _graph(piece: Piece) -> Graph:
    assert piece.graph is not None
    return piece.graph


def _ports(
    nodes: Sequence[fx.Node], values: Mapping[fx.Node, Value], program: Program
) -> dict[fx.Node, Port]:
    found: dict[fx.Node, Port] = {}
    for node in nodes:
        value = values[node]
        plain = node
        while plain.op != "placeholder" and torchapi.target_name(plain) in CONVERSIONS:
            source = plain.args[0]
            assert isinstance(source, fx.Node)
            plain = source
        found[node] = Port(label(plain), np.dtype(value.dtype.array).name, tuple(value.shape))
    return found


class _Roots:
    """Where values come from, through what PyTorch does round the stages."""

    def __init__(self, program: Program, given: set[fx.Node]) -> None:
        self.program, self.given = program, given

    def _back(self, node: fx.Node, stop: set[fx.Node]) -> set[fx.Node]:
        found, todo = set[fx.Node](), [node]
        seen = set[fx.Node]()
        while todo:
            each = todo.pop()
            if each in seen:
                continue
            seen.add(each)
            if each in stop or each.op == "placeholder":
                found.add(each)
            else:
                todo += each.all_input_nodes
        return found - set(self.program.tensors)

    def made(self, node: fx.Node) -> set[fx.Node]:
        """The results of stages that a value is made of."""
        return self._back(node, self.given) & self.given

    def taken(self, node: fx.Node) -> set[fx.Node]:
        """The inputs of the program that a value is made of."""
        return self._back(node, self.given)


def _check_input(program: Program, roots: _Roots, node: fx.Node, name: str) -> None:
    kept = set(program.inputs[len(program.arguments) :])
    if roots.taken(node) & (kept | roots.given):
        raise InvalidInput(
            f"'{node.name}' of '{name}' is computed in PyTorch from a state or from a result; "
            "firmware has no PyTorch in it"
        )


def _states(
    program: Program, pieces: Sequence[Piece], roots: _Roots, values: Mapping[fx.Node, Value]
) -> Iterable[State]:
    """The states of a program that its stages read, each with the result that replaces it."""
    count = len(program.states)
    own = len(program.outputs) - program.changes
    ends = program.outputs[own : own + count]
    starts = program.inputs[len(program.arguments) :]
    reads = {n for p in pieces for n in p.inputs if n not in roots.given}
    for (name, first), start, end in zip(program.states, starts, ends, strict=True):
        for taken in sorted((n for n in reads if start in roots.taken(n)), key=lambda n: n.name):
            made = roots.made(end) if isinstance(end, fx.Node) else set()
            if len(made) != 1 or roots.taken(taken) != {start} or roots.taken(end) != made:
                raise InvalidInput(f"the state '{name}' is changed by calls that stay in PyTorch")
            yield _state(
                program, name, first, (start, taken), (next(iter(made)), end), pieces, values
            )


def _state(
    program: Program, name: str, first: Tensor, reading: tuple[fx.Node, fx.Node],
    writing: tuple[fx.Node, fx.Node], pieces: Sequence[Piece], values: Mapping[fx.Node, Value],
) -> State:  # fmt: skip
    start, taken = reading
    made, end = writing
    before = next(p for p in pieces if taken in p.inputs)
    after = next(p for p in pieces if made in p.outputs)
    at, to = after.outputs.index(made), before.inputs.index(taken)

    def integers(real: Tensor) -> Tensor:
        known = {**program.tensors, start: real}
        _follow(program, start, taken, known)
        return execution.operand(taken, known[taken], values[taken])

    data = np.ascontiguousarray(ordered(integers(first), before.input_orders[to]).numpy())
    kind = np.dtype(values[made].dtype.array)
    wanted = np.dtype(values[taken].dtype.array)
    if kind.itemsize != wanted.itemsize or values[made].type.size != values[taken].type.size:
        raise InvalidInput(f"the state '{name}' is {kind} where it is made and {wanted} where read")
    same = before.input_orders[to] == after.output_orders[at]
    if not same:
        raise InvalidInput(f"the state '{name}' changes the order of its axes from run to run")
    if made is end and taken is start:
        return State(name, taken, made, data.astype(wanted).tobytes(), b"", kind.itemsize)
    if kind.itemsize > 2:
        raise InvalidInput(f"the state '{name}' is of {kind}, and real numbers in PyTorch")
    info = np.iinfo(kind)
    every = torch.from_numpy(np.arange(info.min, info.max + 1).astype(kind))
    known = {**program.tensors, made: execution.dequantized(every, after.output_quants[at])}
    _follow(program, made, end, known)
    table = integers(known[end]).numpy().astype(wanted)
    # A table is indexed by the bytes as unsigned numbers.
    indexed = np.roll(table, -(1 << (8 * kind.itemsize - 1)))
    identical = np.array_equal(table, every.numpy())
    return State(
        name, taken, made, data.astype(wanted).tobytes(), b"" if identical else indexed.tobytes(),
        kind.itemsize,
    )  # fmt: skip


def _follow(program: Program, start: fx.Node, end: fx.Node, known: dict[fx.Node, Any]) -> None:
    """Evaluate what leads from one value to another; nothing but conversions may."""
    way: list[fx.Node] = []
    node = end
    while node is not start:
        if torchapi.target_name(node) not in CONVERSIONS or not isinstance(node.args[0], fx.Node):
            raise InvalidInput(f"a state is changed by {node.name}, which stays in PyTorch")
        way.append(node)
        node = node.args[0]
    for each in reversed(way):
        execution.call(Piece(each, inputs=each.all_input_nodes, outputs=[each]), known)
