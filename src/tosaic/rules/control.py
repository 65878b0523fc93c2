"""Branches and loops: their functions become the regions of COND_IF and WHILE_LOOP.

Where a target has none of these, both branches are computed and SELECT chooses, and a loop is
written out round by round if constants decide when it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tosaic.errors import Unsupported
from tosaic.front.registry import rule
from tosaic.interp.model import Model
from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.lowering.alternatives import data_movement as moves
from tosaic.lowering.builder import Lowering
from tosaic.lowering.walk import Region
from tosaic.rules._recurrence import has_loops, recurrence
from tosaic.rules._regions import passed_on, same_meaning, written_out
from tosaic.rules.move import cat, select, stack


def _tensors(values: Sequence[Any]) -> list[Value]:
    for value in values:
        if not isinstance(value, Value):
            raise Unsupported(f"a branch or a loop takes tensors, not {value!r}")
    return list(values)


def _need_extension(b: Lowering, has_other_form: bool) -> None:
    """Say so before anything inside is refused for a reason of its own."""
    if not b.env.has("cf") and not has_other_form:
        raise Unsupported(f"branches and loops need extension cf, which {b.env} lacks")


@rule("cond", policy="NONE")
def cond(
    b: Lowering, pred: Value | bool, true_fn: Region, false_fn: Region, operands: Sequence[Any] = ()
) -> list[Value]:
    _need_extension(b, b.traits.computes_both)
    values = _tensors(operands)
    if not isinstance(pred, Value):
        raise Unsupported("the condition of a branch must be a tensor")
    name, wanted = f"{b.graph.name}_{len(b.graph.ops)}", dict(b.items)
    branches = [true_fn.lower(b, values, f"{name}_then", {}, wanted)]
    branches.append(false_fn.lower(b, values, f"{name}_else", {}, wanted))
    same_meaning(branches[0].outputs, branches[1].outputs, "the results of the two branches")
    passed = [v for v in values if not v.is_const]
    if not b.env.has("cf"):
        sides = [written_out(b, branch, passed) for branch in branches]
        return [_chosen(b, pred, *pair) for pair in zip(*sides)]
    results = b.results("COND_IF", pred, *passed, regions=branches)
    return [b.with_quant(r, o.quant) for r, o in zip(results, branches[0].outputs)]


@rule("while_loop", policy="NONE")
def while_loop(
    b: Lowering,
    cond_fn: Region,
    body_fn: Region,
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any] = (),
) -> list[Value]:
    """What the body only reads is carried round too, as it is."""
    _need_extension(b, bool(b.traits.most_rounds))
    carried, read = _tensors(carried_inputs), _tensors(additional_inputs)
    wanted = {i: m for i in range(len(carried)) if (m := body_fn.reads(i)) is not None}
    start = [b.requantize(v, *wanted[i]) if i in wanted else v for i, v in enumerate(carried)]
    if not b.env.has("cf"):
        return _rounds(b, cond_fn, body_fn, start, read, wanted)
    start = [b.with_quant(b.IDENTITY(v), v.quant) if v.is_const else v for v in start]
    name = f"{b.graph.name}_{len(b.graph.ops)}"
    test = cond_fn.lower(b, [*start, *read], f"{name}_cond", {})
    known = cond_fn.limit()
    body = body_fn.lower(b, [*start, *read], f"{name}_body", dict([known] if known else []), wanted)
    same_meaning(start, body.outputs, "what a loop begins with and what its body gives")
    passed = [v for v in read if not v.is_const]
    inner = Lowering(b.env, body, b.constraints, b.traits)
    passed_on(inner, body.inputs[len(body.inputs) - len(passed) :])
    results = b.results("WHILE_LOOP", *start, *passed, regions=(test, body))
    return [b.with_quant(r, v.quant) for r, v in zip(results, start)]


@rule("tosaic_scan", policy="NONE")
def scan(
    b: Lowering, step: Region, carried: Sequence[Any], xs: Sequence[Any], read: Sequence[Any],
    count: int, axes: Sequence[int], back: bool, block: int,
) -> list[Value]:  # fmt: skip
    """A recurrence step by step, in one graph."""
    state, lines, others = _tensors(carried), _tensors(xs), _tensors(read)
    if has_loops(b):
        return recurrence(b, step, state, lines, others, count, axes, back, block)
    made: list[list[Value]] = []
    for index in reversed(range(count)) if back else range(count):
        elements = [
            moves.piece(b, line, axis, index * block, (index + 1) * block)
            if block else select(b, line, axis, index)
            for line, axis in zip(lines, axes)
        ]  # fmt: skip
        given = [*state, *elements, *others]
        body = step.lower(b, given, f"{b.graph.name}_{index}", {})
        results = written_out(b, body, [v for v in given if not v.is_const])
        same_meaning(state, results, "what a loop begins with and what its step gives")
        state = results[: len(state)]
        made.append(results[len(state) :])
    kinds = zip(*(reversed(made) if back else made))
    join = cat if block else stack
    return [*state, *(join(b, list(kind), axis) for kind, axis in zip(kinds, axes[len(lines) :]))]


def _chosen(b: Lowering, condition: Value, first: Value, second: Value) -> Value:
    """One of two results, whole."""
    ones = (1,) * len(first.shape)
    flag = condition if condition.shape == ones else b.RESHAPE(condition, b.shape(ones))
    return b.with_quant(b.SELECT(flag, first, second), first.quant)


def _rounds(
    b: Lowering, cond_fn: Region, body_fn: Region, start: list[Value], read: list[Value],
    wanted: dict[int, Any],
) -> list[Value]:  # fmt: skip
    """A loop round by round, for as long as its condition holds."""
    carried, name = start, f"{b.graph.name}_{len(b.graph.ops)}"
    for number in range(b.traits.most_rounds + 1):
        test = cond_fn.lower(b, [*carried, *read], f"{name}_cond", {})
        goes_on = _computed(test.outputs[0], test.ops)
        if goes_on is None:
            raise Unsupported(
                "when the loop ends depends on what it computes, and there are no loops here"
            )
        if not bool(goes_on.reshape(-1)[0]):
            return carried
        if number == b.traits.most_rounds:
            break
        body = body_fn.lower(b, [*carried, *read], f"{name}_{number}", {}, wanted)
        same_meaning(carried, body.outputs, "what a loop begins with and what its body gives")
        passed = [v for v in (*carried, *read) if not v.is_const]
        carried = [_known(b, value) for value in written_out(b, body, passed)]
    raise Unsupported(f"the loop has more than {b.traits.most_rounds} rounds")


def _known(b: Lowering, value: Value) -> Value:
    """A constant in the place of a value that follows from constants."""
    array = None if value.is_const else _computed(value, b.graph.ops)
    return value if array is None else b.const(array, value.dtype, quant=value.quant)


def _computed(value: Value, ops: Sequence[Op]) -> Array | None:
    """What a value is, if some of the operators make it of constants alone."""
    if value.is_const and value.const is not None:
        return value.const.array
    needed, left = set[Op](), [value]
    while left:
        one = left.pop()
        if one.is_const:
            continue
        if one.producer is None:
            return None
        if one.producer not in needed:
            needed.add(one.producer)
            left += one.producer.ins
    graph = Graph(outputs=[value], ops=[op for op in ops if op in needed])
    return Model(graph).run()[0]
