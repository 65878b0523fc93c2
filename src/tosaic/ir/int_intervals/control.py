"""Bounds through branches, loops and variables."""

from __future__ import annotations

from dataclasses import replace

from tosaic.ir.graph import Op, Value
from tosaic.ir.int_intervals.core import (
    RULES,
    Bounds,
    Intervals,
    rule,
    run_graph,
    tracked,
    whole,
)

for _name in ["VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE", "CUSTOM", "CONST", "CONST_SHAPE"]:
    RULES[_name] = lambda a, op: [whole(v) for v in op.outs] if all(map(tracked, op.outs)) else []


@rule("COND_IF")
def _branches(a: Intervals, op: Op) -> list[Bounds]:
    """What either branch gives."""
    results = [_region(a, op, i, [_input(a, v) for v in op.ins[1:]]) for i in (0, 1)]
    return [_joined(x, y, v) for x, y, v in zip(*results, op.outs)]


@rule("WHILE_LOOP")
def _loop(a: Intervals, op: Op) -> list[Bounds]:
    """What holds before and after every turn: what turns change becomes its whole type."""
    state = [_input(a, v) for v in op.ins]
    for _ in range(len(state) + 2):
        _region(a, op, 0, state)
        after = _region(a, op, 1, state)
        grown = [_joined(x, y, v) for x, y, v in zip(state, after, op.ins)]
        if all(_equal(x, y) for x, y in zip(grown, state)):
            break
        state = [
            x if _equal(x, y) else whole(v) for x, y, v in zip(grown, state, op.ins)
        ]  # fmt: skip
    return state


def _input(a: Intervals, value: Value) -> Bounds:
    return a.of(value).over(0) if tracked(value) else Bounds(0, 0)


def _joined(x: Bounds, y: Bounds, value: Value) -> Bounds:
    return x.joined(y) if tracked(value) else x


def _equal(x: Bounds, y: Bounds) -> bool:
    return x is y or x.ends == y.ends


def _region(a: Intervals, op: Op, index: int, given: list[Bounds]) -> list[Bounds]:
    """The results of a region whose inputs have bounds; its findings are the operator's."""
    region = op.regions[index]
    inner = replace(a, keeps=False, findings={}, _known=dict(a._known), _problem=None)
    for value, found in zip(region.inputs, given):
        inner.bind(value, found if value.limits is None else found.within(*value.limits))
    run_graph(inner, region)
    for finding in inner.findings.values():
        a.require(False, str(finding))
    return [_input(inner, v) for v in region.outputs]
