"""Which operators run as one kernel.

A group is a chain whose inner values nothing else reads. It runs where its last operator stood.
An int8 value that passes from one fused kernel to another may travel as a *carrier*, the same
bits offset to uint8, which spares the kernels a pass over it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tosaic.interp.kernel import Context, Run
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec.dtypes import I8

_CONVOLUTIONS = {"CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D"}
_PAIRWISE = {"ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"}
TABLED = 1 << 16  # elements from which a table of all pairs of int8 pays at once


@dataclass(frozen=True, slots=True)
class Group:
    """Operators in order; ``kind`` names the fused kernel, "" is a single operator."""

    kind: str
    ops: tuple[Op, ...]

    @property
    def ins(self) -> tuple[Value, ...]:
        """What the group computes from: values from outside that are not constants."""
        inner = {v for op in self.ops for v in op.outs}
        read = (v for op in self.ops for v in op.ins if v not in inner and not v.is_const)
        return tuple(dict.fromkeys(read))

    @property
    def result(self) -> Value:
        return self.ops[-1].outs[0]


# A maker of a fused kernel gets the group and whether its result travels as a carrier. It may
# decline with None: the group's operators then run one by one.
FusedMaker = Callable[[Group, Context, bool], Run | None]
FUSED: dict[str, FusedMaker] = {}


def groups(graph: Graph) -> dict[Op, Group]:
    """The groups of a graph that have kernels of their own, by their operators."""
    finder = _Finder(graph)
    taken: dict[Op, Group] = {}
    for op in graph.ops:
        group = finder.chain(op)
        if group is not None and not any(o in taken for o in group.ops):
            taken.update((o, group) for o in group.ops)
    return taken


def carried(graph: Graph, fused: list[Group]) -> set[Value]:
    """The int8 values that only fused kernels write and read."""
    written = {g.result for g in fused if g.result.dtype is I8}
    plain = {op for g in fused for op in g.ops}
    for op in graph.ops:
        if op not in plain:
            written.difference_update(op.ins)
    return written.difference(graph.outputs)


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self.uses = graph.uses()
        self.outputs = set(graph.outputs)

    def only_user(self, value: Value) -> Op | None:
        """The one operator that reads a value, once, if nothing else sees it."""
        users = self.uses.get(value, ())
        return users[0] if len(users) == 1 and value not in self.outputs else None

    def chain(self, op: Op) -> Group | None:
        if op.name in _CONVOLUTIONS and not op.ins[0].is_const:
            return self.tail("convolution", (op,))
        if op.name in _PAIRWISE and op.outs[0].type.size >= TABLED:
            wideners = [self.widener(v, op) for v in op.ins[:2]]
            if wideners[0] is not wideners[1]:
                return self.tail("pairwise", (*filter(None, wideners), op))
        return None

    def widener(self, value: Value, reader: Op) -> Op | None:
        """The RESCALE from int8 that makes an operand of ``reader`` and of nothing else."""
        rescale = value.producer
        if rescale is None or rescale.name != "RESCALE" or rescale.ins[0].dtype is not I8:
            return None
        return rescale if self.only_user(value) is reader else None

    def tail(self, kind: str, ops: tuple[Op, ...]) -> Group | None:
        """Extend a chain by the RESCALE that must follow and the CLAMP that may."""
        rescale = self.follow(ops[-1], "RESCALE")
        if rescale is None:
            return None
        clamp = self.follow(rescale, "CLAMP")
        return Group(kind, (*ops, rescale, *filter(None, (clamp,))))

    def follow(self, op: Op, name: str) -> Op | None:
        user = self.only_user(op.outs[0])
        fits = user is not None and user.name == name and user.ins[0] is op.outs[0]
        return user if fits else None
