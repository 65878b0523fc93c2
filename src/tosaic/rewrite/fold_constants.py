"""Constant folding and common-subexpression elimination."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable

import numpy as np
import torch

import tosaic.interp  # noqa: F401  (fills the registry of kernels)
from tosaic.errors import TosaicError
from tosaic.interp.exact import strict_float32
from tosaic.interp.kernel import KERNELS, TORCH, Context, Run, to_numpy, to_torch
from tosaic.ir.graph import Array, Const, Graph, Op, Value
from tosaic.rewrite.match import Matcher, rewrite
from tosaic.spec.dtypes import I32, SHAPE

# The numbers of larger constants are not looked at to find equal ones, but for their first bytes.
GLANCE = 256
_MOVES = {"RESHAPE", "TRANSPOSE", "SLICE", "REVERSE", "IDENTITY"}
_WIDENING = {"RESCALE", "CAST"}


@rewrite("")
def compute(m: Matcher, op: Op) -> Value | None:
    """A constant in the place of an operator on constants, unless it grows large by that."""
    if op.name not in KERNELS or not op.ins or not all(v.is_const for v in op.ins):
        return None
    kinds = {v.dtype for v in (*op.ins, *op.outs)}
    if op.outs[0].dtype is SHAPE or not kinds <= TORCH.keys():
        return None
    if _bytes(op.outs[0]) > max(m.traits.folded_bytes, sum(map(_bytes, op.ins))):
        return None
    if m.traits.fuses_widening and widens(op):
        return None
    result = op.outs[0]
    if op.name in _MOVES:  # cannot fail, so it can wait
        run = _kernel(op)
        return Value(result.type, "", Const(lambda: _run(op, run)), result.quant, op.loc)
    try:
        return Value(result.type, "", Const(evaluate(op)), result.quant, op.loc)
    except TosaicError:  # unpredictable: let it be so when the graph runs
        return None


def widens(op: Op) -> bool:
    """Whether an operator gives more bits, which is part of what reads it: each has its own."""
    return op.name in _WIDENING and op.outs[0].dtype is I32 and op.ins[0].dtype is not I32


def _kernel(op: Op) -> Run:
    def no_region(_: Graph) -> object:
        raise TypeError("operators with regions are not folded")

    return KERNELS[op.name](op, Context(no_region))  # type: ignore[arg-type]


def evaluate(op: Op) -> Array:
    """The result of an operator on constants; errors where it is not defined."""
    return _run(op, _kernel(op))


def _run(op: Op, run: Run) -> Array:
    with torch.inference_mode(), strict_float32():
        ins = [to_torch(v.const.array, v.dtype) for v in op.ins if v.const is not None]
        return to_numpy(run(*ins).clone(), op.outs[0].dtype)


def _bytes(value: Value) -> int:
    return value.type.size * max(value.dtype.bits // 8, 1)


@rewrite("")
def share(m: Matcher, op: Op) -> Value | None:
    """The result of an operator that computes the same."""
    if widens(op):
        return None
    ins = tuple(_token(v) if v.is_const else v for v in op.ins)
    key = (op.name, ins, tuple(op.attrs.items()), op.outs[0].type)
    found = m.same.setdefault(key, op.outs[0])
    if found.producer not in m.place or not _read(m, found):
        m.same[key] = op.outs[0]
        return None
    return found if found is not op.outs[0] else None


def _read(m: Matcher, value: Value) -> bool:
    """Whether an operator still has the operands that it was noted with, and a reader."""
    return bool(m.uses.get(value)) or bool(m.results[value])


def _token(value: Value) -> Hashable:
    """What tells a constant from others: its numbers, if they are few."""
    if value.const is None or _bytes(value) > GLANCE:
        return value.const
    return value.type, value.const.array.tobytes()


def share_constants(graph: Graph) -> None:
    """Let all read the first of equal constants; large ones are compared only if they may be."""
    groups: dict[Hashable, list[Value]] = {}
    for value in graph.values():
        if value.is_const:
            groups.setdefault(value.type, []).append(value)
    same: dict[Value, Value] = {}
    for group in groups.values():
        if len(group) > 1:
            first: dict[Hashable, Value] = {}
            for glance in _by(group, _glance):
                for value in glance:
                    key = value.dtype, _digest(value) if len(glance) > 1 else id(value)
                    same[value] = first.setdefault(key, value)
    for op in graph.ops:
        op.ins = [same.get(v, v) for v in op.ins]


def _by(values: list[Value], key: object) -> list[list[Value]]:
    found: dict[Hashable, list[Value]] = {}
    for value in values:
        found.setdefault(key(value), []).append(value)  # type: ignore[operator]
    return list(found.values())


def _glance(value: Value) -> Hashable:
    assert value.const is not None
    return value.const.array.reshape(-1)[:GLANCE].tobytes()


def _digest(value: Value) -> bytes:
    assert value.const is not None
    array = value.const.array
    if array.nbytes <= GLANCE:
        return array.tobytes()
    return hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data).digest()
