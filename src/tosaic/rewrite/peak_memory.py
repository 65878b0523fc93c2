"""Lowers peak memory: a large value whose consumers are channel-wise is computed in slices.

A convolution that widens an image and a depthwise one or a pool that makes it small again need
the wide image whole. By halves of its channels, each half is made, made small, and forgotten.
Sums along an axis before the last need a transposed copy; a depthwise convolution needs none.
"""

from __future__ import annotations

import math

import numpy as np

from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.ir.traits import PLAIN, Traits
from tosaic.rewrite.arithmetic import only_widens
from tosaic.rewrite.epilogue import FUNCTIONS, again, chain, product_of
from tosaic.rewrite.match import Allowed, Cost, Matcher, form
from tosaic.rewrite.transpose_forms import merge_axes
from tosaic.spec.dtypes import I8, I32, I48
from tosaic.spec.env import Env

_APART = ("DEPTHWISE_CONV2D", "MAX_POOL2D", "AVG_POOL2D")
_PRODUCTS = ("CONV2D", "DEPTHWISE_CONV2D")
_VIEWS = ("RESHAPE", "SLICE", "IDENTITY")
MOST = 8  # values that are parted, at most
_SUM = 64  # bytes that a sum takes which is no channel: one of a brick of int32
_TALL = 64  # elements of a kernel, at most
_FEW = 16  # terms of a sum up to which windows take little more time
ENOUGH = 0.97  # of the peak before: what is worth it


def lower_peak(
    graph: Graph, env: Env, allowed: Allowed | None, cost: Cost, traits: Traits = PLAIN
) -> None:
    """Part values at the moment when most memory is needed, as long as that helps."""
    least, largest = peak(graph, traits)
    for _ in range(MOST):
        before, outputs = [(op, op.ins) for op in graph.ops], list(graph.outputs)
        m = Matcher(graph, env, allowed, cost, traits=traits)
        changed = any(_relieve(m, value) for value in largest)
        m.run()
        now, largest = peak(graph, traits)
        if not changed or now > ENOUGH * least:
            for op, ins in before:
                op.ins = ins
            graph.ops, graph.outputs = [op for op, _ in before], outputs
            return
        least = now


def _relieve(m: Matcher, value: Value) -> bool:
    """Make a value in parts, or have it without gaps in memory before it is transposed."""
    if (made := m.made_by(value, "REDUCE_SUM")) is not None:
        few = made.ins[0].shape[made.attrs["axis"]] <= _FEW
        return few and m.attempt(sum_windows, made)
    end = _end(m, value)
    if end is not None:
        return m.attempt(part_channels, end)
    reader = next(m.readers(value)) if m.only(value) else None
    gaps = value.type.rank == 4 and value.shape[-1] % m.traits.channel_block
    if reader is None or reader.name != "TRANSPOSE" or not gaps:
        return False
    return m.attempt(merge_axes, reader)


def peak(graph: Graph, traits: Traits = PLAIN) -> tuple[int, list[Value]]:
    """Bytes of memory when most are needed, and the ends of the values that are there then.

    Those that take it first; a value that only becomes another as it is computed has none.
    """
    readers: dict[Value, list[int]] = {}
    for index, op in enumerate(graph.ops):
        for value in op.ins:
            readers.setdefault(value, []).append(index)
    lives: dict[Value, tuple[int, int]] = {}
    place = _places(graph, readers)
    for index, op in enumerate(graph.ops):
        for value in (*op.ins, *op.outs):
            root = place.get(value)
            if root is not None:
                start, _ = lives.get(root, (index, index))
                lives[root] = start, index
    for value in (*graph.inputs, *graph.outputs):
        start, stop = lives.get(place.get(value, value), (0, 0))
        lives[place.get(value, value)] = (
            (0, stop) if value in graph.inputs else (start, len(graph.ops))
        )
    changes = [0] * (len(graph.ops) + 2)
    bricks = _bricks(graph, readers)
    need = {v: _bytes(v, traits.channel_block if v in bricks else 1) for v in lives}
    for index, op in enumerate(graph.ops):
        if op.name == "REDUCE_SUM" and op.attrs["axis"] != op.ins[0].type.rank - 1:
            (total,) = op.outs
            lives[total], need[total] = (index, index), _SUM * total.type.size + op.ins[0].type.size
    for value, (start, stop) in lives.items():
        changes[start] += need[value]
        changes[stop + 1] -= need[value]
    sums = np.cumsum(changes)
    moment = int(sums.argmax())
    there = [v for v, (start, stop) in lives.items() if start <= moment <= stop]
    return int(sums[moment]), sorted(there, key=need.__getitem__, reverse=True)


