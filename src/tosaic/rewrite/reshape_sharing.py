"""Shares one shape among the consumers of a value, so that RESHAPE copies nothing.

A compiler may give a tensor one shape in memory: where another operator reads the same tensor
through a RESHAPE, it is copied. Operators on single elements work in any shape, so they take the
one that their operand has, and the RESHAPE follows them until nobody else reads what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tosaic.ir.graph import Graph, Op, Value
from tosaic.ir.traits import PLAIN, Traits
from tosaic.rewrite.layout import UNARY, groups_of
from tosaic.rewrite.match import Allowed, Cost, Matcher
from tosaic.spec.env import Env
from tosaic.spec.ops_elementwise import BROADCASTS

_REDUCTIONS = ("REDUCE_SUM", "REDUCE_MAX", "REDUCE_MIN")
Groups = list[tuple[list[int], list[int]]]


def share_shapes(
    graph: Graph, env: Env, allowed: Allowed | None, cost: Cost | None, traits: Traits = PLAIN
) -> None:
    """Let operators read values in the shape that they have, where a RESHAPE would copy them."""
    if not any(op.name == "RESHAPE" for op in graph.ops):
        return
    m = Matcher(graph, env, allowed, cost, traits=traits)
    m.queue.clear()
    m.waiting.clear()
    for op in list(graph.ops):
        if op in m.place and len(op.outs) == 1 and not op.regions:
            m.attempt(fill_channels, op) or m.attempt(reshape_behind, op)
    m.run()


def fill_channels(m: Matcher, op: Op) -> Value | None:
    """Rows of columns as columns of channels: single channels compute one at a time.

    Where an operand is repeated, that is; others are read as one row of channels anyway.
    """
    result = op.outs[0]
    if op.name not in BROADCASTS or result.type.rank < 2 or result.shape[-1] != 1:
        return None
    count = 2 if op.name == "MUL" else len(op.ins)
    repeated = any(v.type.size not in (1, result.type.size) for v in op.ins[:count])
    if not repeated:
        return None
    shapes = [(1, *v.shape[:-1]) for v in op.ins[:count]]
    ins = [m.b.RESHAPE(v, m.b.shape(size)) for v, size in zip(op.ins, shapes)]
    made = m.b.op(op.name, *ins, *op.ins[count:], out=result.dtype, **op.attrs)
    return m.b.RESHAPE(made, m.b.shape(result.shape))


def reshape_behind(m: Matcher, op: Op) -> Value | None:
    """The operator in the shape of an operand before a RESHAPE that copies it, and a RESHAPE."""
    reshape = _copying(m, op)
    if reshape is None:
        return None
    source, given = reshape.ins[0], reshape.outs[0]
    groups = groups_of(source.shape, given.shape)
    if groups is None:
        return None
    made = _rebuilt(m, op, source, given, groups)
    if made is None:
        return None
    return m.b.RESHAPE(made, m.b.shape(op.outs[0].shape))


def _copying(m: Matcher, op: Op) -> Op | None:
    """The RESHAPE of an operand of whose source there are other readers."""
    for value in op.ins:
        reshape = m.made_by(value, "RESHAPE")
        if reshape is not None and _is_shared(m, reshape.ins[0]):
            return reshape
    return None


def _is_shared(m: Matcher, value: Value) -> bool:
    return not m.only(value) and not value.is_const


def _rebuilt(m: Matcher, op: Op, source: Value, given: Value, groups: Groups) -> Value | None:
    """What an operator makes of operands in the shape of ``source``; None if it cannot."""
    attrs: dict[str, Any] = dict(op.attrs)
    if op.name in UNARY and op.ins[0] is given:
        if op.attrs.get("per_channel") and source.shape[-1] != given.shape[-1]:
            return None
        ins = [source, *op.ins[1:]]
    elif op.name in _REDUCTIONS:
        axis = _axis(groups, source.shape, given.shape, op.attrs["axis"])
        if axis is None:
            return None
        ins, attrs["axis"] = [source], axis
    elif op.name == "TRANSPOSE":
        perms = _perms(groups, source.shape, given.shape, op.attrs["perms"])
        axes = m.traits.transposed_axes
        if perms is None or sum(source.shape[p] != 1 for p in perms) > axes:
            return None
        ins, attrs["perms"] = [source], perms
    elif op.name in BROADCASTS and given.shape == op.outs[0].shape:
        found = [_operand(m, op, v, source, given, groups) for v in op.ins]
        if any(v is None for v in found):
            return None
        ins = [v for v in found if v is not None]
    else:
        return None
    return m.b.op(op.name, *ins, out=op.outs[0].dtype, **attrs)


def _axis(groups: Groups, source: Sequence[int], given: Sequence[int], axis: int) -> int | None:
    """Where an axis of the given shape is in the source's, if it is one there."""
    for before, after in groups:
        axes = [a for a in before if source[a] != 1]
        if axis in after and len(axes) == 1 and sum(given[a] != 1 for a in after) == 1:
            return axes[0] if given[axis] != 1 else None
    return None


def _perms(
    groups: Groups, source: Sequence[int], given: Sequence[int], perms: Sequence[int]
) -> tuple[int, ...] | None:
    """A transposition of axes that are several in the source each; None where some are torn."""
    found = [axis for axis, size in enumerate(source) if size == 1]
    for moved in (p for p in perms if given[p] != 1):
        before, after = next(group for group in groups if moved in group[1])
        if sum(given[a] != 1 for a in after) > 1:
            return None
        found += before
    return tuple(found)


def _operand(
    m: Matcher, op: Op, value: Value, source: Value, given: Value, groups: Groups
) -> Value | None:
    """An operand in the axes of the source: as it is there, or by a RESHAPE that copies nothing."""
    if value is given:
        return source
    if op.name == "MUL" and value is op.ins[2]:
        return value
    shape = _broadcast(value.shape, source.shape, given.shape, groups)
    if shape is None:
        return None
    reshape = m.made_by(value, "RESHAPE")
    if reshape is not None and reshape.ins[0].shape == shape:
        return reshape.ins[0]
    if not value.is_const and _is_shared(m, value):
        return None
    return m.b.RESHAPE(value, m.b.shape(shape))


def _broadcast(
    shape: Sequence[int], source: Sequence[int], given: Sequence[int], groups: Groups
) -> tuple[int, ...] | None:
    """The shape of an operand that is repeated along some axes, in the axes of the source."""
    found = list(source)
    for before, after in groups:
        if all(shape[a] == given[a] for a in after):
            continue
        if any(shape[a] != 1 for a in after):
            return None
        for axis in before:
            found[axis] = 1
    return tuple(found)
