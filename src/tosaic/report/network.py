"""A compiled program as nodes and edges: TOSA operators, and what PyTorch runs round them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.ir.graph import Graph, Loc, Op, Quant, Value
from tosaic.lowering.partition import Piece
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.macs import macs

DEVICE, TOSA, CPU, PORT = "device", "tosa", "cpu", "port"


@dataclass(frozen=True, slots=True)
class Wire:
    """A tensor between two nodes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: float | None = None
    zero_point: int | None = None


@dataclass(slots=True)
class Node:
    """An operator, where it runs, where it comes from, and what it costs.

    ``moved`` are bytes by memory; ``weights`` are bytes of constants.
    """

    op: str
    place: str
    graph: int = -1
    loc: Loc | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    constants: list[str] = field(default_factory=list)
    outputs: list[Wire] = field(default_factory=list)
    cycles: int = 0
    macs: int = 0
    weights: int = 0
    moved: dict[str, int] = field(default_factory=dict)
    operations: list[str] = field(default_factory=list)  # of the device


@dataclass(slots=True)
class Network:
    """Nodes in an order in which they can run, and edges: from, to, which output.

    ``at`` and ``calls`` find the node of an operator, and of a call in PyTorch by its name.
    """

    nodes: list[Node] = field(default_factory=list)
    edges: list[tuple[int, int, int]] = field(default_factory=list)
    at: dict[Op, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)

    def groups(self) -> list[list[int]]:
        """Neighbours in the order of running that come from one call of the user's program.

        They are stretches of that order, so no way leads out of a group and back into it.
        """
        return self._stretches(lambda node: node.loc if node.graph >= 0 else None)

    def modules(self, most: int = 60) -> list[list[int]]:
        """Neighbours that are in one module, as deep in the model as so many groups allow.

        An operator of a graph that no module has, as a rescaling, belongs to those before it.
        """
        paths = [node.loc.module.split(".") if node.loc else [""] for node in self.nodes]
        found: list[list[int]] = []
        for depth in range(max(map(len, paths), default=1), 0, -1):
            keys, last = dict[int, Any](), dict[tuple[int, str], Any]()
            for node, path in zip(self.nodes, paths):
                own, home = ".".join(path[:depth]) or None, (node.graph, node.place)
                if own is None and node.graph >= 0:
                    own = last.get(home)
                keys[id(node)] = last[home] = own
            found = self._stretches(lambda node, keys=keys: keys[id(node)])  # type: ignore[misc]
            if len(found) <= most:
                break
        return found

    def _stretches(self, key_of: Callable[[Node], Any]) -> list[list[int]]:
        """Runs of nodes in one graph and place with the same key; those with none are alone."""
        found: list[list[int]] = []
        last: Any = None
        for index, node in enumerate(self.nodes):
            own = key_of(node)
            key = None if own is None else (node.graph, node.place, own)
            if key is None or key != last:
                found.append([])
            found[-1].append(index)
            last = key
        return found


def network_of(artifact: Artifact) -> Network:
    """The nodes and edges of an artifact, with the target's estimates where it has them."""
    made = _Maker(artifact)
    for number, node in enumerate(artifact.program.inputs):
        made.port("input", number, node)
    for piece in artifact.partition.pieces:
        made.piece(piece)
    for number, result in enumerate(artifact.program.outputs):
        if isinstance(result, fx.Node):
            made.result(number, result)
    return made.network


