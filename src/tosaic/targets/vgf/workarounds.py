"""Exact forms in the place of what Vulkan's emulation computes wrongly, or does not write."""

from __future__ import annotations

import numpy as np

from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec.dtypes import F16, F32
from tosaic.spec.env import everything
from tosaic.targets.vgf.readback import known_outputs


def work_around(graph: Graph) -> None:
    """Change a graph in place; what it computes stays the same."""
    _write_zeros(graph)
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


def _write_zeros(graph: Graph) -> None:
    """Outputs of nothing but zeros, which the emulation leaves unwritten, as slices."""
    for position, array in enumerate(known_outputs(graph)):
        if array is not None and not np.any(array):
            old = graph.outputs[position]
            b = Builder(everything(graph.version, level="none"), graph)
            b.loc = old.loc
            rows = old.shape or (1,)
            more = np.zeros((rows[0] + 1, *rows[1:]), old.dtype.array)
            more[-1] = 1
            made = b.SLICE(b.const(more, old.dtype), b.shape((0,) * len(rows)), b.shape(rows))
            if not old.shape:
                made = b.RESHAPE(made, b.shape(()))
            made.name, made.quant = old.name, old.quant
            graph.outputs[position] = made


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
