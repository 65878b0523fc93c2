"""Types and constants of a SPIR-V module: what its instructions declare before any graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tosaic.errors import InvalidGraph
from tosaic.ir.graph import Array
from tosaic.spec import dtypes as d
from tosaic.spec.dtypes import BOOL, I48, DType, TensorType

_INTEGERS = {8: d.I8, 16: d.I16, 32: d.I32, 64: I48}
_FLOATS: dict[tuple[int, ...], DType] = {
    (32,): d.F32, (16,): d.F16, (16, 0): d.BF16, (8, 4214): d.F8E4M3, (8, 4215): d.F8E5M2,
}  # fmt: skip
_MOST_AXES = 32
_MOST_ELEMENTS = 1 << 24  # of all constants that are written in few words


def damaged(what: str) -> InvalidGraph:
    """The error for a module that breaks a rule of SPIR-V."""
    return InvalidGraph(f"the SPIR-V of the graph is damaged: {what}")


@dataclass(frozen=True, slots=True)
class ArrayType:
    """The type of an array of integers, which sizes are written in."""

    length: int


@dataclass(frozen=True, slots=True)
class StructType:
    """The type of several results."""

    members: tuple[TensorType, ...]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A constant of one number: its bits."""

    dtype: DType
    bits: int

    @property
    def number(self) -> Any:
        if self.dtype is BOOL:
            return bool(self.bits)
        array = np.array([self.bits], np.uint64).view(np.uint8)
        width = np.dtype(self.dtype.array).itemsize
        return array[:width].view(self.dtype.array)[0].item()


@dataclass(slots=True, eq=False)
class Declarations:
    """What has been declared so far, by the numbers of results.

    A constant is a ``Scalar``, an array, or the sizes of a tensor as a tuple.
    """

    words: memoryview
    types: dict[int, Any] = field(default_factory=dict)
    constants: dict[int, Any] = field(default_factory=dict)
    _elements: int = 0

    def type_array(self, args: tuple[int, ...]) -> None:
        length = self.integer(args[2])
        if not 1 <= length <= _MOST_AXES:
            raise damaged(f"a tensor's type has {length} sizes")
        self.types[args[0]] = ArrayType(length)

    def type_tensor(self, args: tuple[int, ...]) -> None:
        number, element, rank, shape = args
        sizes = self.constants[shape]
        kind = self.types[element]
        if not isinstance(kind, DType) or not isinstance(sizes, tuple):
            raise damaged("a tensor's type has no sizes")
        if self.integer(rank) != len(sizes) or min(sizes) < 1:
            raise damaged("a tensor's type has sizes that cannot be")
        self.types[number] = TensorType(kind, sizes)

    def type_struct(self, args: tuple[int, ...]) -> None:
        members = tuple(self.tensor_type(each) for each in args[1:])
        self.types[args[0]] = StructType(members)

    def tensor_type(self, number: int) -> TensorType:
        found = self.types[number]
        if not isinstance(found, TensorType):
            raise damaged("a tensor is of a type that is none")
        return found

    def integer(self, number: int) -> int:
        held = self.constants[number]
        if not isinstance(held, Scalar) or not held.dtype.is_int:
            raise damaged("a number is of another type")
        return int(held.number)

    def scalar(self, args: tuple[int, ...]) -> None:
        kind = self.types[args[0]]
        if not isinstance(kind, DType) or kind is BOOL or not 3 <= len(args) <= 4:
            raise damaged("a number is of another type")
        bits = args[2] | (args[3] << 32 if len(args) == 4 else 0)
        self.constants[args[1]] = Scalar(kind, bits)

    def flag(self, args: tuple[int, ...], state: bool) -> None:
        self.constants[args[1]] = Scalar(BOOL, state)

    def composite(self, args: tuple[int, ...]) -> None:
        kind, parts = self.types[args[0]], args[2:]
        if isinstance(kind, ArrayType):
            if len(parts) != kind.length:
                raise damaged("sizes are not as many as they should be")
            self.constants[args[1]] = tuple(self.integer(part) for part in parts)
            return
        kind = self.tensor_type(args[0])
        if len(parts) != kind.shape[0]:
            raise damaged("a constant has not the elements of its type")
        self._charge(kind.size)
        inner = TensorType(kind.dtype, kind.shape[1:])
        arrays = [self._element(part, inner) for part in parts]
        self.constants[args[1]] = _checked(np.stack(arrays), kind)

    def _element(self, number: int, kind: TensorType) -> Array:
        held = self.constants[number]
        if isinstance(held, Scalar) and not kind.shape and held.dtype is kind.dtype:
            return _array(held)
        is_array = isinstance(held, np.ndarray)
        if is_array and held.shape == kind.shape and held.dtype == kind.dtype.array:
            return np.asarray(held)
        raise damaged("an element of a constant is of another type")

    def null(self, args: tuple[int, ...]) -> None:
        kind = self.types[args[0]]
        if isinstance(kind, DType):
            self.constants[args[1]] = Scalar(kind, 0)
        elif isinstance(kind, ArrayType):
            self.constants[args[1]] = (0,) * kind.length
        else:
            self._splat(args[1], np.zeros((), kind.dtype.array), self.tensor_type(args[0]))

    def replicated(self, args: tuple[int, ...]) -> None:
        kind = self.types[args[0]]
        if isinstance(kind, ArrayType):
            self.constants[args[1]] = (self.integer(args[2]),) * kind.length
            return
        held, kind = self.constants[args[2]], self.tensor_type(args[0])
        if isinstance(held, Scalar):
            if held.dtype is not kind.dtype:
                raise damaged("an element of a constant is of another type")
            held = _array(held)
        self._splat(args[1], held, kind)

    def _splat(self, number: int, element: Array, kind: TensorType) -> None:
        if element.dtype != kind.dtype.array or element.shape not in ((), kind.shape[1:]):
            raise damaged("an element of a constant is of another type")
        self._charge(kind.size)
        self.constants[number] = _checked(np.broadcast_to(element, kind.shape).copy(), kind)

    def _charge(self, elements: int) -> None:
        self._elements += elements
        if self._elements > _MOST_ELEMENTS + len(self.words):
            raise InvalidGraph(
                f"the SPIR-V of the graph writes out more than {_MOST_ELEMENTS} constants"
            )