class _Maker:
    def __init__(self, artifact: Artifact) -> None:
        self.artifact, self.network = artifact, Network()
        self.made: dict[fx.Node, tuple[int, int]] = {}  # node and output that a value comes from
        self.graphs = 0

    def _add(self, node: Node) -> int:
        self.network.nodes.append(node)
        return len(self.network.nodes) - 1

    def _join(self, end: int, source: fx.Node) -> None:
        """An edge from whatever makes a value; constants have no edge."""
        while source not in self.made and len(source.all_input_nodes) == 1:
            source = source.all_input_nodes[0]
        if source in self.made:
            start, output = self.made[source]
            self.network.edges.append((start, end, output))

    def port(self, way: str, number: int, node: fx.Node) -> None:
        wire = _example(node)
        index = self._add(Node(f"{way} {number}", PORT, outputs=[wire] if wire else []))
        self.made[node] = index, 0

    def result(self, number: int, node: fx.Node) -> None:
        self._join(self._add(Node(f"output {number}", PORT)), node)

    def piece(self, piece: Piece) -> None:
        """A graph, a call, or the step of a loop in the place of the loop."""
        if piece.graph is not None:
            self.graph(piece, piece.graph)
        elif piece.step is None:
            self.call(piece)
        else:
            self._pass(zip(piece.step.inputs, piece.inputs))
            for part in piece.parts:
                self.piece(part)
            ends = piece.step.outputs
            self._pass((item, ends[int(str(item.args[1]))]) for item in piece.outputs)

    def _pass(self, pairs: Iterable[tuple[fx.Node, fx.Node]]) -> None:
        """Values that are others under another name."""
        for node, source in pairs:
            if source in self.made:
                self.made[node] = self.made[source]

    def call(self, piece: Piece) -> None:
        """A call that stays in PyTorch."""
        assert piece.node is not None
        wire = _example(piece.node)
        node = Node(
            torchapi.target_name(piece.node), CPU, loc=torchapi.location(piece.node),
            outputs=[wire] if wire else [],
        )  # fmt: skip
        index = self.network.calls[piece.node.name] = self._add(node)
        for source in piece.inputs:
            self._join(index, source)
        self.made[piece.node] = index, 0

    def graph(self, piece: Piece, graph: Graph) -> None:
        """The operators of a graph, and their costs if it runs on a device."""
        number, self.graphs = self.graphs, self.graphs + 1
        delegates = self.artifact.delegates
        place = DEVICE if delegates else TOSA
        first = len(self.network.nodes)
        sources = dict(zip(graph.inputs, piece.inputs))
        at: dict[Value, tuple[int, int]] = {}
        for op in graph.ops:
            index = self.network.at[op] = self._add(_node(op, place, number))
            for value in op.ins:
                if value in at:
                    self.network.edges.append((at[value][0], index, at[value][1]))
                elif value in sources:
                    self._join(index, sources[value])
            at.update({value: (index, output) for output, value in enumerate(op.outs)})
        if delegates:
            self._costs(number, first)
        self._times(self.artifact.report.delegates[number].calls, first)
        for node, value in zip(piece.outputs, graph.outputs):
            if value in at:
                self.made[node] = at[value]
            elif value in sources and sources[value] in self.made:
                self.made[node] = self.made[sources[value]]

    def _costs(self, number: int, first: int) -> None:
        told = self.artifact.delegates[number].estimate
        for cost in told.operators if told is not None else ():
            if cost.index is None:
                continue
            node = self.network.nodes[first + cost.index]
            node.cycles += cost.cycles
            node.operations.append(cost.name)
            for memory, moved in cost.moved.items():
                if moved:
                    node.moved[memory] = node.moved.get(memory, 0) + moved

    def _times(self, calls: int, first: int) -> None:
        """Costs of one inference: those of the step of a loop as often as it is called."""
        for node in self.network.nodes[first:]:
            node.cycles, node.macs = calls * node.cycles, calls * node.macs
            node.moved = {memory: calls * moved for memory, moved in node.moved.items()}


def _node(op: Op, place: str, graph: int) -> Node:
    constants = [v for v in op.ins if v.is_const and v.dtype.name != "shape"]
    own = Node(
        op.name, place, graph, op.loc, _attributes(op), list(map(_described, constants)),
        [_wire(value) for value in op.outs], macs=macs(op), weights=sum(map(_bytes, constants)),
    )  # fmt: skip
    if place == TOSA:  # without a device, what an operator reads and writes
        own.moved = {"tensors": sum(map(_bytes, [*op.ins, *op.outs]))}
    return own


def _attributes(op: Op) -> dict[str, str]:
    found = {name: _short(value) for name, value in op.attrs.items()}
    if op.regions:
        found["regions"] = ", ".join(f"{len(r.ops)} operators" for r in op.regions)
    return found


def _short(value: Any, most: int = 120) -> str:
    is_list = isinstance(value, (list, tuple))
    text = ", ".join(map(str, value)) if is_list else str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _bytes(value: Value) -> int:
    return (value.type.size * value.dtype.bits + 7) // 8


def _sizes(shape: Iterable[int]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _described(value: Value) -> str:
    return f"{value.dtype} {_sizes(value.shape)}, {_bytes(value):,} bytes"


def _wire(value: Value) -> Wire:
    scale, zero = _meaning(value.quant)
    return Wire(value.name, str(value.dtype), tuple(value.shape), scale, zero)


def _meaning(quant: Quant | None) -> tuple[float | None, int | None]:
    if quant is None or isinstance(quant.scale, Sequence) or isinstance(quant.zero_point, Sequence):
        return None, None
    return float(quant.scale), int(quant.zero_point)


def _example(node: fx.Node) -> Wire | None:
    example = node.meta.get("val")
    if not isinstance(example, Tensor):
        return None
    shape = tuple(map(int, torchapi.known_shape(example) or ()))
    return Wire(node.name, str(example.dtype).removeprefix("torch."), shape)
