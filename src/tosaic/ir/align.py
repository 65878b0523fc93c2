"""Aligns graphs of one program at several sizes: the operators that some lack become idle ones.

A window with a stride ends with its input, so what the stride leaves over is cut off by a SLICE, or
is missing from the padding behind it, as the size has it. SLICEs and PADs that a graph lacks are
inserted where others have them, over the whole value and of nothing; where paddings differ, a PAD
has what the most is more than the least of them, and a SLICE cuts off what a size has not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tosaic.ir.graph import Const, Graph, Op, Value
from tosaic.spec import OPS
from tosaic.spec.dtypes import SHAPE, TensorType

_IDLE = {"SLICE", "PAD"}  # what a graph may lack where it would do nothing
_WINDOWS = {"CONV2D", "CONV3D", "DEPTHWISE_CONV2D"}  # the paddings of pools may be unknown

Key = tuple[str, str]


def aligned(graphs: Sequence[Graph]) -> list[Graph]:
    """The graphs with the same operators where SLICEs and paddings are all that differs."""
    whole = list[Key]()
    for graph in sorted(graphs, key=lambda graph: -len(graph.ops)):
        whole = _merged(whole, [_key(op) for op in graph.ops]) or whole
    twins = [_Twin(graph) for graph in graphs]
    for key in whole:
        _step(key, [twin for twin in twins if twin.is_alike])
    return [twin.done() for twin in twins]


def _key(op: Op) -> Key:
    return op.name, str(op.loc)


def _merged(one: list[Key], other: list[Key]) -> list[Key] | None:
    """Both sequences in one, which differ in SLICEs and PADs alone; None where in more."""
    made, i, j = list[Key](), 0, 0
    while i < len(one) or j < len(other):
        left, right = (seq[k] if k < len(seq) else None for seq, k in ((one, i), (other, j)))
        if left is not None and left == right:
            i, j = i + 1, j + 1
        elif left is not None and left[0] in _IDLE:
            i += 1
        elif right is not None and (right[0] in _IDLE or not one):
            left, j = right, j + 1
        else:
            return None
        made.append(left)
    return made


class _Twin:
    """A copy of one of the graphs, with operators of the others; equal values have one number."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made = Graph(graph.name, list(graph.inputs), [], [], graph.version)
        self.values = list(graph.inputs)  # by number
        self.numbers = {value: number for number, value in enumerate(graph.inputs)}
        self.position = 0
        self.is_alike = True

    def next(self, key: Key) -> Op | None:
        """The next operator of the graph, if it is one of this kind and place."""
        ops = self.graph.ops
        op = ops[self.position] if self.position < len(ops) else None
        return op if op is not None and _key(op) == key else None

    def take(self, op: Op, sources: Sequence[int | None]) -> None:
        """The next operator, which reads what SLICEs give that the graph had not."""
        self.position += 1
        ins = [v if n is None else self.values[n] for v, n in zip(op.ins, sources)]
        outs = [Value(v.type, v.name, None, v.quant, v.loc, v.limits) for v in op.outs]
        self.numbers.update((v, len(self.values) + n) for n, v in enumerate(op.outs))
        self.values += outs
        self.made.ops.append(Op(op.defn, ins, outs, op.attrs, op.regions, op.loc))

    def idle(self, source: int, like: Op) -> None:
        """A SLICE of a whole value, or a PAD of nothing."""
        value = self.values[source]
        rest = [_shape([0] * value.type.rank), _shape(value.shape)]
        if like.name == "PAD":
            rest = [_shape([0] * (2 * value.type.rank)), like.ins[2]]
        out = Value(value.type, f"{value.name}_whole", None, value.quant, value.loc, value.limits)
        self.values.append(out)
        self.made.ops.append(Op(like.defn, [value, *rest], [out], {}, (), value.loc))

    def fit(self, least: Sequence[int], most: Sequence[int], is_cut: bool) -> None:
        """The last operator with the least paddings, of a SLICE of what has the most."""
        op = self.made.ops.pop()
        value, zero, size = op.ins[0], op.operand("input_zp"), list(op.ins[0].shape)
        if is_cut and (cut := _cut(value)) is not None:
            value, moved = cut.ins[0], value.producer
            if moved is not None and moved is not cut:
                shape = [value.shape[axis] for axis in moved.attrs["perms"]]
                value = self._emit("TRANSPOSE", [value], shape, op, moved.attrs)
        own = [a - b for a, b in zip(op.attrs["pad"], least)]
        more = [a - b for a, b in zip(most, least)]
        whole = list(value.shape)
        for axis in range(len(own) // 2):
            whole[1 + axis] += sum(more[2 * axis : 2 * axis + 2])
            size[1 + axis] += sum(own[2 * axis : 2 * axis + 2])
        around, start = _shape([0, 0, *more, 0, 0]), _shape([0] * len(size))
        value = self._emit("PAD", [value, around, zero], whole, op)
        value = self._emit("SLICE", [value, start, _shape(size)], size, op)
        attrs: Mapping[str, Any] = {**op.attrs, "pad": type(op.attrs["pad"])(least)}
        self.made.ops.append(Op(op.defn, [value, *op.ins[1:]], op.outs, attrs, (), op.loc))

    def is_cut(self, least: Sequence[int]) -> bool:
        """Whether a SLICE is before the last operator, and what it cuts off is not padded again."""
        op = self.made.ops[-1]
        cut = _cut(op.ins[0])
        if cut is None or cut.ins[1].const is None or cut.ins[1].const.array.any():
            return False
        whole, moved = cut.ins[0].shape, op.ins[0].producer
        if moved is not None and moved is not cut:
            whole = tuple(whole[axis] for axis in moved.attrs["perms"])
        ends = zip(whole[1:-1], op.ins[0].shape[1:-1], op.attrs["pad"][1::2], least[1::2])
        return all(size == seen or pad == own for size, seen, pad, own in ends)

    def _emit(
        self, name: str, ins: list[Value], shape: Sequence[int], op: Op,
        attrs: Mapping[str, Any] | None = None,
    ) -> Value:  # fmt: skip
        source = ins[0]
        kind = TensorType(source.dtype, tuple(shape))
        out = Value(kind, source.name, None, source.quant, source.loc, source.limits)
        self.made.ops.append(Op(OPS[name], ins, [out], attrs or {}, (), op.loc))
        return out

    def done(self) -> Graph:
        """The graph with the operators of all; as it was where they do not fit it."""
        if not self.is_alike or self.position < len(self.graph.ops):
            return self.graph
        self.made.outputs = [self.values[self.numbers[v]] if v in self.numbers else v
                             for v in self.graph.outputs]  # fmt: skip
        read = set(self.made.outputs)
        for op in reversed(self.made.ops):
            if not read.isdisjoint(op.outs):
                read.update(op.ins)
        self.made.ops = [op for op in self.made.ops if not read.isdisjoint(op.outs)]
        return self.made


def _cut(value: Value) -> Op | None:
    """The SLICE that gives a value, before or behind a TRANSPOSE."""
    op = value.producer
    if op is not None and op.name == "TRANSPOSE":
        op = op.ins[0].producer
    return op if op is not None and op.name == "SLICE" else None


def _shape(numbers: Sequence[int]) -> Value:
    array = np.array(numbers, np.int64)
    return Value(TensorType(SHAPE, array.shape), "", Const(array))


def _step(key: Key, twins: list[_Twin]) -> None:
    """An operator of all graphs: those that lack a SLICE get one."""
    own = [(twin, op) for twin in twins if (op := twin.next(key)) is not None]
    columns = zip(*([twin.numbers.get(v) for v in op.ins] for twin, op in own))
    # What a SLICE gives that was inserted has a greater number than what it is of.
    sources = [max((n for n in column if n is not None), default=None) for column in columns]
    for twin in twins:
        op = twin.next(key)
        if op is not None and len(op.ins) == len(sources):
            twin.take(op, sources)
        elif key[0] in _IDLE and sources and sources[0] is not None:
            twin.idle(sources[0], own[0][1])
        else:
            twin.is_alike = False
    if key[0] in _WINDOWS:
        alike = [twin for twin in twins if twin.is_alike]
        # A small input leaves out what sees nothing but padding of a kernel.
        kernels = [twin.made.ops[-1].ins[1].shape for twin in alike]
        for twin, kernel in zip(alike, kernels):
            twin.is_alike = kernel == max(kernels, key=kernels.count)
        alike = [twin for twin in alike if twin.is_alike]
        pads = [twin.made.ops[-1].attrs["pad"] for twin in alike]
        if len(set(map(tuple, pads))) > 1:
            least, most = ([f(column) for column in zip(*pads)] for f in (min, max))
            is_cut = all(twin.is_cut(least) for twin in alike)
            for twin in alike:
                twin.fit(least, most, is_cut)
