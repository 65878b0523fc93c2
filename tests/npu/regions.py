"""Steps of the hunt that are branches and loops, whose regions have steps of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from npu.maker import Maker
from npu.operators import Step, need
from npu.sampled import cast, fitted
from tosaic.ir.graph import Graph, Value
from tosaic.lowering.builder import Lowering
from tosaic.spec.dtypes import BOOL, I32

Draw = Callable[[Maker], Step]


def branch(m: Maker, x: Value, draw: Draw) -> Value:
    """COND_IF with a flag that is given, or that a comparison computes."""
    need(m.u85 and "_arm" not in m.b.graph.name)
    pred = m.input(BOOL, (1,))
    if m.chance(0.3):
        pred = m.b.GREATER(m.input(I32, (1,)), m.b.const([0], I32))
    passed, arms = [x], list[Graph]()
    for which in ("then", "else"):
        arms.append(_arm(m, f"main_arm_{len(m.data)}_{which}", passed, draw).graph)
        _pass_more(m, passed, arms)
    return m.b.COND_IF(pred, *passed, regions=arms)


def loop(m: Maker, x: Value, draw: Draw) -> Value:
    """WHILE_LOOP that applies a body two or three times."""
    need(m.u85 and "_arm" not in m.b.graph.name)
    passed, name = [x], f"main_arm_{len(m.data)}"
    body = _arm(m, f"{name}_body", passed, draw)
    _pass_more(m, passed, [body.graph])
    count = body.input(I32, (1,), f"{name}_count")
    body.graph.inputs.insert(0, body.graph.inputs.pop())
    _, _, *read = body.graph.inputs
    result = body.graph.outputs.pop()
    body.output(body.ADD(count, body.const([1], I32)), result, *(body.IDENTITY(v) for v in read))
    test = m.b.child(f"{name}_test")
    for value in body.graph.inputs:
        test.input(value.dtype, value.shape, f"{value.name}_test")
    limit = test.const([m.size(2, 3)], I32)
    test.output(test.GREATER(limit, test.graph.inputs[0]))
    start = m.b.IDENTITY(m.b.const([0], I32))
    return m.b.results("WHILE_LOOP", start, *passed, regions=(test.graph, body.graph))[1]


def _arm(m: Maker, name: str, passed: Sequence[Value], draw: Draw) -> Lowering:
    """A region that makes of the first operand another value of its type and shape."""
    inner = copy.copy(m)
    inner.b = Lowering(m.b.env, Graph(name, version=m.b.env.version), m.b.constraints)
    inner.data = []
    for value in passed:
        array = m.measure(value).astype(value.dtype.array)
        inner.input(value.dtype, value.shape, data=array).quant = value.quant
    x = first = inner.b.graph.inputs[0]
    for _ in range(m.size(1, 3)):
        x = draw(inner)(inner, x)
    result = fitted(inner, cast(inner, x, first.dtype), first.shape)
    for number, value in enumerate(inner.b.graph.inputs):
        value.name = f"{name}_{number}"
    inner.b.output(result)
    return inner.b


def _pass_more(m: Maker, passed: list[Value], arms: Sequence[Graph]) -> None:
    """Operands for the inputs that the last region has beyond them, which the others get, too."""
    *others, last = arms
    for value in last.inputs[len(passed) :]:
        passed.append(m.input(value.dtype, value.shape))
        for arm in others:
            arm.inputs.append(Value(value.type, f"{arm.name}_{len(passed)}"))
