"""Specialises a graph with unknown sizes: what it is once its inputs have shapes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tosaic.errors import InvalidInput, Unsupported
from tosaic.ir.build import known, shape_value
from tosaic.ir.graph import Array, Const, Graph, Op, Value
from tosaic.spec.check import resolve
from tosaic.spec.dtypes import SHAPE, UNKNOWN, TensorType
from tosaic.spec.env import Env, everything

Shape = tuple[int, ...]
FOLDED = frozenset({"SLICE", "TILE", "REDUCE_SUM", "RESHAPE", "CAST"})


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


def _folded(op: Op, arrays: Sequence[Array]) -> Array | None:
    """A constant of this size, out of those that do for all; None where it is none of these."""
    array, more = arrays[0], [[int(n) for n in a.reshape(-1)] for a in arrays[1:]]
    match op.name:
        case "SLICE":
            start, size = more
            part = array[tuple(slice(a, a + n) for a, n in zip(start, size))]
            return part if list(part.shape) == size else None
        case "TILE":
            return np.tile(array, more[0])
        case "RESHAPE":
            return array.reshape(more[0])
        case "REDUCE_SUM" if array.dtype.kind in "if" and (array == 1).all():  # a count
            total: Array = array.sum(op.attrs["axis"], array.dtype, keepdims=True)
            return total
        case "CAST" if array.size == 1 and float(array.item()).is_integer():
            return array.astype(op.outs[0].dtype.array)
    return None


def _results(op: Op, ins: list[Value], regions: tuple[Graph, ...], env: Env) -> list[Value]:
    kinds = [value.type for value in ins]
    arrays = [value.const.array for value in ins if value.const is not None]
    if op.name in FOLDED and len(arrays) == len(ins):
        array = _folded(op, arrays)
        if array is not None:
            kind = TensorType(op.outs[0].dtype, array.shape)
            made = Const(np.ascontiguousarray(array))
            return [Value(kind, op.outs[0].name, made, op.outs[0].quant, op.loc)]
    if op.outs and op.outs[0].dtype is SHAPE:
        array = shape_value(op.name, ins, dict(op.attrs))
        return [Value(TensorType(SHAPE, array.shape), "", Const(array), loc=op.loc)]
    wanted = [v.type if v.type.is_known else v.dtype for v in op.outs]
    found = resolve(op.defn, env, kinds, op.attrs, partial(known, ins), wanted, regions)
    return [
        Value(kind, old.name, None, old.quant, old.loc, old.limits)
        for kind, old in zip(found, op.outs)
    ]
