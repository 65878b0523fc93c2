"""Forms that Vela compiles wrongly by themselves or beside others, made into ones that it does not.

The simulator of the NPU shows them: tests/npu/test_simulator_disagreements.py has each. They are
of Vela 5.2, and a repair is exact, so a later Vela at most loses a little by it.
"""

from __future__ import annotations

from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec import dtypes as d
from tosaic.spec.env import Env

# What CONCAT and PAD let write to where the result belongs, and what then starts at 0 instead.
_LOST = {"RESCALE", "REDUCE_MAX", "REDUCE_MIN"}
_LIMITED = {d.I8, d.I16}


def repair(graph: Graph, env: Env) -> None:
    """Put a CLAMP that limits nothing behind what would be written to the wrong place."""
    ops: list[Op] = []
    for op in graph.ops:
        for position in _places(op):
            value = op.ins[position]
            if _is_lost(value):
                limited, made = _limited(value, env)
                ops.append(made)
                op.ins[position] = limited
        ops.append(op)
        for region in op.regions:
            repair(region, env)
    graph.ops = ops


def _places(op: Op) -> range:
    """The operands that an operator lets write into its own result, but for the first of them."""
    if op.name == "CONCAT":
        return range(1, len(op.ins))
    return range(1 if op.name == "PAD" else 0)


def _is_lost(value: Value) -> bool:
    """Whether it is computed by such an operator, whatever shape it is given after that."""
    while value.producer is not None and value.producer.name == "RESHAPE":
        value = value.producer.ins[0]
    return value.producer is not None and value.producer.name in _LOST and value.dtype in _LIMITED


def _limited(value: Value, env: Env) -> tuple[Value, Op]:
    b = Builder(env)
    low, high = value.dtype.range
    made: Value = b.CLAMP(value, min_val=low, max_val=high)
    made.quant = value.quant
    (op,) = b.graph.ops
    op.loc = value.producer.loc if value.producer else None
    return made, op
