"""A SPIR-V module of kind graph (SPV_ARM_graph) as operators of TOSA.

An operator is one OpExtInst of the instruction set TOSA.001000.1: attributes first, as constants,
then operands, both in the order of the specification, so the table of operators reads them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tosaic.errors import InvalidGraph, Unsupported
from tosaic.files.vgf import declarations
from tosaic.files.vgf.declarations import BY_ARRAY, Declarations, Scalar, StructType, damaged
from tosaic.ir.build import known
from tosaic.ir.graph import Array, Const, Op, Value
from tosaic.spec.check import resolve
from tosaic.spec.dtypes import BOOL, F16, F32, I32, I48, SHAPE, TensorType
from tosaic.spec.env import everything
from tosaic.spec.table import BY_CODE, ENUMS, OPS, Attr, OpDef, Operand

SET = "TOSA.001000.1"
_MAGIC = 0x07230203
_ENV = everything((1, 0), level="none")
_NAMES = {kind: {number: name for name, number in e.items()} for kind, e in ENUMS.items()}
_ACCUMULATORS = {1: I32, 2: F16, 3: F32, 4: I48}
_LAST_CODE = 66  # RESCALE, the last operator of the instruction set
_BINDING = 33

# Instructions of no consequence for a graph: names, places, capabilities, variables.
_SKIPPED = frozenset((0, 2, 3, 4, 5, 6, 7, 8, 10, 14, 17, 19, 32, 59, 317, 330, 4183, 4186, 4190))


@dataclass(slots=True, eq=False)
class GraphModule:
    """The graph of a module: its interface by binding, and its operators.

    ``inputs`` and ``outputs`` are values by binding. ``constant`` gives the array of a constant
    that lies outside of the module, ``shape`` the shape of the resource at a binding: SPIR-V has no
    tensors without axes, and writes [1] for them.
    """

    words: memoryview
    constant: Callable[[int, TensorType], Const]
    shape: Callable[[int], tuple[int, ...] | None]
    ops: list[Op] = field(default_factory=list)
    inputs: dict[int, Value] = field(default_factory=dict)
    outputs: dict[int, Value] = field(default_factory=dict)
    _values: dict[int, Any] = field(default_factory=dict)
    _sets: dict[int, str] = field(default_factory=dict)
    _bindings: dict[int, int] = field(default_factory=dict)
    _interface: tuple[int, ...] = ()
    _entries: int = 0
    _declared: Declarations = field(init=False)

    def read(self) -> None:
        """Go through all instructions once."""
        self._declared = Declarations(self.words)
        for code, args in self._instructions():
            declare, step = declarations.STEPS.get(code), _STEPS.get(code)
            try:
                if declare is not None:
                    declare(self._declared, args)
                elif step is not None:
                    step(self, args)
                elif code not in _SKIPPED:
                    raise damaged(f"instruction {code} does not belong into a graph")
            except (IndexError, KeyError, TypeError, ValueError, AttributeError):
                raise damaged(f"instruction {code} has operands that do not fit") from None
        if self._entries != 1:
            raise InvalidGraph(f"the module has {self._entries} graphs; Tosaic reads one")

    def _instructions(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        count = len(self.words) // 4
        if count < 5 or len(self.words) % 4:
            raise damaged("it is too short")
        words = struct.unpack(f"<{count}I", self.words)
        if words[0] != _MAGIC:
            raise damaged("it does not begin as SPIR-V does")
        at = 5
        while at < count:
            length, code = words[at] >> 16, words[at] & 0xFFFF
            if not length or at + length > count:
                raise damaged("an instruction has no end")
            yield code, words[at + 1 : at + length]
            at += length

    def _import(self, args: tuple[int, ...]) -> None:
        self._sets[args[0]] = _text(args[1:])[0]

    def _decorate(self, args: tuple[int, ...]) -> None:
        if args[1] == _BINDING:
            self._bindings[args[0]] = args[2]

    def _graph_constant(self, args: tuple[int, ...]) -> None:
        kind = self._declared.tensor_type(args[0])
        self._values[args[1]] = Value(kind, const=self.constant(args[2], kind))

    def _entry(self, args: tuple[int, ...]) -> None:
        _, length = _text(args[1:])
        self._interface = args[1 + length :]
        self._entries += 1

    def _binding(self, position: int) -> int:
        return self._bindings[self._interface[position]]

    def _input(self, args: tuple[int, ...]) -> None:
        kind, binding = (
            self._declared.tensor_type(args[0]),
            self._binding(self._declared.integer(args[2])),
        )
        held = self.shape(binding)
        if held == () and kind.shape == (1,):
            kind = TensorType(kind.dtype, ())
        elif held != kind.shape or binding in self.inputs:
            raise InvalidGraph(f"the input at binding {binding} has another shape in its resource")
        self.inputs[binding] = self._values[args[1]] = Value(kind)

    def _set_output(self, args: tuple[int, ...]) -> None:
        binding = self._binding(len(self.inputs) + self._declared.integer(args[1]))
        value = self._value(args[0])
        held = self.shape(binding)
        if held is None or (held or (1,)) != (value.shape or (1,)):
            raise InvalidGraph(f"the output at binding {binding} has another shape in its resource")
        value = self._ranked(value, len(held))
        if binding in self.outputs:
            raise InvalidGraph(f"the output at binding {binding} is set twice")
        self.outputs[binding] = value

    def _ranked(self, value: Value, rank: int) -> Value:
        """A value of one element without axes or with one: SPIR-V says [1] of both."""
        if len(value.shape) == rank or max(rank, len(value.shape)) > 1:
            return value
        shape = (1,) * rank
        if value.is_const:
            return _reshaped(value, shape)
        sizes = Value(TensorType(SHAPE, (rank,)), const=Const(np.ones(rank, np.int64)))
        made = Value(TensorType(value.dtype, shape))
        self.ops.append(Op(OPS["RESHAPE"], [value, sizes], [made], {}))
        return made

    def _extract(self, args: tuple[int, ...]) -> None:
        held = self._values[args[2]]
        if not isinstance(held, tuple):
            raise damaged("a part is taken of what has none")
        self._values[args[1]] = held[args[3]]

    def _value(self, number: int) -> Value:
        """An operand: a result, an input or a constant."""
        found = self._values.get(number)
        if isinstance(found, Value):
            return found
        held = self._declared.constants[number]
        if not isinstance(held, np.ndarray):
            raise damaged("an operand is no tensor")
        made = Value(_type_of(held), const=Const(held))
        self._values[number] = made
        return made

    def _operator(self, args: tuple[int, ...]) -> None:
        name = self._sets[args[2]]
        if name.startswith("NonSemantic."):
            return
        defn = BY_CODE.get(args[3] + 1)
        if name != SET or defn is None or args[3] >= _LAST_CODE:
            raise InvalidGraph(
                f"the graph has instruction {args[3]} of {name!r}; Tosaic reads {SET}"
            )
        given = args[4:]
        attrs, ids = given[: len(defn.attrs)], given[len(defn.attrs) :]
        operands = self._operands(defn, ids)
        values = _with_scalars(operands, [self._operand(o, n) for o, n in zip(operands, ids)])
        found = dict(zip((a.name for a in defn.attrs), self._attributes(defn, attrs, values)))
        declared = self._declared.types[args[0]]
        outs = declared.members if isinstance(declared, StructType) else (declared,)
        self._values[args[1]] = self._emit(defn, values, found, outs)

    def _operands(self, defn: OpDef, ids: tuple[int, ...]) -> list[Operand]:
        known = list(defn.operands)
        if known and known[-1].variadic:
            known += known[-1:] * (len(ids) - len(known))
        if len(known) != len(ids):
            raise damaged(f"{defn.name} has {len(ids)} operands")
        return known

    def _operand(self, operand: Operand, number: int) -> Value:
        if operand.type != "shape":
            return self._value(number)
        held = self._declared.constants.get(number)
        if held is None and isinstance(self._values.get(number), Value):
            value = self._values[number]
            held = value.const.array if value.const is not None else None
        if not isinstance(held, np.ndarray) or held.dtype != np.int32 or held.ndim != 1:
            raise damaged("a shape is no list of constant integers")
        return Value(TensorType(SHAPE, held.shape), const=Const(held.astype(np.int64)))

    def _attributes(
        self, defn: OpDef, ids: tuple[int, ...], values: list[Value]
    ) -> Iterator[object]:
        for attr, number in zip(defn.attrs, ids, strict=True):
            yield _attribute(attr, self._declared.constants.get(number), values)

    def _emit(
        self, defn: OpDef, ins: list[Value], attrs: dict[str, Any], outs: tuple[TensorType, ...]
    ) -> Value | tuple[Value, ...]:
        try:
            found = _resolved(defn, ins, attrs, outs)
        except Unsupported as refusal:
            if all(v.shape for v in ins):
                raise InvalidGraph(refusal.reason) from None
            return self._emit(
                defn, [self._ranked(v, 1) if not v.shape else v for v in ins], attrs, outs
            )
        for made, declared in zip(found, outs, strict=True):
            if made.dtype is not declared.dtype or (made.shape or (1,)) != declared.shape:
                raise InvalidGraph(f"{defn.name} gives {made}; the file says {declared}")
        op = Op(defn, ins, [Value(kind) for kind in found], attrs)
        self.ops.append(op)
        return op.outs[0] if len(op.outs) == 1 else tuple(op.outs)


def _resolved(
    defn: OpDef, ins: list[Value], attrs: dict[str, Any], outs: tuple[TensorType, ...]
) -> Sequence[TensorType]:
    kinds, wanted = [v.type for v in ins], [out.dtype for out in outs]
    return resolve(defn, _ENV, kinds, attrs, lambda i: known(ins, i), wanted)


def _text(words: tuple[int, ...]) -> tuple[str, int]:
    """A text and the number of words that it takes."""
    raw = struct.pack(f"<{len(words)}I", *words)
    end = raw.index(b"\0")
    return raw[:end].decode("utf-8", "replace"), end // 4 + 1


def _type_of(array: Array) -> TensorType:
    return TensorType(BY_ARRAY[array.dtype], array.shape)


def _reshaped(value: Value, shape: tuple[int, ...]) -> Value:
    assert value.const is not None
    return Value(TensorType(value.dtype, shape), const=Const(value.const.array.reshape(shape)))


def _with_scalars(operands: list[Operand], values: list[Value]) -> list[Value]:
    """Constants of [1] beside tensors without axes have none either: TOSA has equal ranks."""
    free = [o.dims is None and not o.min_rank and o.type != "shape" for o in operands]
    if not any(f and not v.shape for f, v in zip(free, values)):
        return values
    return [
        _reshaped(v, ()) if f and v.is_const and v.shape == (1,) else v
        for f, v in zip(free, values)
    ]


def _attribute(attr: Attr, held: Any, values: list[Value]) -> object:
    kind = attr.kind
    if kind.startswith("i32["):
        if not isinstance(held, np.ndarray) or held.dtype != np.int32 or held.ndim != 1:
            raise damaged(f"attribute {attr.name} is no list of integers")
        return tuple(held.tolist())
    if not isinstance(held, Scalar):
        raise damaged(f"attribute {attr.name} is no constant")
    number = held.number
    if kind == "bool":
        if held.dtype is not BOOL:
            raise damaged(f"attribute {attr.name} is no flag")
        return number
    if kind == "value":
        if not values or held.dtype is not values[0].dtype:
            raise damaged(f"attribute {attr.name} is of another type than the operand")
        return number
    if not held.dtype.is_int:
        raise damaged(f"attribute {attr.name} is no integer")
    if kind == "i32":
        return number
    named: dict[int, Any] = _ACCUMULATORS if kind == "acc" else _NAMES[kind]
    if number not in named:
        raise damaged(f"attribute {attr.name} is {number}, which stands for nothing")
    return named[number]


_STEPS: dict[int, Callable[[GraphModule, tuple[int, ...]], None]] = {
    11: GraphModule._import,  # OpExtInstImport
    12: GraphModule._operator,  # OpExtInst
    71: GraphModule._decorate,
    81: GraphModule._extract,  # OpCompositeExtract
    4181: GraphModule._graph_constant,
    4182: GraphModule._entry,
    4184: GraphModule._input,
    4185: GraphModule._set_output,
}
