"""Compares the graph that a ``.vgf`` holds with the one that was lowered: both as expressions.

Values are numbered by what they compute, so equal expressions have equal numbers in both graphs,
whatever their order, and however often an equal constant or result is stored. What the converter
folds is folded on both sides: operators on constants, operators that give their operand, and a
SELECT by the contrary of a condition; operands that may change places have one order. int4 is int8
in a file, and SPIR-V has [1] for tensors without axes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import numpy as np

from tosaic.errors import TosaicError
from tosaic.files.vgf.shaders import shader_of
from tosaic.ir.graph import Array, Const, Graph, Op, Value
from tosaic.rewrite.fold_constants import evaluate
from tosaic.spec.dtypes import I4, I8, SHAPE, DType

_OVER_AXIS = ("REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PRODUCT",
              "REDUCE_SUM", "REVERSE")  # fmt: skip
_COMMUTATIVE = ("ADD", "MUL", "MAXIMUM", "MINIMUM", "EQUAL", "BITWISE_AND", "BITWISE_OR",
                "BITWISE_XOR", "LOGICAL_AND", "LOGICAL_OR", "LOGICAL_XOR")  # fmt: skip
_NEUTRAL = {"ADD": 0, "SUB": 0}
_HEAD = 256  # bytes of a constant that few others of its shape begin with
_MOVES = ("IDENTITY", "PAD", "SLICE", "TILE", "CONCAT", "RESHAPE")


def difference(lowered: Graph, held: Graph) -> str | None:
    """What of a graph its file does not hold; None if the file holds all of it and no more."""
    numbers = _Numbers()
    ours, theirs = _Expressions(numbers), _Expressions(numbers)
    wanted, found = ours.outputs(lowered), theirs.outputs(held)
    for side, given, made in (
        ("inputs", lowered.inputs, held.inputs), ("outputs", lowered.outputs, held.outputs)
    ):  # fmt: skip
        if [(v.shape, _stored(v.dtype)) for v in given] != [(v.shape, v.dtype) for v in made]:
            return f"its {side} have other types or shapes"
    if wanted == found:
        return None
    known = set(theirs.known.values())
    for op in lowered.ops:
        if any(ours.known.get(out) not in known for out in op.outs):
            return f"it does not hold {op}"
    return "its outputs are others"


def known_outputs(graph: Graph) -> list[Array | None]:
    """The outputs that the converter makes constants; None for the others."""
    found = _Expressions(_Numbers())
    found.outputs(graph)
    return [found.array(value) for value in graph.outputs]


def _stored(kind: DType) -> DType:
    return I8 if kind is I4 else kind


def _shape(value: Value) -> tuple[int, ...]:
    return value.shape or (1,)


class _Numbers:
    """A number for each expression, and for each array of constants."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self._alike: dict[Hashable, list[tuple[Array, int]]] = {}

    def of(self, expression: Hashable) -> int:
        return self._known.setdefault(expression, len(self._known))

    def of_constant(self, kind: Hashable, raw: Array) -> int:
        """That of the bytes of a type and shape; those that begin alike are compared whole."""
        key = "constant", kind, raw[:_HEAD].tobytes()
        alike = self._alike.setdefault(key, [])
        for other, number in alike:
            if np.array_equal(other, raw):
                return number
        alike.append((raw, self.of((*key, len(alike)))))
        return alike[-1][1]


