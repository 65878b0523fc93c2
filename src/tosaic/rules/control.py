"""Branches and loops: their functions become the regions of COND_IF and WHILE_LOOP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tosaic.errors import Unsupported
from tosaic.front.registry import rule
from tosaic.ir.graph import Graph, Value
from tosaic.lowering.builder import Lowering
from tosaic.lowering.walk import Region


def _tensors(values: Sequence[Any]) -> list[Value]:
    for value in values:
        if not isinstance(value, Value):
            raise Unsupported(f"a branch or a loop takes tensors, not {value!r}")
    return list(values)


def _same_meaning(first: Sequence[Value], second: Sequence[Value], what: str) -> None:
    """A value that goes two ways must mean the same on both."""
    for one, other in zip(first, second):
        if one.quant != other.quant:
            raise Unsupported(f"{what} are quantized differently, and nothing here rescales them")


def _need_extension(b: Lowering) -> None:
    """Say so before anything inside is refused for a reason of its own."""
    if not b.env.has("cf"):
        raise Unsupported(f"branches and loops need extension cf, which {b.env} lacks")


@rule("cond", policy="NONE")
def cond(
    b: Lowering, pred: Value | bool, true_fn: Region, false_fn: Region, operands: Sequence[Any] = ()
) -> list[Value]:
    _need_extension(b)
    values = _tensors(operands)
    if not isinstance(pred, Value):
        raise Unsupported("the condition of a branch must be a tensor")
    name, wanted = f"{b.graph.name}_{len(b.graph.ops)}", dict(b.items)
    branches = [true_fn.lower(b, values, f"{name}_then", {}, wanted)]
    branches.append(false_fn.lower(b, values, f"{name}_else", {}, wanted))
    _same_meaning(branches[0].outputs, branches[1].outputs, "the results of the two branches")
    passed = [v for v in values if not v.is_const]
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
    _need_extension(b)
    carried, read = _tensors(carried_inputs), _tensors(additional_inputs)
    wanted = {i: m for i in range(len(carried)) if (m := body_fn.reads(i)) is not None}
    start = [b.requantize(v, *wanted[i]) if i in wanted else v for i, v in enumerate(carried)]
    start = [b.with_quant(b.IDENTITY(v), v.quant) if v.is_const else v for v in start]
    name = f"{b.graph.name}_{len(b.graph.ops)}"
    test = cond_fn.lower(b, [*start, *read], f"{name}_cond", {})
    known = cond_fn.limit()
    body = body_fn.lower(b, [*start, *read], f"{name}_body", dict([known] if known else []), wanted)
    _same_meaning(start, body.outputs, "what a loop begins with and what its body gives")
    passed = [v for v in read if not v.is_const]
    _pass_on(b, body, len(passed))
    results = b.results("WHILE_LOOP", *start, *passed, regions=(test, body))
    return [b.with_quant(r, v.quant) for r, v in zip(results, start)]


def _pass_on(b: Lowering, body: Graph, count: int) -> None:
    """Give the last inputs of a body as its last outputs."""
    inner = Lowering(b.env, body, b.constraints, b.traits)
    for value in body.inputs[len(body.inputs) - count :] if count else []:
        inner.output(inner.with_quant(inner.IDENTITY(value), value.quant))
