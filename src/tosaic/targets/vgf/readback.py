"""Compares the graph that a ``.vgf`` holds with the one that was lowered: both as expressions.

Values are numbered by what they compute, so equal expressions have equal numbers in both graphs,
whatever their order, and however often an equal constant or result is stored. What the converter
may fold, operators on constants, is folded on both sides. int4 is int8 in a file.
"""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import sha256

import numpy as np

from tosaic.errors import TosaicError
from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.rewrite.fold_constants import evaluate
from tosaic.spec.dtypes import I4, I8, SHAPE, DType


def difference(lowered: Graph, held: Graph) -> str | None:
    """What of a graph its file does not hold; None if the file holds all of it and no more."""
    numbers: dict[Hashable, int] = {}
    ours, theirs = _Expressions(numbers), _Expressions(numbers)
    wanted, found = ours.outputs(lowered), theirs.outputs(held)
    ports = [(v.shape, _stored(v.dtype)) for v in lowered.inputs]
    if ports != [(v.shape, v.dtype) for v in held.inputs]:
        return "its inputs have other types or shapes"
    if wanted == found:
        return None
    known = set(theirs.known.values())
    for op in lowered.ops:
        if any(ours.known.get(out) not in known for out in op.outs):
            return f"it does not hold {op}"
    return "its outputs are others"


def _stored(kind: DType) -> DType:
    return I8 if kind is I4 else kind


class _Expressions:
    """The numbers of a graph's values."""

    def __init__(self, numbers: dict[Hashable, int]) -> None:
        self.numbers = numbers
        self.known: dict[Value, int] = {}
        self._constants: dict[Value, Array] = {}

    def outputs(self, graph: Graph) -> list[int]:
        for position, value in enumerate(graph.inputs):
            self.known[value] = self._number(("input", position))
        for op in graph.ops:
            self._op(op)
        return [self._value(value) for value in graph.outputs]

    def _number(self, key: Hashable) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def _value(self, value: Value) -> int:
        if value not in self.known:
            assert value.const is not None
            self.known[value] = self._constant(value, value.const.array)
        return self.known[value]

    def _constant(self, value: Value, array: Array) -> int:
        self._constants[value] = array
        raw = np.ascontiguousarray(array)
        data = sha256(raw.reshape(-1).view(np.uint8).data).digest()
        return self._number(("constant", _stored(value.dtype).name, array.shape, data))

    def _op(self, op: Op) -> None:
        ins = tuple(self._value(value) for value in op.ins)
        folded = self._folded(op)
        if folded is not None:
            self.known[op.outs[0]] = self._constant(op.outs[0], folded)
            return
        if op.name == "IDENTITY":
            self.known[op.outs[0]] = ins[0]
            return
        attrs = tuple((name, _plain(value)) for name, value in sorted(op.attrs.items()))
        for position, out in enumerate(op.outs):
            kind = (_stored(out.dtype).name, out.shape)
            self.known[out] = self._number((op.name, attrs, ins, position, kind))

    def _folded(self, op: Op) -> Array | None:
        """The result of an operator on constants."""
        if len(op.outs) != 1 or op.outs[0].dtype is SHAPE or op.regions or not op.ins:
            return None
        if not all(value.is_const for value in op.ins):
            return None
        try:
            return evaluate(op)
        except (TosaicError, KeyError):
            return None


def _plain(value: object) -> Hashable:
    return repr(value)