def _array(scalar: Scalar) -> Array:
    if scalar.dtype is BOOL:
        return np.array(bool(scalar.bits))
    width = np.dtype(scalar.dtype.array).itemsize
    raw = np.array([scalar.bits], np.uint64).view(np.uint8)[:width]
    made: Array = raw.view(scalar.dtype.array).reshape(())
    return made


BY_ARRAY = {np.dtype(d.array): d for d in (*_INTEGERS.values(), *_FLOATS.values(), BOOL)}
"""Types by those of the arrays that hold them; a file has no int4 and no int64."""


def _checked(array: Array, kind: TensorType) -> Array:
    if kind.dtype is I48 and array.size:
        low, high = I48.range
        if int(array.min()) < low or int(array.max()) > high:
            raise damaged("a constant is beyond 48 bits")
    return array


def _type(made: DType, into: Declarations, args: tuple[int, ...]) -> None:
    into.types[args[0]] = made


Step = Callable[[Declarations, tuple[int, ...]], None]
STEPS: dict[int, Step] = {
    20: lambda m, a: _type(BOOL, m, a),  # OpTypeBool
    21: lambda m, a: _type(_INTEGERS[a[1]], m, a),  # OpTypeInt
    22: lambda m, a: _type(_FLOATS[a[1:]], m, a),  # OpTypeFloat
    28: Declarations.type_array,
    30: Declarations.type_struct,
    4163: Declarations.type_tensor,
    41: lambda m, a: m.flag(a, True),  # OpConstantTrue
    42: lambda m, a: m.flag(a, False),  # OpConstantFalse
    43: Declarations.scalar,
    44: Declarations.composite,
    46: Declarations.null,
    4461: Declarations.replicated,  # OpConstantCompositeReplicateEXT
}
"""What to do for an instruction of a number."""
