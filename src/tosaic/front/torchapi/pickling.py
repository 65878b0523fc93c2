"""Pickling of objects that hold nodes of fx graphs: graphs as tables of calls, nodes by number.

pickle alone would follow a graph node by node, and torch's operators and fake tensors refuse it.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload, _higher_order_ops
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from tosaic.front.torchapi.nodes import attribute

# pickle looks for "torch.strided" in each module, and finds it where a user's imports torch.
_NAMES = torch.memory_format, torch.layout, torch.qscheme


def dumps(thing: Any) -> bytes:
    """The bytes of a thing, with all graphs whose nodes it holds."""
    tables = _Tables()
    body = tables.pickled(thing)
    modules: list[tuple[int, bytes]] = []
    while len(modules) < len(tables.modules):  # which may hold others
        module = tables.modules[len(modules)]
        modules.append((tables.number(module.graph), tables.pickled(_held(module))))
    rows: list[list[tuple[bytes, bytes]]] = [[] for _ in tables.nodes]
    while [len(r) for r in rows] != [len(n) for n in tables.nodes]:  # nodes may hold others
        rows += [[] for _ in tables.nodes[len(rows) :]]
        for done, nodes in zip(rows, tables.nodes):
            done += [tables.row(node) for node in nodes[len(done) :]]
    return pickle.dumps((rows, modules, body))


def loads(data: bytes) -> Any:
    """The thing again."""
    graphs, modules, body = pickle.loads(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about classes of trees that torch renames
        return _Loading(graphs, modules).unpickled(body)


def _held(module: fx.GraphModule) -> dict[str, Any]:
    names = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
    return {name: attribute(module, name) for name in sorted(names)}


class _Tables:
    """The graphs and modules that were met, in the order in which they were."""

    def __init__(self) -> None:
        self.numbers: dict[fx.Graph, int] = {}
        self.nodes: list[list[fx.Node]] = []
        self.places: dict[fx.Node, int] = {}
        self.modules: list[fx.GraphModule] = []
        self.erased = fx.Graph()

    def row(self, node: fx.Node) -> tuple[bytes, bytes]:
        """What a node is, and what it refers to."""
        meta = dict(self._kept(node.meta))
        told = self.pickled((node.op, node.name, node.target))
        return told, self.pickled((node.args, node.kwargs, meta))

    def _kept(self, meta: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
        for name, value in meta.items():
            try:
                yield name, self.pickled(value)
            except (pickle.PicklingError, AttributeError, RuntimeError, TypeError):
                continue  # what torch keeps for itself, such as hooks

    def number(self, graph: fx.Graph) -> int:
        if graph not in self.numbers:
            self.numbers[graph] = len(self.nodes)
            self.nodes.append(list(graph.nodes))
            self.places.update({node: place for place, node in enumerate(graph.nodes)})
        return self.numbers[graph]

    def place(self, node: fx.Node) -> tuple[str, int, int]:
        number = self.number(node.graph)
        if node._erased:  # those that were taken out of their graphs have one of their own
            number = self.number(self.erased)
            if node not in self.places:
                self.places[node] = len(self.nodes[number])
                self.nodes[number].append(node)
        return "node", number, self.places[node]

    def pickled(self, thing: Any) -> bytes:
        to = io.BytesIO()
        _Pickler(to, self).dump(thing)
        return to.getvalue()


class _Pickler(pickle.Pickler):
    def __init__(self, to: io.BytesIO, tables: _Tables) -> None:
        super().__init__(to)
        self.tables = tables

    def persistent_id(self, thing: Any) -> Any:
        if isinstance(thing, fx.Node):
            return self.tables.place(thing)
        if isinstance(thing, fx.GraphModule):
            self.tables.number(thing.graph)
            if thing not in self.tables.modules:
                self.tables.modules.append(thing)
            return "module", self.tables.modules.index(thing)
        if isinstance(thing, FakeTensor):
            return "fake", tuple(thing.shape), thing.stride(), thing.dtype
        if isinstance(thing, OpOverload):
            return (
                "operator",
                thing.namespace,
                thing._schema.name.split("::")[1],
                thing._overloadname,
            )
        if isinstance(thing, HigherOrderOperator):
            return "region call", thing._name
        if isinstance(thing, _NAMES):
            return "name", str(thing).removeprefix("torch.")
        return None


class _Loading:
    """Graphs made from their tables, the modules that hold them, and what is read with them."""

    def __init__(
        self, tables: list[list[tuple[bytes, bytes]]], modules: list[tuple[int, bytes]]
    ) -> None:
        self.graphs = [fx.Graph() for _ in tables]
        self.nodes: list[list[fx.Node]] = [[] for _ in tables]
        self.held = modules
        self.modules: dict[int, fx.GraphModule] = {}
        self.mode = FakeTensorMode()
        for graph, nodes, rows in zip(self.graphs, self.nodes, tables):
            for told, _ in rows:
                kind, name, target = self.unpickled(told)
                nodes.append(graph.create_node(kind, target, name=name))
        for nodes, rows in zip(self.nodes, tables):
            for node, (_, held) in zip(nodes, rows):
                node.args, node.kwargs, meta = self.unpickled(held)
                node.meta = {key: self.unpickled(value) for key, value in meta.items()}

    def module(self, place: int) -> fx.GraphModule:
        if place not in self.modules:
            number, held = self.held[place]
            self.modules[place] = fx.GraphModule(self.unpickled(held), self.graphs[number])
        return self.modules[place]

    def unpickled(self, data: bytes) -> Any:
        return _Unpickler(io.BytesIO(data), self).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, of: io.BytesIO, loading: _Loading) -> None:
        super().__init__(of)
        self.loading = loading

    def persistent_load(self, key: Any) -> Any:
        kind, *rest = key
        if kind == "node":
            return self.loading.nodes[rest[0]][rest[1]]
        if kind == "module":
            return self.loading.module(rest[0])
        if kind == "fake":
            shape, stride, dtype = rest
            with self.loading.mode:
                return torch.empty_strided(shape, stride, dtype=dtype)
        if kind == "operator":
            namespace, name, overload = rest
            if namespace == "quantized_decomposed":
                from torch.ao.quantization.fx import _decomposed  # noqa: F401  (registers them)
            found = getattr(getattr(torch.ops, namespace), name)
            return getattr(found, overload or "default")
        if kind == "name":
            return getattr(torch, rest[0])
        return _higher_order_ops[rest[0]]
