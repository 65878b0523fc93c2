"""Exact forms in the place of operators that Vulkan's emulation computes wrongly."""

from __future__ import annotations

from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec.dtypes import F16, F32


def work_around(graph: Graph) -> None:
    """Change a graph in place; what it computes stays the same."""
    if not any(_loses_infinity(op) for op in graph.ops):
        return
    kept, graph.ops = graph.ops, []
    b, others = Builder("TOSA-1.0+FP", graph), dict[Value, Value]()
    for op in kept:
        op.ins = [others.get(value, value) for value in op.ins]
        if _loses_infinity(op):
            others[op.outs[0]] = _pool_in_f32(b, op)
        else:
            graph.ops.append(op)
    graph.outputs = [others.get(value, value) for value in graph.outputs]


def _loses_infinity(op: Op) -> bool:
    """A maximum pool of fp16, which gives -65504 for windows of -inf."""
    return op.name == "MAX_POOL2D" and op.ins[0].dtype is F16


def _pool_in_f32(b: Builder, op: Op) -> Value:
    """The same pool of wider floats, which hold every number of fp16: both casts are exact."""
    old = op.outs[0]
    b.loc = op.loc
    wide = b.results("MAX_POOL2D", b.CAST(op.ins[0], out=F32), **op.attrs)[0]
    made = b.CAST(wide, out=F16)
    made.name, made.quant, made.loc = old.name, old.quant, old.loc
    return made
