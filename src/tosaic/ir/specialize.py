"""Specialises a graph with unknown sizes: what it is once its inputs have shapes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tosaic.errors import InvalidInput, Unsupported
from tosaic.ir.build import known, shape_value
from tosaic.ir.graph import Const, Graph, Op, Value
from tosaic.spec.check import resolve
from tosaic.spec.dtypes import SHAPE, UNKNOWN, TensorType
from tosaic.spec.env import Env, everything

Shape = tuple[int, ...]


def is_dynamic(graph: Graph) -> bool:
    """Whether inputs of a graph choose sizes."""
    return any(not value.type.is_known for value in graph.inputs)


def fits(declared: Shape, given: Shape) -> bool:
    """Whether a shape is one of those that unknown sizes leave open."""
    return len(declared) == len(given) and all(
        size in (UNKNOWN, number) and number > 0 for size, number in zip(declared, given)
    )


def specialize(graph: Graph, shapes: Sequence[Shape]) -> Graph:
    """The graph for inputs of some shapes, without shape operators; InvalidInput if it has none."""
    made: dict[Value, Value] = {}
    for value, shape in zip(graph.inputs, shapes, strict=True):
        if not fits(value.shape, shape):
            raise InvalidInput(f"input {value.name}: {value.type} was given shape {list(shape)}")
        made[value] = Value(
            TensorType(value.dtype, shape), value.name, None, value.quant, value.loc, value.limits
        )
    env, ops = everything(graph.version, level="none"), list[Op]()
    for op in graph.ops:
        ins = [made.get(value, value) for value in op.ins]
        given = [value.shape for value in ins[op.name == "COND_IF" :]]
        regions = tuple(specialize(region, given) for region in op.regions)
        try:
            outs = _results(op, ins, regions, env)
        except Unsupported as refusal:
            sizes = " and ".join(str(list(shape)) for shape in shapes)
            raise InvalidInput(f"inputs of {sizes} do not fit the graph: {refusal.reason}",
                               op.loc) from None  # fmt: skip
        made.update(zip(op.outs, outs))
        if outs and outs[0].const is None:
            ops.append(Op(op.defn, ins, outs, op.attrs, regions, op.loc))
    read = {value for op in ops for value in op.ins}.union(made.get(v, v) for v in graph.outputs)
    ops = [op for op in ops if op.name != "CAST" or op.outs[0] in read]  # others had a size read
    inputs, outputs = ([made.get(v, v) for v in side] for side in (graph.inputs, graph.outputs))
    return Graph(graph.name, inputs, outputs, ops, graph.version)


def _results(op: Op, ins: list[Value], regions: tuple[Graph, ...], env: Env) -> list[Value]:
    kinds = [value.type for value in ins]
    if op.name == "SLICE" and all(value.const is not None for value in ins):
        array, start, size = (value.const.array for value in ins if value.const is not None)
        ends = zip(start.reshape(-1), size.reshape(-1), array.shape)
        if all(int(a) >= 0 and int(a + n) <= whole for a, n, whole in ends):
            part = array[tuple(slice(int(a), int(a + n)) for a, n in zip(start, size))]
            known_part = Const(np.ascontiguousarray(part))
            kind = TensorType(ins[0].dtype, part.shape)
            return [Value(kind, op.outs[0].name, known_part, op.outs[0].quant, op.loc)]
    if op.outs and op.outs[0].dtype is SHAPE:
        array = shape_value(op.name, ins, dict(op.attrs))
        return [Value(TensorType(SHAPE, array.shape), "", Const(array), loc=op.loc)]
    wanted = [v.type if v.type.is_known else v.dtype for v in op.outs]
    found = resolve(op.defn, env, kinds, op.attrs, partial(known, ins), wanted, regions)
    return [
        Value(kind, old.name, None, old.quant, old.loc, old.limits)
        for kind, old in zip(found, op.outs)
    ]
