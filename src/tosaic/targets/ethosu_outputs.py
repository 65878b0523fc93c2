"""Results that Vela forgets: those that are also the second matrix of a product, turned.

Vela 5.2 turns that matrix itself, lets two turns cancel, and then has no tensor for the result.
tests/targets/test_ethosu_outputs.py has the form.
"""

from __future__ import annotations

import numpy as np

from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec import dtypes as d
from tosaic.spec.env import Env

_MOVES = {"RESHAPE", "TRANSPOSE", "RESCALE"}  # which Vela moves a turn through


def own_outputs(graph: Graph, env: Env) -> None:
    """Copy each result that would be lost."""
    uses = graph.uses()
    for number, value in enumerate(graph.outputs):
        if value.dtype in (d.I8, d.I16, d.I32) and _is_lost(value, uses):
            graph.outputs[number] = _copied(graph, value, env)


def _is_lost(value: Value, uses: dict[Value, list[Op]]) -> bool:
    """Whether it is the second operand of a product, in whatever shape, order and scale."""
    for op in uses.get(value, ()):
        if op.name == "MATMUL" and op.ins[1] is value:
            return True
        if op.name in _MOVES and _is_lost(op.outs[0], uses):
            return True
    return False


def _copied(graph: Graph, value: Value, env: Env) -> Value:
    """A CLAMP that limits nothing, or a sum with 0; it takes over the name of the result."""
    b = Builder(env)
    if value.dtype is d.I32:
        made: Value = b.ADD(value, b.const(np.zeros((1,) * value.type.rank), d.I32))
    else:
        low, high = value.dtype.range
        made = b.CLAMP(value, min_val=low, max_val=high)
    made.quant, made.name, value.name = value.quant, value.name, f"{value.name}_inside"
    (op,) = b.graph.ops
    op.loc = value.producer.loc if value.producer else None
    graph.ops.append(op)
    return made