def _bricks(graph: Graph, readers: dict[Value, list[int]]) -> set[Value]:
    """Images that lie in memory by blocks of channels: those that no shape or border touches."""
    found = set()
    for op in graph.ops:
        for value in op.outs if op.name not in (*_VIEWS, "CONCAT") else ():
            behind = {graph.ops[i].name for i in readers.get(value, ())}
            if value.type.rank == 4 and behind.isdisjoint((*_VIEWS, "CONCAT")):
                found.add(value)
    return found.difference(graph.outputs)


def _bytes(value: Value, block: int) -> int:
    channels = value.shape[-1] if value.shape else 1
    whole = -(-channels // block) * block
    return value.type.size // channels * whole * max(value.dtype.bits // 8, 1)


def _places(graph: Graph, readers: dict[Value, list[int]]) -> dict[Value, Value]:
    """The value in whose memory each lies; sums and what is only rounded on has none."""
    place: dict[Value, Value] = {v: v for v in graph.inputs}
    for op in graph.ops:
        for value in op.outs:
            behind = [graph.ops[i].name for i in readers.get(value, ())]
            if value.dtype in (I32, I48) or behind in (["CLAMP"], ["TABLE"]):
                continue
            source = place.get(op.ins[0]) if op.name in _VIEWS else None
            place[value] = value if source is None else source
    for op in reversed(graph.ops):
        if op.name == "CONCAT" and op.outs[0] in place:
            for value in op.ins:
                if place.get(value) is value and len(readers[value]) == 1:
                    place[value] = place[op.outs[0]]
    return place


def _end(m: Matcher, wide: Value) -> Op | None:
    """The last operator of the chain that makes a wide value small, if only that reads it."""
    reader = next(m.readers(wide)) if m.only(wide) else None
    if reader is None or reader.name not in _APART or reader.ins[0] is not wide:
        return None
    while m.only(reader.outs[0]):
        behind = next(m.readers(reader.outs[0]))
        if behind.name not in FUNCTIONS or behind.ins[0] is not reader.outs[0]:
            break
        reader = behind
    return reader


@form("REDUCE_SUM")
def sum_windows(m: Matcher, op: Op) -> Value | None:
    """Sums along an axis that only stays together with those behind it, as windows of ones."""
    given, axis = op.ins[0], op.attrs["axis"]
    shaped = m.made_by(given, "RESHAPE")
    widened = m.made_by(shaped.ins[0] if shaped is not None else given, "RESCALE")
    if widened is None or not only_widens(widened, None) or not m.only(widened.outs[0]):
        return None
    x, zero = widened.ins[0], widened.operand("input_zp")
    count, channels = given.shape[axis], math.prod(given.shape[axis + 1 :])
    if x.dtype is not I8 or count > _TALL or math.prod(given.shape[:axis]) != 1:
        return None
    rows = m.b.RESHAPE(x, m.b.shape((1, count, 1, channels)))
    sums = m.b.layer("DEPTHWISE_CONV2D", rows, np.ones((count, 1, channels, 1)), zero)
    return m.b.RESHAPE(sums, m.b.shape(op.outs[0].shape))


def part_channels(m: Matcher, end: Op) -> Value | None:
    """Halves of the channels of a convolution, each made small before the next is made."""
    reducing = chain(m, end, *_APART)
    before = reducing[0].ins[0].producer if reducing is not None else None
    widening = chain(m, before, "CONV2D") if before is not None and before in m.place else None
    if reducing is None or widening is None or not m.only(reducing[0].ins[0]):
        return None
    channels = end.outs[0].shape[-1]
    block = m.traits.channel_block
    half = -(-channels // (2 * block)) * block
    if half >= channels or channels != widening[-1].outs[0].shape[-1]:
        return None
    if not all(_is_plain(ops[0]) for ops in (widening, reducing)):
        return None
    parts = []
    for places in (np.arange(half), np.arange(half, channels)):
        value = widening[0].ins[0]
        for first, *functions in (widening, reducing):
            value = again(m, _of(m, first, value, places), functions, places)
        parts.append(value)
    return m.b.CONCAT(*parts, axis=3)


def _of(m: Matcher, op: Op, source: Value, places: Array) -> Value:
    """A product or a pool for some channels."""
    if op.name in _PRODUCTS:
        return product_of(m, op, source, places)
    return m.b.op(op.name, source, *op.ins[1:], out=op.outs[0].dtype, loc=op.loc, **op.attrs)


def _is_plain(op: Op) -> bool:
    """Whether the parts of an operator are known."""
    return op.name not in _PRODUCTS or all(v.is_const for v in op.ins[1:])
