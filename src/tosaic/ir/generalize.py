"""Generalises a graph: from what it is at several sizes to one graph with unknown sizes.

Rules and rewrites see known sizes alone. The graphs that they make of a program at several sizes
have the same operators; what differs follows from the sizes: shapes, numbers of shapes, windows of
pools, and constants, which are tables by a count, sizes as numbers, one element all along an axis,
or the beginning of the largest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir import size_tables
from tosaic.ir.align import aligned
from tosaic.ir.graph import Const, Graph, Loc, Op, Value
from tosaic.ir.size_shapes import Sizes, differs
from tosaic.ir.specialize import FOLDED
from tosaic.spec import OPS
from tosaic.spec.dtypes import F32, I32, SHAPE, UNKNOWN, DType, TensorType
from tosaic.spec.env import Env

_POOLS = {"AVG_POOL2D", "MAX_POOL2D"}


def generalize(graphs: Sequence[Graph], env: Env) -> Graph:
    """One graph that is each of the others at their sizes; Unsupported says where they differ."""
    return _Generalizer(graphs, env).run()


class _Generalizer(Sizes):
    def __init__(self, graphs: Sequence[Graph], env: Env) -> None:
        super().__init__(graphs, env)
        self.twins: list[dict[Value, Value]] = [{} for _ in graphs]  # each as the first has it
        self.constants: dict[tuple[Value, ...], Value] = {}

    def run(self) -> Graph:
        if len({len(g.ops) for g in self.graphs}) > 1:
            counts = sorted({len(g.ops) for g in self.graphs})
            where = next((a for a, *rest in zip(*(g.ops for g in self.graphs))
                          if any(a.name != b.name for b in rest)), None)  # fmt: skip
            raise differs(f"it has {counts[0]} to {counts[-1]} operators", where)
        for values in zip(*(g.inputs for g in self.graphs), strict=True):
            self.made.inputs.append(self._value(values))
        for ops in zip(*(g.ops for g in self.graphs)):
            self._op(ops)
        self.now = ()
        for values in zip(*(g.outputs for g in self.graphs), strict=True):
            self.made.outputs.append(self._operand(values, None))
        return self.made

    def _value(self, values: Sequence[Value]) -> Value:
        """A new value for one that an input or an operator gives."""
        first = values[0]
        sizes = [v.shape for v in values]
        if len({(v.dtype, len(v.shape)) for v in values}) > 1:
            raise differs(f"{first.name} is {' and '.join(str(v.type) for v in values[:2])}",
                           first.producer)  # fmt: skip
        shape = _general(sizes)
        limits = first.limits if all(v.limits == first.limits for v in values) else None
        made = Value(
            TensorType(first.dtype, shape), first.name, None, first.quant, first.loc, limits
        )
        for twin, value in zip(self.twins, values):
            twin[value] = first
        self.values[first] = made
        return made

    def _op(self, ops: Sequence[Op]) -> None:
        first, self.now = ops[0], ops
        if len({(op.name, len(op.ins), len(op.outs)) for op in ops}) > 1:
            raise differs(f"there is {' and '.join(dict.fromkeys(o.name for o in ops))}", first)
        self.builder.loc = first.loc
        ins = [self._operand(values, first) for values in zip(*(op.ins for op in ops))]
        defn, attrs = first.defn, dict(first.attrs)
        if any(op.attrs != first.attrs for op in ops):
            if first.name not in _POOLS:
                name = next(k for k in attrs if any(op.attrs[k] != attrs[k] for op in ops))
                raise differs(f"its {name} depends on the size", first)
            defn = OPS[f"{first.name}_ADAPTIVE"]
            for name in ("kernel", "stride", "pad"):
                del attrs[name]
                sides = (1, 1, 2, 2) if name == "pad" else (1, 2)
                ins.append(self.shape([op.attrs[name] for op in ops], first, sides))
        outs = [self._value(values) for values in zip(*(op.outs for op in ops))]
        parts = [generalize(aligned(each), self.env) for each in zip(*(op.regions for op in ops))]
        self.made.ops.append(Op(defn, ins, outs, attrs, tuple(parts), first.loc))

    def _operand(self, values: Sequence[Value], op: Op | None) -> Value:
        first = values[0]
        if first.const is None:
            if any(twin.get(v) is not first for twin, v in zip(self.twins, values)):
                raise differs("it reads other values", op)
            return self.values[first]
        if any(v.const is None for v in values):
            raise differs(f"{first.name} is a constant at some sizes alone", op)
        key = tuple(values)  # constants that are equal at one size may differ at another
        if key not in self.constants:
            self.constants[key] = self._constant(values, op)
        return self.constants[key]

    def _constant(self, values: Sequence[Value], op: Op | None) -> Value:
        first = values[0]
        arrays = [v.const.array for v in values if v.const is not None]
        if all(_same(arrays[0], array) for array in arrays[1:]):
            return Value(first.type, first.name, first.const, first.quant, first.loc)
        if first.dtype is SHAPE:
            return self.shape([tuple(map(int, array.reshape(-1))) for array in arrays], op)
        forms = self._by_count, self._count, self._repeated, self._beginning
        return next(v for form in forms if (v := form(first, arrays, op)) is not None)

    def _by_count(self, first: Value, arrays: Sequence[Any], op: Op | None) -> Value | None:
        """A number that goes with how many elements a sum has, out of a table."""
        if op is None or not self.now:
            return None
        counts, sums = size_tables.counted(self.now)
        numbers = size_tables.table(self.now, op.ins.index(first), arrays, counts) if sums else None
        if numbers is None:
            return None
        if op.name == "RESCALE" and not self.env.has("dynamic"):
            raise differs("the factor of a mean depends on the size, which +dynamic allows", op)
        sizes = [self.dim(self.values[each.ins[0]], axis) for each, axis in sums]
        count = reduce(lambda one, other: self.emit("MUL_SHAPE", one, other), sizes)
        rest = counts[0] // math.prod(each.ins[0].shape[axis] for each, axis in sums)
        if rest > 1:
            count = self.emit("MUL_SHAPE", count, self.builder.shape([rest]))
        before = [1] * (first.type.rank - 1)
        whole = numbers.reshape(*before, -1)
        source = Value(TensorType(first.dtype, whole.shape), "", Const(whole), first.quant)
        start = self.builder.shape([0 for _ in before])
        start = self.emit("CONCAT_SHAPE", start, count, length=None) if before else count
        out = Value(first.type, first.name, None, first.quant, first.loc)
        ins = [source, start, self.builder.shape([1] * first.type.rank)]
        self.made.ops.append(Op(OPS["SLICE"], ins, [out], {}, (), op.loc))
        return out

    def _count(self, first: Value, arrays: Sequence[Any], op: Op | None) -> Value | None:
        """A whole number that is a size: as many ones, added up."""
        kinds = (first.dtype, F32) if first.dtype in (I32, F32) else ()
        kind = next((k for k in kinds if self._sums(k)), None)
        if first.type.size != 1 or not first.type.rank or kind is None:
            return None
        numbers = [array.item() for array in arrays]
        if not all(n >= 1 and n == int(n) for n in numbers):
            return None
        rank = first.type.rank
        ones = Value(TensorType(kind, (1,) * rank), "", Const(np.ones((1,) * rank, kind.array)))
        try:
            times = self.shape([(*first.shape[1:], int(n)) for n in numbers], op)
        except Unsupported:
            return None
        many = self.op("TILE", TensorType(kind, (*first.shape[1:], UNKNOWN)), [ones, times])
        value = self.op("REDUCE_SUM", ones.type, [many], {"axis": rank - 1})
        if kind is not first.dtype:
            value = self.op("CAST", first.type, [value])
        value.quant = first.quant
        return value

    def _sums(self, kind: DType) -> bool:
        """Whether the target adds up numbers of a type."""
        return self.takes("REDUCE_SUM", TensorType(kind, (1,)), TensorType(kind, (1,)))

    def _repeated(self, first: Value, arrays: Sequence[Any], op: Op | None) -> Value | None:
        """A constant that is the same all along the axes of which the size differs."""
        if len({array.ndim for array in arrays}) > 1 or not arrays[0].ndim:
            return None
        same = [len(set(sizes)) == 1 for sizes in zip(*(array.shape for array in arrays))]
        part = arrays[0][tuple(slice(None if whole else 1) for whole in same)]
        if all(same) or any(not _same(np.broadcast_to(part, a.shape), a) for a in arrays):
            return None
        once = Value(TensorType(first.dtype, part.shape), "", Const(np.ascontiguousarray(part)),
                     first.quant)  # fmt: skip
        times = [[n if many else 1 for n, many in zip(array.shape, (not s for s in same))]
                 for array in arrays]  # fmt: skip
        shape = tuple(n if whole else UNKNOWN for n, whole in zip(arrays[0].shape, same))
        made = self.op("TILE", TensorType(first.dtype, shape), [once, self.shape(times, op)])
        made.quant = first.quant
        return made

    def _beginning(self, first: Value, arrays: Sequence[Any], op: Op | None) -> Value:
        """A constant as the beginning of the one of the largest sizes."""
        largest = max(arrays, key=lambda array: int(array.size))
        for array in arrays:
            if array.ndim != largest.ndim or any(a > b for a, b in zip(array.shape, largest.shape)):
                raise differs("a constant has other sizes", op)
            if not _same(largest[tuple(slice(n) for n in array.shape)], array):
                raise differs("numbers of a constant depend on the size", op)
        whole = Value(TensorType(first.dtype, largest.shape), "", Const(largest), first.quant)
        start = self.builder.shape([0] * largest.ndim)
        size = self.shape([array.shape for array in arrays], op)
        shape = tuple(
            n[0] if len(set(n)) == 1 else UNKNOWN for n in zip(*(a.shape for a in arrays))
        )
        out = Value(TensorType(first.dtype, shape), first.name, None, first.quant, first.loc)
        self.made.ops.append(Op(OPS["SLICE"], [whole, start, size], [out], {}, (), self._loc(op)))
        return out

    def _loc(self, op: Op | None) -> Loc | None:
        return op.loc if op is not None else None


def _general(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Sizes where all shapes have them, else unknown."""
    return tuple(int(n[0]) if len(set(n)) == 1 else UNKNOWN for n in zip(*shapes))