class _Expressions:
    """The numbers of a graph's values."""

    def __init__(self, numbers: _Numbers) -> None:
        self._number = numbers.of
        self._of_constant = numbers.of_constant
        self.known: dict[Value, int] = {}
        self._sources: dict[int, tuple[int, tuple[int, ...]]] = {}  # what is reshaped
        self._contraries: dict[int, int] = {}
        self._folded: dict[Value, Array] = {}

    def outputs(self, graph: Graph) -> list[int]:
        for position, value in enumerate(graph.inputs):
            self.known[value] = self._number(("input", position))
        for op in graph.ops:
            self._op(op)
        return [self._value(value) for value in graph.outputs]

    def _value(self, value: Value) -> int:
        if value not in self.known:
            assert value.const is not None
            self.known[value] = self._constant(value, value.const.array)
        return self.known[value]

    def _constant(self, value: Value, array: Array) -> int:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return self._of_constant((_stored(value.dtype).name, _shape(value)), raw)

    def _op(self, op: Op) -> None:
        ins = tuple(self._value(value) for value in op.ins)
        folded = self._result(op, ins)
        if folded is not None:
            self._folded[op.outs[0]] = folded
            self.known[op.outs[0]] = self._constant(op.outs[0], folded)
        elif (kept := self._kept_operand(op)) is not None:
            self.known[op.outs[0]] = ins[kept]
        elif op.name == "RESHAPE" or _moves_ones(op):
            self.known[op.outs[0]] = self._reshaped(op, ins[0])
        else:
            attrs = tuple(_attributes(op))
            ins = self._in_order(op, ins)
            for position, out in enumerate(op.outs):
                kind = (_stored(out.dtype).name, _shape(out))
                self.known[out] = self._number((op.name, attrs, ins, position, kind))
            if op.name == "LOGICAL_NOT":
                self._contraries[self.known[op.outs[0]]] = ins[0]

    def _in_order(self, op: Op, ins: tuple[int, ...]) -> tuple[int, ...]:
        if op.name in _COMMUTATIVE:
            return (*sorted(ins[:2]), *ins[2:])
        if op.name == "SELECT" and ins[0] in self._contraries:
            return self._contraries[ins[0]], ins[2], ins[1]
        return ins

    def array(self, value: Value) -> Array | None:
        """The numbers of a constant, or of what folds to one."""
        if value.is_const and value.const is not None:
            return value.const.array
        return self._folded.get(value)

    def _holds(self, value: Value, number: int) -> bool:
        array = self.array(value)
        return array is not None and bool(np.all(array == number))

    def _result(self, op: Op, ins: tuple[int, ...]) -> Array | None:
        """The result of an operator on constants, or of one that has a single result."""
        out = op.outs[0] if len(op.outs) == 1 else None
        if out is None or out.dtype is SHAPE or op.regions or not op.ins:
            return None
        if op.name == "EQUAL" and ins[0] == ins[1] and op.ins[0].dtype.is_int:
            return np.ones(out.shape, bool)
        if op.name == "ARGMAX" and op.ins[0].shape[op.attrs["axis"]] == 1:
            return np.zeros(out.shape, out.dtype.array)
        if op.name == "MUL" and out.dtype.is_int and any(self._holds(v, 0) for v in op.ins[:2]):
            return np.zeros(out.shape, out.dtype.array)
        arrays = [self.array(value) for value in op.ins]
        if any(array is None for array in arrays):
            return None
        known = [Value(v.type, const=Const(a)) for v, a in zip(op.ins, arrays) if a is not None]
        try:
            return evaluate(Op(op.defn, known, [Value(out.type)], op.attrs))
        except (TosaicError, KeyError):
            return None

    def _kept_operand(self, op: Op) -> int | None:
        """The position of the operand that an operator gives as it is."""
        neutral = _NEUTRAL.get(op.name)
        if op.name == "MUL" and (shift := self.array(op.ins[2])) is not None:
            neutral = 1 << int(shift.reshape(-1)[0])  # a product is shifted right by as much
        if neutral is not None:
            for kept, other in ((0, 1), (1, 0))[: 1 + (op.name != "SUB")]:
                if op.outs[0].type == op.ins[kept].type and self._holds(op.ins[other], neutral):
                    return kept
        return 0 if _gives_operand(op) else None

    def _reshaped(self, op: Op, source: int) -> int:
        """One number for all ways to reshape a value into a shape."""
        first, shape = self._sources.get(source, (source, _shape(op.ins[0])))
        wanted = _shape(op.outs[0])
        if wanted == shape:
            return first
        made = self._number(("reshaped", first, wanted))
        self._sources[made] = (first, shape)
        return made


def _attributes(op: Op) -> Iterator[tuple[str, str]]:
    if (shader := shader_of(op)) is not None:  # whose operator's name the file does not hold
        yield "shader", repr(shader)
        return
    for attr in op.defn.attrs:
        value = op.attrs.get(attr.name, attr.default)
        if attr.kind == "value":
            value = np.array(value, op.ins[0].dtype.array).item()
        yield attr.name, repr(value)


def _gives_operand(op: Op) -> bool:
    """Whether an operator's result is its operand."""
    if len(op.outs) != 1 or not op.ins or op.outs[0].type != op.ins[0].type:
        return False
    if op.name in _OVER_AXIS:
        return bool(op.ins[0].shape[op.attrs["axis"]] == 1)
    if op.name == "TRANSPOSE":
        return list(op.attrs["perms"]) == sorted(op.attrs["perms"])
    if op.name == "CLAMP" and op.ins[0].dtype.is_int:
        return (op.attrs["min_val"], op.attrs["max_val"]) == op.ins[0].dtype.range
    return op.name in _MOVES


def _moves_ones(op: Op) -> bool:
    """Whether a TRANSPOSE moves axes of one element alone."""
    if op.name != "TRANSPOSE":
        return False
    kept = [axis for axis in op.attrs["perms"] if op.ins[0].shape[axis] != 1]
    return kept == sorted(kept)
