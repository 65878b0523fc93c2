"""In-place writes: which of them equal an out-of-place call, and which torch must functionalize."""

from __future__ import annotations

from torch import fx

from tosaic.front import torchapi

CONTROL = ("cond", "while_loop", "scan", "tosaic_scan")


def is_functional(module: fx.GraphModule) -> bool:
    """Whether every call may be read as one that makes new values.

    A write in place may if nothing reads the old value, or other views of it, after the call.
    """
    parts = (m for m in module.modules() if isinstance(m, fx.GraphModule))
    return all(_has_plain_writes(part.graph) for part in parts)


def _has_plain_writes(graph: fx.Graph) -> bool:
    order = {node: index for index, node in enumerate(graph.nodes)}
    memory = _Memory(order)
    for index, node in enumerate(graph.nodes):
        if node.op == "call_function" and not memory.call(node, index):
            return False
        memory.add(node)
    return True


class _Memory:
    """Values that may share memory, in groups, and when each group is read for the last time."""

    def __init__(self, order: dict[fx.Node, int]) -> None:
        self.order = order
        self.group: dict[fx.Node, fx.Node] = {}
        self.last_read: dict[fx.Node, int] = {}
        self.given: set[fx.Node] = set()  # groups of inputs and of the model's own tensors

    def find(self, node: fx.Node) -> fx.Node:
        while (above := self.group.get(node, node)) is not node:
            self.group[node] = self.group.get(above, above)
            node = above
        return node

    def add(self, node: fx.Node) -> None:
        """A value that exists from here on: its reads count in its group."""
        group = self.find(node)
        read = max((self.order[user] for user in node.users), default=-1)
        self.last_read[group] = max(self.last_read.get(group, -1), read)
        if node.op in ("placeholder", "get_attr"):
            self.given.add(group)

    def call(self, node: fx.Node, index: int) -> bool:
        """Note what a call shares; False if it writes to what is read otherwise."""
        overload = torchapi.overload_of(node)
        if overload is None:
            if torchapi.is_region_call(node):
                return torchapi.target_name(node) in CONTROL
            for operand in node.all_input_nodes:
                self.join(node, operand)  # an item of several results is one of them
            return True
        effects = torchapi.effects(overload)
        if not effects.written and not effects.shared:
            return True
        bound = torchapi.bound_arguments(node, own_names=True)
        for name in effects.written:
            if not effects.returned or not self._is_last(bound[name], index):
                return False
        for name in effects.shared:
            value = bound.get(name)
            for shared in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(shared, fx.Node):
                    self.join(node, shared)
        return True

    def _is_last(self, written: object, index: int) -> bool:
        if not isinstance(written, fx.Node):
            return False
        group = self.find(written)
        return group not in self.given and self.last_read.get(group, -1) <= index

    def join(self, node: fx.Node, other: fx.Node) -> None:
        first, second = self.find(node), self.find(other)
        if first is second:
            return
        self.group[first] = second
        self.last_read[second] = max(self.last_read.get(first, -1), self.last_read.get(second, -1))
        if first in self.given:
            self.given.add(second)
