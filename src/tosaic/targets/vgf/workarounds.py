"""Exact forms in the place of what Vulkan's emulation computes wrongly, or does not write."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec.dtypes import F16, F32
from tosaic.spec.env import everything
from tosaic.targets.vgf.readback import known_outputs
from tosaic.targets.vgf.widen import widen as in_fp32

Forms = tuple[tuple[Callable[[Op], bool], Callable[[Builder, Op], Value]], ...]


def work_around(graph: Graph, widen: bool = True) -> None:
    """Change a graph in place; what it computes stays the same, or is rounded less often.

    With ``widen`` what has 16 bits of floating point is computed in fp32.
    """
    _write_zeros(graph)
    _take_forms(graph, _FORMS)
    if widen:
        in_fp32(graph)
    else:
        _take_forms(graph, _NARROW_FORMS)


def _take_forms(graph: Graph, forms: Forms) -> None:
    if not any(applies(op) for op in graph.ops for applies, _ in forms):
        return
    kept, graph.ops = graph.ops, []
    b, others = Builder(everything(graph.version, level="none"), graph), dict[Value, Value]()
    for op in kept:
        op.ins = [others.get(value, value) for value in op.ins]
        form = next((form for applies, form in forms if applies(op)), None)
        if form is None:
            graph.ops.append(op)
            continue
        old, b.loc = op.outs[0], op.loc
        made = others[old] = form(b, op)
        made.name, made.quant, made.loc = old.name, old.quant, old.loc
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


def _in_f32(b: Builder, op: Op) -> Value:
    """The same of wider floats, which hold every number of 16 bits: casts to them are exact."""
    return b.CAST(b.op(op.name, b.CAST(op.ins[0], out=F32), **op.attrs), out=op.outs[0].dtype)


def _is_zero(value: Value) -> bool:
    return value.is_const and value.const is not None and not np.any(value.const.array)


def _drops_operand(op: Op) -> bool:
    """A product of floats with zero, which the converter makes a constant: NaN would be lost."""
    return op.name == "MUL" and op.ins[0].dtype.is_float and any(map(_is_zero, op.ins[:2]))


def _product_with_zero(b: Builder, op: Op) -> Value:
    """x - x is zero, or NaN for infinities and NaN; its product with ±x has the right sign."""
    x, zero = sorted(op.ins[:2], key=_is_zero)
    assert zero.const is not None
    minus = np.signbit(zero.const.array)
    signed = x
    if minus.any():
        signed = b.MUL(x, b.const(np.where(minus, -1.0, 1.0), x.dtype), op.ins[2])
    elif x.shape != op.outs[0].shape:
        many = [out // n for out, n in zip(op.outs[0].shape, x.shape)]
        signed = b.TILE(x, b.shape(many))
    return b.MUL(b.SUB(x, x), signed, op.ins[2])


_FORMS: Forms = ((_drops_operand, _product_with_zero),)
_NARROW_FORMS: Forms = ((_loses_infinity, _in_f32),)
