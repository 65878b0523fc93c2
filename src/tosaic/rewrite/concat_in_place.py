"""Computes the parts of a CONCAT in place instead of copying them.

What computes a value writes it where it belongs, unless somebody else reads it there, too, or it
is a piece or another shape of something. Products with ones are such a computation, and so is that
of the value once more, which then need not be kept. Neither may need more memory than the copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Op, Value
from tosaic.ir.traits import PLAIN, Traits
from tosaic.rewrite.epilogue import FUNCTIONS
from tosaic.rewrite.match import Allowed, Cost
from tosaic.rewrite.peak_memory import ENOUGH, MOST, peak
from tosaic.spec.dtypes import I8
from tosaic.spec.env import Env

_VIEWS = ("SLICE", "RESHAPE", "CONCAT", "PAD", "TRANSPOSE", "IDENTITY")
_LAYERS = ("CONV2D", "DEPTHWISE_CONV2D")
_WORTH = 0.55  # of a copy's time: what a product may take at most, whose ones need memory as well
Uses = dict[Value, list[Op]]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a CONCAT that is copied: what it is, and what may be in its place."""

    joined: Op
    position: int
    value: Value
    product: Value
    again: Value | None

    def put(self, value: Value) -> None:
        self.joined.ins[self.position] = value


def compute_copies(
    graph: Graph, env: Env, allowed: Allowed | None, cost: Cost, traits: Traits = PLAIN
) -> None:
    """Have parts computed in their place, where that takes less time and no more memory."""
    if not any(op.name == "CONCAT" for op in graph.ops):
        return
    b = Builder(env, Graph(graph.name), (allowed,) if allowed else ())
    parts = list(_parts(graph, b, cost))
    if not parts:
        return
    least, _ = _estimate(graph, traits)
    for part in parts:
        part.put(part.product)
    now, largest = _estimate(graph, traits)
    for _ in range(MOST):
        if now <= least:
            break
        for part in parts:
            if part.joined.outs[0] in largest:
                part.put(part.value)
        now, largest = _estimate(graph, traits)
    if now > least:
        for part in parts:
            part.put(part.value)
    _recompute(graph, parts, traits)
    _insert(graph, parts)


def _insert(graph: Graph, parts: list[Part]) -> None:
    """Enter what is computed for a CONCAT before it."""
    new: dict[Op, list[Op]] = {}
    for part in parts:
        value, made = part.joined.ins[part.position], list[Op]()
        while value is not part.value and (op := value.producer) is not None:
            made.insert(0, op)
            if op.name in _LAYERS:
                break
            value = op.ins[0]
        new.setdefault(part.joined, []).extend(made)
    graph.ops = [each for op in graph.ops for each in (*new.get(op, ()), op)]


def _recompute(graph: Graph, parts: list[Part], traits: Traits) -> None:
    """Make parts once more that are kept when most memory is needed, as long as that helps."""
    least, largest = _estimate(graph, traits)
    for _ in range(MOST):
        kept = [p for p in parts if p.value in largest and p.again is not None]
        for part in kept:
            before = part.joined.ins[part.position]
            assert part.again is not None
            part.put(part.again)
            now, there = _estimate(graph, traits)
            if now <= ENOUGH * least:
                least, largest = now, there
                break
            part.put(before)
        else:
            return


def _parts(graph: Graph, b: Builder, cost: Cost) -> Iterator[Part]:
    """Parts that are copied and need not be, but none that would be written before others are made.

    The whole is kept from the first part on; a compiler goes through them in their order,
    and copies those last that it copies.
    """
    uses = graph.uses()
    times = {op: index for index, op in enumerate(graph.ops)}
    for op in graph.ops:
        if op.name != "CONCAT" or op.outs[0].dtype is not I8 or op.outs[0].type.rank != 4:
            continue
        if op.outs[0].shape[0] > 1:
            continue  # products are computed for one of a batch at a time
        made = [times[v.producer] if v.producer is not None else -1 for v in op.ins]
        copied = -1  # when the last of those was made that stay copies
        for position, value in enumerate(op.ins):
            if _is_written(graph, value, uses):
                continue
            part = _part(op, position, uses, b, cost)
            if part is None or max(copied, *made[position:]) > made[position]:
                copied = max(copied, made[position])
            else:
                yield part


def _part(op: Op, position: int, uses: Uses, b: Builder, cost: Cost) -> Part | None:
    """What is computed instead of a copy; None where nothing is faster."""
    value = op.ins[position]
    product = None if value.is_const else _product(b, value)
    if product is None:
        return None
    again, copy = _again(value, uses), cost(_copy(b, value))
    if _cost(product, value, cost) > _WORTH * copy:
        return None
    if again is not None and _cost(again, None, cost) > copy:
        again = None
    return Part(op, position, value, product, again)


def _is_written(graph: Graph, value: Value, uses: Uses) -> bool:
    """Whether what computes a value writes it to its place in a whole."""
    made = value.producer
    if made is None or made.name in _VIEWS or value in graph.outputs:
        return False
    return len(uses[value]) == 1


def _copy(b: Builder, value: Value) -> Op:
    made = b.CONCAT(b.RESHAPE(value, b.shape(value.shape)), axis=3)
    assert made.producer is not None
    return made.producer


def _product(b: Builder, value: Value) -> Value | None:
    """x · 1; None where the target cannot multiply it."""
    b.loc = value.producer.loc if value.producer is not None else None
    try:
        sums = b.layer("DEPTHWISE_CONV2D", value, np.ones((1, 1, value.shape[-1], 1)))
        made = b.levels(sums, I8)
    except Unsupported:
        return None
    made.quant = value.quant
    return made


def _again(value: Value, uses: Uses) -> Value | None:
    """The layer that computes a value, with all that follows its sums, once more."""
    made = value.producer
    if made is None or made.name not in (*_LAYERS, *FUNCTIONS):
        return None
    if not all(v.is_const for v in made.ins[1:]):
        return None
    source: Value | None = made.ins[0]
    if made.name in FUNCTIONS:
        source = _again(made.ins[0], uses) if len(uses[made.ins[0]]) == 1 else None
    if source is None:
        return None
    twin = Value(value.type, quant=value.quant, loc=value.loc, limits=value.limits)
    Op(made.defn, [source, *made.ins[1:]], [twin], made.attrs, loc=made.loc)
    return twin


def _cost(made: Value, source: Value | None, cost: Cost) -> float:
    """What a layer and the functions behind it cost."""
    total, op = 0.0, made.producer
    while op is not None:
        total += cost(op)
        op = None if op.name in _LAYERS or op.ins[0] is source else op.ins[0].producer
    return total


def _estimate(graph: Graph, traits: Traits) -> tuple[int, list[Value]]:
    """The most memory at once, and what is there then, in the order in which a device runs it."""
    return peak(Graph(graph.name, graph.inputs, graph.outputs, _ordered(graph)), traits)


def _ordered(graph: Graph) -> list[Op]:
    """Operators after those that they read, as a compiler goes back from the results.

    Of a whole, parts that are written come first; those that are copied wait for them.
    """
    uses = graph.uses()
    found: dict[Op, None] = {}
    stack = [v.producer for v in reversed(graph.outputs) if v.producer is not None]
    while stack:
        op = stack[-1]
        values = op.ins
        if op.name == "CONCAT":
            values = sorted(op.ins, key=lambda v: not _is_written(graph, v, uses))
        missing = [v.producer for v in values if v.producer and v.producer not in found]
        if op in found or not missing:
            found[stack.pop()] = None
        else:
            stack.append(missing[0])
    return list(found)
