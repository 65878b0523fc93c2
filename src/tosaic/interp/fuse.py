"""Which operators run as one kernel.

A group is a chain whose inner values nothing else reads. It runs where its last operator stood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tosaic.interp.kernel import Context, Run
from tosaic.ir.graph import Graph, Op, Value

_DOT = {"CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D", "MATMUL", "MATMUL_T"}


@dataclass(frozen=True, slots=True)
class Group:
    """Operators in order; ``kind`` names the fused kernel, None is a single operator."""

    kind: str | None
    ops: tuple[Op, ...]

    @property
    def ins(self) -> tuple[Value, ...]:
        """What the group reads from outside, in order of first use."""
        inner = {v for op in self.ops for v in op.outs}
        return tuple(dict.fromkeys(v for op in self.ops for v in op.ins if v not in inner))

    @property
    def outs(self) -> tuple[Value, ...]:
        return tuple(self.ops[-1].outs)


# A maker of a fused kernel may decline with None; the group's operators then run one by one.
FusedMaker = Callable[[Group, Context], Run | None]
FUSED: dict[str, FusedMaker] = {}


def groups(graph: Graph) -> list[Group]:
    """All operators of a graph in an order in which they can run, chains as groups."""
    finder = _Finder(graph)
    taken: dict[Op, Group] = {}
    for op in graph.ops:
        if op not in taken:
            group = finder.chain(op)
            if group is not None and not any(o in taken for o in group.ops):
                taken.update((o, group) for o in group.ops)
    found = []
    for op in graph.ops:
        group = taken.get(op, Group(None, (op,)))
        if group.ops[-1] is op:
            found.append(group)
    return found


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self.uses = graph.uses()
        self.outputs = set(graph.outputs)

    def only_user(self, value: Value) -> Op | None:
        """The one operator that reads a value, once, if nothing else sees it."""
        users = self.uses.get(value, ())
        return users[0] if len(users) == 1 and value not in self.outputs else None

    def follow(self, op: Op, name: str) -> Op | None:
        user = self.only_user(op.outs[0])
        fits = user is not None and user.name == name and user.ins[0] is op.outs[0]
        return user if fits else None

    def chain(self, op: Op) -> Group | None:
        if op.name in _DOT:
            return self.tail("dot_rescale", (op,))
        if op.name == "ADD":
            left, right = (v.producer for v in op.ins)
            if left is not None and right is not None and left is not right:
                both = left.name == right.name == "RESCALE"
                if both and all(self.only_user(v) is op for v in op.ins):
                    return self.tail("add_rescale", (left, right, op))
        return None

    def tail(self, kind: str, ops: tuple[Op, ...]) -> Group | None:
        """Extend a chain by the RESCALE that must follow and the CLAMP that may."""
        rescale = self.follow(ops[-1], "RESCALE")
        if rescale is None:
            return None
        clamp = self.follow(rescale, "CLAMP")
        return Group(kind, (*ops, rescale, *filter(None, (clamp,))))


def group_values(group: Group) -> Iterator[Value]:
    """The values inside a group, which nothing outside reads."""
    for op in group.ops[:-1]:
        yield from op.outs
