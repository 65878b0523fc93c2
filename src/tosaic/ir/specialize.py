"""Specialises a graph with unknown sizes: what it is once its inputs have shapes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

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
        try:
            outs = _results(op, ins, env)
        except Unsupported as refusal:
            sizes = " and ".join(str(list(shape)) for shape in shapes)
            raise InvalidInput(f"inputs of {sizes} do not fit the graph: {refusal.reason}",
                               op.loc) from None  # fmt: skip
        made.update(zip(op.outs, outs))
        if outs and outs[0].dtype is not SHAPE:
            ops.append(Op(op.defn, ins, outs, op.attrs, op.regions, op.loc))
    inputs, outputs = ([made.get(v, v) for v in side] for side in (graph.inputs, graph.outputs))
    return Graph(graph.name, inputs, outputs, ops, graph.version)


def _results(op: Op, ins: list[Value], env: Env) -> list[Value]:
    kinds = [value.type for value in ins]
    if op.outs and op.outs[0].dtype is SHAPE:
        array = shape_value(op.name, ins, dict(op.attrs))
        return [Value(TensorType(SHAPE, array.shape), "", Const(array), loc=op.loc)]
    wanted = [v.type if v.type.is_known else v.dtype for v in op.outs]
    found = resolve(op.defn, env, kinds, op.attrs, partial(known, ins), wanted, op.regions)
    return [
        Value(kind, old.name, None, old.quant, old.loc, old.limits)
        for kind, old in zip(found, op.outs)
    ]
