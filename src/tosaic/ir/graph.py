"""Values, operators and graphs: what every part of Tosaic reads and writes.

Constants are values without a producer; CONST and CONST_SHAPE exist only in files and text.
``quant`` is meaning, not type: the verifier and the files ignore it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tosaic.errors import Unsupported
from tosaic.spec import OPS
from tosaic.spec.dtypes import DType, TensorType
from tosaic.spec.env import Env
from tosaic.spec.table import OpDef

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Loc:
    """Where a thing comes from: an ATen node, a module path, the user's file and line."""

    node: str = ""
    module: str = ""
    file: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        """The module and the line, without the operator."""
        line = f"{self.file}:{self.line}" if self.file else ""
        return ", ".join(filter(None, (self.module, line)))

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.node, self.place)))


@dataclass(frozen=True, slots=True)
class Quant:
    """What integers mean: real = scale * (value - zero_point), per channel along ``axis``."""

    scale: float | tuple[float, ...]
    zero_point: int | tuple[int, ...] = 0
    axis: int | None = None

    @property
    def one_scale(self) -> float:
        if isinstance(self.scale, tuple):
            raise Unsupported("one scale is needed here, not one for each channel")
        return self.scale

    @property
    def one_zero(self) -> int:
        if isinstance(self.zero_point, tuple):
            raise Unsupported("one zero point is needed here, not one for each channel")
        return self.zero_point


@dataclass(frozen=True, slots=True)
class Unsigned(Quant):
    """The same for bytes that hold 0 to 255, which only inputs and outputs of a graph do."""


class Const:
    """An array that is made when it is first asked for, and kept.

    ``exact`` are the same numbers in fp32, where the array has rounded them to 16 bits.
    """

    __slots__ = ("_array", "_make", "exact")

    def __init__(self, source: Array | Callable[[], Array], exact: Array | None = None) -> None:
        self.exact = exact
        self._array: Array | None = None
        self._make: Callable[[], Array] | None = None
        if isinstance(source, np.ndarray):
            self._array = source
        else:
            self._make = source

    def __reduce__(self) -> tuple[Any, ...]:
        return Const, (self.array, self.exact)

    @property
    def array(self) -> Array:
        if self._array is None:
            assert self._make is not None
            self._array, self._make = self._make(), None
        return self._array


@dataclass(slots=True, eq=False)
class Value:
    """A tensor or a shape: an input, a constant, or the result of an operator.

    ``limits`` are numbers that no element is below or above, where a rule or the boundary has
    proved more than interval analysis finds by itself; ``bounds`` is what a quick one has found.
    """

    type: TensorType
    name: str = ""
    const: Const | None = None
    quant: Quant | None = None
    loc: Loc | None = None
    limits: tuple[int, int] | None = None
    bounds: Any = field(default=None, repr=False)
    producer: Op | None = field(default=None, repr=False)

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def is_const(self) -> bool:
        """A constant of its own, not a shape that an operator computes."""
        return self.const is not None and self.producer is None


@dataclass(slots=True, eq=False, repr=False)
class Op:
    """An operator at work."""

    defn: OpDef
    ins: list[Value]
    outs: list[Value]
    attrs: Mapping[str, Any]
    regions: tuple[Graph, ...] = ()
    loc: Loc | None = None

    def __post_init__(self) -> None:
        for out in self.outs:
            out.producer = self

    @property
    def name(self) -> str:
        return self.defn.name

    def operand(self, name: str) -> Value:
        """The operand of that name in the operator's signature (none of which is a list)."""
        for operand, value in zip(self.defn.operands, self.ins):
            if operand.name == name:
                return value
        raise KeyError(name)

    def __str__(self) -> str:
        what = f"{self.name} {self.outs[0].name}" if self.outs else self.name
        return f"{what.strip()} ({self.loc})" if self.loc else what.strip()

    __repr__ = __str__


@dataclass(slots=True, eq=False, repr=False)
class Graph:
    """Operators in an order in which each can run; also the region of a COND_IF or WHILE_LOOP."""

    name: str = "main"
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    version: tuple[int, int] = Env().version

    def __repr__(self) -> str:
        ports = f"{len(self.inputs)} inputs, {len(self.outputs)} outputs"
        return f"Graph({self.name}: {len(self.ops)} ops, {ports})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Flat tables: pickle by itself would recurse from each operator to those before it."""
        values = list(self.values())
        number = {value: i for i, value in enumerate(values)}
        ops = [
            (op.name, [number[v] for v in op.ins], [number[v] for v in op.outs], dict(op.attrs),
             op.regions, op.loc) for op in self.ops
        ]  # fmt: skip
        rows = [(v.type, v.name, v.const, v.quant, v.loc, v.limits) for v in values]
        ends = [[number[v] for v in side] for side in (self.inputs, self.outputs)]
        return _from_tables, (self.name, self.version, rows, ops, ends)

    def walk(self) -> Iterator[Op]:
        """All operators, those of nested regions after the one that holds them."""
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from region.walk()

    def values(self) -> Iterator[Value]:
        """Each value of this graph once: inputs, then constants and results in order of use."""
        seen: set[Value] = set()
        for value in self._mentions():
            if value not in seen:
                seen.add(value)
                yield value

    def _mentions(self) -> Iterator[Value]:
        yield from self.inputs
        for op in self.ops:
            yield from op.ins
            yield from op.outs
        yield from self.outputs

    def uses(self) -> dict[Value, list[Op]]:
        """The operators that read each value, once for each time they do."""
        found: dict[Value, list[Op]] = {}
        for op in self.ops:
            for value in op.ins:
                found.setdefault(value, []).append(op)
        return found

    def find(self, name: str) -> Value:
        """The value of that name; KeyError if there is none."""
        for value in self.values():
            if value.name == name:
                return value
        raise KeyError(name)


def _from_tables(
    name: str, version: tuple[int, int], rows: list[Any], ops: list[Any], ends: list[list[int]]
) -> Graph:
    values = [Value(*row) for row in rows]
    inputs, outputs = ([values[i] for i in side] for side in ends)
    made = [
        Op(OPS[op], [values[i] for i in ins], [values[i] for i in outs], attrs, regions, loc)
        for op, ins, outs, attrs, regions, loc in ops
    ]
    return Graph(name, inputs, outputs, made, version)
