"""A recurrence as a WHILE_LOOP, which has one graph whatever the number of steps is.

The loop counts its steps, up or down. It carries the states, GATHERs the element of each sequence
at the step, and SCATTERs the step's results into theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tosaic.ir.graph import Graph, Value
from tosaic.lowering.alternatives import mask
from tosaic.lowering.builder import Lowering
from tosaic.lowering.walk import Region
from tosaic.rules._regions import passed_on, same_meaning, written_out
from tosaic.spec import dtypes as d


def has_loops(b: Lowering) -> bool:
    """Whether recurrences are loops here."""
    return b.env.has("cf") and bool(b.traits.longest_unrolled) and not b.traits.host_loops


def recurrence(
    b: Lowering, step: Region, carried: Sequence[Value], xs: Sequence[Value],
    read: Sequence[Value], count: int, axes: Sequence[int], back: bool, block: int,
) -> list[Value]:  # fmt: skip
    """The last carried values and all results of a scan."""
    name = f"{b.graph.name}_{len(b.graph.ops)}"
    body, test = (_child(b, f"{name}_{part}") for part in ("body", "cond"))
    rows = [_rows(b, line, axis, count) for line, axis in zip(xs, axes)]
    number, one = body.input(d.I32, (1, 1), "step"), body.const([[1]], d.I32)
    body.proved(number, int(back), count - int(not back))
    place = body.SUB(number, one) if back else number
    state = [_input(body, value) for value in carried]
    passed = [value for value in (*rows, *read) if not value.is_const]
    inside = {value: _input(body, value) for value in passed}
    elements = [
        _element(body, inside.get(row, row), place, line, axis, block)
        for row, line, axis in zip(rows, xs, axes)
    ]
    given = [*state, *elements, *(inside.get(value, value) for value in read)]
    made = step.lower(body, given, name, {})
    results = written_out(body, made, [value for value in given if not value.is_const])
    ends, found = results[: len(state)], results[len(state) :]
    same_meaning(made.inputs, ends, "what a loop begins with and what its step gives")
    lines, behind = [_line(b, value, count) for value in found], axes[len(xs) :]
    kept = [_input(body, line) for line in lines]
    passed_on(body, [place if back else body.ADD(number, one), *ends])
    passed_on(body, list(inside.values()))
    passed_on(body, [_written(body, line, place, value, axis, block)
                     for line, value, axis in zip(kept, found, behind)])  # fmt: skip
    first, behind_last = (b.const([[n]], d.I32) for n in (0, count))
    start = [behind_last if back else first, *carried, *passed, *lines]
    for value in start:
        _input(test, value)
    now = test.graph.inputs[0]
    sides = (now, first) if back else (behind_last, now)
    test.output(mask.compared(test, ">", *sides))
    last = b.results("WHILE_LOOP", *start, regions=(test.graph, body.graph))
    states = [b.with_quant(value, end.quant) for value, end in zip(last[1:], ends)]
    stacked = [
        _stacked(b, b.with_quant(line, value.quant), value.shape, axis, count, block)
        for line, value, axis in zip(last[len(last) - len(found) :], found, behind)
    ]
    return [*states, *stacked]


def _child(b: Lowering, name: str) -> Lowering:
    made = Lowering(b.env, Graph(name, version=b.env.version), b.constraints, b.traits)
    made.loc = b.loc
    return made


def _input(b: Lowering, like: Value) -> Value:
    return b.with_quant(b.input(like.dtype, like.shape), like.quant)


def _front(rank: int, axis: int) -> list[int]:
    """The permutation that takes an axis to the front."""
    return [axis % rank, *(n for n in range(rank) if n != axis % rank)]


def _back(rank: int, axis: int) -> list[int]:
    """The permutation that takes the first axis where it belongs."""
    return [int(n) for n in np.argsort(_front(rank, axis))]


def _rows(b: Lowering, line: Value, axis: int, count: int) -> Value:
    """A sequence as [1, steps, elements of a step]."""
    first = b.permute(line, _front(line.type.rank, axis))
    return b.reshape(first, (1, count, line.type.size // count))


def _element(b: Lowering, rows: Value, place: Value, line: Value, axis: int, block: int) -> Value:
    """What a step reads of a sequence, in the shape that it has there."""
    row = b.with_quant(b.GATHER(rows, place), rows.quant)
    rank = line.type.rank
    rest = [n for i, n in enumerate(line.shape) if i != axis % rank]
    if not block:
        return b.reshape(row, rest)
    return b.permute(b.reshape(row, (block, *rest)), _back(rank, axis))


def _line(b: Lowering, value: Value, count: int) -> Value:
    """Room for the results of all steps, of which each is written once."""
    shape, kind = (1, count, value.type.size), value.dtype
    zeros = b.const(lambda: np.zeros(shape, kind.array), kind, shape=shape)
    return b.with_quant(zeros, value.quant)


def _written(b: Lowering, line: Value, place: Value, value: Value, axis: int, block: int) -> Value:
    first = b.permute(value, _front(value.type.rank, axis)) if block else value
    return b.SCATTER(line, place, b.reshape(first, (1, 1, math.prod(value.shape))))


def _stacked(
    b: Lowering, line: Value, shape: Sequence[int], axis: int, count: int, block: int
) -> Value:
    """All results, joined along an axis that they have, or stacked along one of their own."""
    if block:
        rest = [n for i, n in enumerate(shape) if i != axis % len(shape)]
        whole = [count * block, *rest]
    else:
        whole = [count, *shape]
    return b.permute(b.reshape(line, whole), _back(len(whole), axis))