def _same(a: Any, b: Any) -> bool:
    return a.shape == b.shape and bool(np.ascontiguousarray(a).tobytes() == b.tobytes())


def same_graph(one: Graph, other: Graph) -> str:
    """Where two graphs of known sizes differ in operators or shapes; nothing where they do not.

    What the first computes of constants may be constants in the other.
    """
    left = [op for op in one.ops if not (op.name in FOLDED and op.ins[0].is_const)]
    right = list(other.ops)
    if len(left) != len(right):
        return f"{len(left)} operators, and {len(right)}"
    for a, b in zip(left, right):
        if a.name.removesuffix("_ADAPTIVE") != b.name:
            return f"{a} and {b}"
        if [v.type for v in a.outs] != [v.type for v in b.outs]:
            return f"{a} gives {a.outs[0].type} and {b.outs[0].type}"
        shapes = [[_numbers(v) for v in op.ins if v.dtype is SHAPE] for op in (a, b)]
        if a.name == b.name and shapes[0] != shapes[1]:
            return f"{a} has the shapes {shapes[0]} and {shapes[1]}"
        for x, y in zip(a.ins, b.ins) if a.name == b.name else ():
            if x.const is not y.const and not _same_constant(x, y):
                return f"{a} has other constants"
        for own, its in zip(a.regions, b.regions):
            if different := same_graph(own, its):
                return different
    return ""


def _same_constant(x: Value, y: Value) -> bool:
    if x.const is None or y.const is None:
        return False
    return _same(x.const.array, y.const.array)


def _numbers(value: Value) -> list[int]:
    assert value.const is not None
    return [int(n) for n in value.const.array.reshape(-1)]
