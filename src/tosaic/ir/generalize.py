"""Generalises a graph: from what it is at several sizes to one graph with unknown sizes.

Rules and rewrites see known sizes alone. The graphs that they make of a program at several sizes
have the same operators; what differs follows from the sizes: shapes, numbers of shapes, windows of
pools, and constants of which each is the beginning of the largest. Numbers of shapes become shape
operators. A number is a size of an operand or a product of two, what windows with a stride see of
one, or is fitted as floor((a * m + b) / c), where m is a size of an input or a product of sizes,
and is right if it holds at sizes that it was not fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir import size_tables
from tosaic.ir.align import aligned
from tosaic.ir.build import Builder
from tosaic.ir.graph import Const, Graph, Loc, Op, Value
from tosaic.spec import OPS
from tosaic.spec.check import resolve
from tosaic.spec.dtypes import F32, SHAPE, UNKNOWN, TensorType
from tosaic.spec.env import Env, everything

Numbers = tuple[int, ...]  # one for each of the graphs
_SIZE = TensorType(SHAPE, (1,))
_DIVISORS = tuple(range(1, 65))
_POOLS = {"AVG_POOL2D", "MAX_POOL2D"}


@dataclass(frozen=True, slots=True)
class _Source:
    """A size of an input that differs among the graphs, or a product of such."""

    axes: tuple[tuple[int, int], ...]  # input and axis
    sizes: Numbers


@dataclass(frozen=True, slots=True)
class _Fit:
    """floor((times * source + plus) / by)."""

    source: _Source
    times: int
    plus: int
    by: int


def generalize(graphs: Sequence[Graph], env: Env) -> Graph:
    """One graph that is each of the others at their sizes; Unsupported says where they differ."""
    return _Generalizer(graphs, env).run()


class _Generalizer:
    def __init__(self, graphs: Sequence[Graph], env: Env) -> None:
        self.graphs, self.env = graphs, env
        self.made = Graph(graphs[0].name, version=graphs[0].version)
        self.builder = Builder(everything(self.made.version, level="none"), self.made)
        self.values: dict[Value, Value] = {}  # of the first graph, as the made one has them
        self.twins: list[dict[Value, Value]] = [{} for _ in graphs]  # each as the first has it
        self.constants: dict[tuple[Value, ...], Value] = {}
        self.dims: dict[tuple[Value, int], Value] = {}
        self.casts: dict[Value, Value] = {}
        self.known: dict[tuple[Any, ...], Value] = {}
        self.sources: list[_Source] = []
        self.now: Sequence[Op] = ()  # the operator of each graph that is at work
        self.windows = _windows(graphs[0])

    def run(self) -> Graph:
        if len({len(g.ops) for g in self.graphs}) > 1:
            counts = sorted({len(g.ops) for g in self.graphs})
            where = next((a for a, *rest in zip(*(g.ops for g in self.graphs))
                          if any(a.name != b.name for b in rest)), None)  # fmt: skip
            raise _differs(f"it has {counts[0]} to {counts[-1]} operators", where)
        for values in zip(*(g.inputs for g in self.graphs), strict=True):
            self.made.inputs.append(self._value(values))
        self.sources = list(self._sources())
        for ops in zip(*(g.ops for g in self.graphs)):
            self._op(ops)
        self.now = ()
        for values in zip(*(g.outputs for g in self.graphs), strict=True):
            self.made.outputs.append(self._operand(values, None))
        return self.made

    def _sources(self) -> Iterator[_Source]:
        single = list[_Source]()
        for number, values in enumerate(zip(*(g.inputs for g in self.graphs))):
            for axis, sizes in enumerate(zip(*(v.shape for v in values))):
                if len(set(sizes)) > 1 and all(sizes != s.sizes for s in single):
                    single.append(_Source(((number, axis),), sizes))
        yield from single
        for some in combinations_with_replacement(single, 2):
            product = tuple(int(a * b) for a, b in zip(*(s.sizes for s in some)))
            yield _Source(tuple(axis for s in some for axis in s.axes), product)

    def _value(self, values: Sequence[Value]) -> Value:
        """A new value for one that an input or an operator gives."""
        first = values[0]
        sizes = [v.shape for v in values]
        if len({(v.dtype, len(v.shape)) for v in values}) > 1:
            raise _differs(f"{first.name} is {' and '.join(str(v.type) for v in values[:2])}",
                           first.producer)  # fmt: skip
        shape = _general(sizes)
        made = Value(
            TensorType(first.dtype, shape), first.name, None, first.quant, first.loc, first.limits
        )
        for twin, value in zip(self.twins, values):
            twin[value] = first
        self.values[first] = made
        return made

    def _op(self, ops: Sequence[Op]) -> None:
        first, self.now = ops[0], ops
        if len({(op.name, len(op.ins), len(op.outs)) for op in ops}) > 1:
            raise _differs(f"there is {' and '.join(dict.fromkeys(o.name for o in ops))}", first)
        self.builder.loc = first.loc
        ins = [self._operand(values, first) for values in zip(*(op.ins for op in ops))]
        defn, attrs = first.defn, dict(first.attrs)
        if any(op.attrs != first.attrs for op in ops):
            if first.name not in _POOLS:
                name = next(k for k in attrs if any(op.attrs[k] != attrs[k] for op in ops))
                raise _differs(f"its {name} depends on the size", first)
            defn = OPS[f"{first.name}_ADAPTIVE"]
            for name in ("kernel", "stride", "pad"):
                del attrs[name]
                sides = (1, 1, 2, 2) if name == "pad" else (1, 2)
                ins.append(self._shape([op.attrs[name] for op in ops], first, sides))
        outs = [self._value(values) for values in zip(*(op.outs for op in ops))]
        parts = [generalize(aligned(each), self.env) for each in zip(*(op.regions for op in ops))]
        self.made.ops.append(Op(defn, ins, outs, attrs, tuple(parts), first.loc))

    def _operand(self, values: Sequence[Value], op: Op | None) -> Value:
        first = values[0]
        if first.const is None:
            if any(twin.get(v) is not first for twin, v in zip(self.twins, values)):
                raise _differs("it reads other values", op)
            return self.values[first]
        if any(v.const is None for v in values):
            raise _differs(f"{first.name} is a constant at some sizes alone", op)
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
            return self._shape([tuple(map(int, array.reshape(-1))) for array in arrays], op)
        return self._by_count(first, arrays, op) or self._beginning(first, arrays, op)

    def _by_count(self, first: Value, arrays: Sequence[Any], op: Op | None) -> Value | None:
        """A number that goes with how many elements a sum has, out of a table."""
        if op is None or not self.now:
            return None
        counts, sums = size_tables.counted(self.now)
        numbers = size_tables.table(self.now, op.ins.index(first), arrays, counts) if sums else None
        if numbers is None:
            return None
        if op.name == "RESCALE" and not self.env.has("dynamic"):
            raise _differs("the factor of a mean depends on the size, which +dynamic allows", op)
        sizes = [self._dim(self.values[each.ins[0]], axis) for each, axis in sums]
        count = reduce(lambda one, other: self._emit("MUL_SHAPE", one, other), sizes)
        rest = counts[0] // math.prod(each.ins[0].shape[axis] for each, axis in sums)
        if rest > 1:
            count = self._emit("MUL_SHAPE", count, self.builder.shape([rest]))
        before = [1] * (first.type.rank - 1)
        whole = numbers.reshape(*before, -1)
        source = Value(TensorType(first.dtype, whole.shape), "", Const(whole), first.quant)
        start = self.builder.shape([0 for _ in before])
        start = self._emit("CONCAT_SHAPE", start, count, length=None) if before else count
        out = Value(first.type, first.name, None, first.quant, first.loc)
        ins = [source, start, self.builder.shape([1] * first.type.rank)]
        self.made.ops.append(Op(OPS["SLICE"], ins, [out], {}, (), op.loc))
        return out

    def _beginning(self, first: Value, arrays: Sequence[Any], op: Op | None) -> Value:
        """A constant as the beginning of the one of the largest sizes."""
        largest = max(arrays, key=lambda array: int(array.size))
        for array in arrays:
            if array.ndim != largest.ndim or any(a > b for a, b in zip(array.shape, largest.shape)):
                raise _differs("a constant has other sizes", op)
            if not _same(largest[tuple(slice(n) for n in array.shape)], array):
                raise _differs("numbers of a constant depend on the size", op)
        whole = Value(TensorType(first.dtype, largest.shape), "", Const(largest), first.quant)
        start = self.builder.shape([0] * largest.ndim)
        size = self._shape([array.shape for array in arrays], op)
        shape = tuple(
            n[0] if len(set(n)) == 1 else UNKNOWN for n in zip(*(a.shape for a in arrays))
        )
        out = Value(TensorType(first.dtype, shape), first.name, None, first.quant, first.loc)
        self.made.ops.append(Op(OPS["SLICE"], [whole, start, size], [out], {}, (), self._loc(op)))
        return out

    def _loc(self, op: Op | None) -> Loc | None:
        return op.loc if op is not None else None

    # ---- shapes

    def _shape(
        self, shapes: Sequence[Sequence[int]], op: Op | None, axes: Sequence[int] | None = None
    ) -> Value:
        """Numbers of a shape, or of ``axes``, as shape operators; runs of a kind go together."""
        if len({len(shape) for shape in shapes}) > 1:
            raise _differs("a shape has another rank", op)
        parts: list[Value] = []
        fixed: list[int] = []

        def flush() -> None:
            if fixed:
                parts.append(self.builder.shape(fixed))
                fixed.clear()

        for axis, numbers in zip(axes or range(len(shapes[0])), zip(*shapes)):
            if len(set(numbers)) == 1:
                fixed.append(int(numbers[0]))
                continue
            flush()
            parts.append(self._number(tuple(map(int, numbers)), op, axis))
        flush()
        return parts[0] if len(parts) == 1 else self._emit("CONCAT_SHAPE", *parts, length=None)

    def _number(self, numbers: Numbers, op: Op | None, axis: int) -> Value:
        known = self._of_windows(numbers, axis) or self._of_operands(numbers, axis)
        if known is not None or (known := self._left_over(numbers, axis)) is not None:
            return known
        fit = next(self._fits(numbers), None)
        if fit is None:
            raise _differs(f"a size is {', '.join(map(str, numbers))}, which follows from none of "
                           "the inputs' sizes", op)  # fmt: skip
        key = fit.source.axes, fit.times, fit.plus, fit.by
        if key not in self.known:
            value = self._dim_of(*fit.source.axes[0])
            for place in fit.source.axes[1:]:
                value = self._emit("MUL_SHAPE", value, self._dim_of(*place))
            if fit.times != 1:
                value = self._emit("MUL_SHAPE", value, self.builder.shape([fit.times]))
            if fit.plus:
                name = "ADD_SHAPE" if fit.plus > 0 else "SUB_SHAPE"
                value = self._emit(name, value, self.builder.shape([abs(fit.plus)]))
            if fit.by != 1:
                value = self._emit("DIV_FLOOR_SHAPE", value, self.builder.shape([fit.by]))
            self.known[key] = value
        return self.known[key]

    def _fits(self, numbers: Numbers) -> Iterator[_Fit]:
        for source in self.sources:
            low, high = (f(range(len(numbers)), key=lambda i: source.sizes[i]) for f in (min, max))
            span = source.sizes[high] - source.sizes[low]
            if not span:
                continue
            slope = Fraction(numbers[high] - numbers[low], span)
            for by in _DIVISORS:
                for times in dict.fromkeys((round(slope * by), int(slope * by), -int(-slope * by))):
                    plus = _offset(numbers, source.sizes, times, by)
                    if times and plus is not None:
                        yield _Fit(source, times, plus, by)

    def _of_windows(self, numbers: Numbers, axis: int) -> Value | None:
        """What the windows that read a SLICE see of its operand, if that is what it is."""
        found = self.windows.get((self.now[0], axis)) if self.now else None
        if found is None:
            return None
        stride, rest = found
        sizes = [op.ins[0].shape[axis] for op in self.now]
        if any((s - rest) // stride * stride + rest != n for s, n in zip(sizes, numbers)):
            return None
        less, more = ("SUB_SHAPE", "ADD_SHAPE") if rest > 0 else ("ADD_SHAPE", "SUB_SHAPE")
        value = self._dim(self.values[self.now[0].ins[0]], axis)
        steps = (less, abs(rest)), ("DIV_FLOOR_SHAPE", stride), ("MUL_SHAPE", stride)
        for name, number in (*steps, (more, abs(rest))):
            value = self._emit(name, value, self.builder.shape([number])) if number else value
        return value

    def _left_over(self, numbers: Numbers, axis: int) -> Value | None:
        """A padding less what a stride leaves over of a size behind the last window."""
        strides = self.now[0].attrs.get("stride", ()) if self.now else ()
        if not 0 < axis <= len(strides):
            return None
        most, stride = max(numbers), strides[axis - 1]
        sizes = [op.ins[0].shape[axis] for op in self.now]
        for more in range(stride):
            if all(most - (s + more) % stride == n for s, n in zip(sizes, numbers)):
                value = self._dim(self.values[self.now[0].ins[0]], axis)
                for name, number in (("ADD_SHAPE", more), ("MOD_SHAPE", stride)):
                    value = self._emit(name, value, self.builder.shape([number]))
                return self._emit("SUB_SHAPE", self.builder.shape([most]), value)
        return None

    def _of_operands(self, numbers: Numbers, axis: int) -> Value | None:
        """A size of an operand, of this axis if there are several, or a product of two."""
        places: list[tuple[Numbers, Value, int]] = [
            (sizes, own, number)
            for values in zip(*(op.ins for op in self.now))
            if (own := self.values.get(values[0])) is not None and own.dtype is not SHAPE
            for number, sizes in enumerate(zip(*(v.shape for v in values)))
            if len(set(sizes)) > 1
        ]
        same = [(own, number) for sizes, own, number in places if sizes == numbers]
        if same:
            return self._dim(*min(same, key=lambda place: place[1] != axis))
        for one, other in combinations(places, 2):
            if tuple(a * b for a, b in zip(one[0], other[0])) == numbers:
                return self._emit("MUL_SHAPE", self._dim(*one[1:]), self._dim(*other[1:]))
        return None

    def _dim(self, value: Value, axis: int) -> Value:
        if (value, axis) not in self.dims:
            out = Value(_SIZE)
            source = value if self._has_dim(value) else self._real(value)
            self.made.ops.append(Op(OPS["DIM"], [source], [out], {"axis": axis}))
            self.dims[value, axis] = out
        return self.dims[value, axis]

    def _has_dim(self, value: Value) -> bool:
        try:
            resolve(OPS["DIM"], self.env, [value.type], {"axis": 0}, lambda _: None, [_SIZE])
        except Unsupported:
            return False
        return True

    def _real(self, value: Value) -> Value:
        """Integers as numbers that a target without operators on integers has sizes of."""
        if value not in self.casts:
            self.casts[value] = Value(TensorType(F32, value.shape))
            self.made.ops.append(Op(OPS["CAST"], [value], [self.casts[value]], {}))
        return self.casts[value]

    def _dim_of(self, number: int, axis: int) -> Value:
        return self._dim(self.made.inputs[number], axis)

    def _emit(self, name: str, *ins: Value, length: int | None = 1) -> Value:
        count = sum(v.shape[0] for v in ins) if length is None else length
        out = Value(TensorType(SHAPE, (count,)))
        self.made.ops.append(Op(OPS[name], list(ins), [out], {}))
        return out


def _windows(graph: Graph) -> dict[tuple[Op, int], tuple[int, int]]:
    """SLICEs along an axis over which windows slide: the stride, and what the first one covers."""
    found = dict[tuple[Op, int], tuple[int, int]]()
    for op in graph.ops:
        if "kernel" in op.attrs:
            reach = op.attrs["kernel"]
        elif "dilation" in op.attrs:
            sizes = op.ins[1].shape[:2] if op.name == "DEPTHWISE_CONV2D" else op.ins[1].shape[1:-1]
            reach = [(k - 1) * gap + 1 for k, gap in zip(sizes, op.attrs["dilation"])]
        else:
            continue
        pads = op.attrs["pad"]
        for n, (step, size) in enumerate(zip(op.attrs["stride"], reach)):
            source, axis = _source(op.ins[0], n + 1)
            if step > 1 and source is not None and source.name == "SLICE":
                found[source, axis] = step, size - pads[2 * n] - pads[2 * n + 1]
    return found


def _source(value: Value, axis: int) -> tuple[Op | None, int]:
    """What gives a value, before its elements are moved and computed with one by one."""
    op = value.producer
    while op is not None and op.name in ("TRANSPOSE", "RESCALE", "CLAMP", "TABLE", "CAST"):
        axis = op.attrs["perms"][axis] if op.name == "TRANSPOSE" else axis
        op = op.ins[0].producer
    return op, axis


def _general(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Sizes where all shapes have them, else unknown."""
    return tuple(int(n[0]) if len(set(n)) == 1 else UNKNOWN for n in zip(*shapes))


def _offset(numbers: Numbers, sizes: Numbers, times: int, by: int) -> int | None:
    """The number nearest 0 that makes floor((times * size + it) / by) right; None if none does."""
    low = max(n * by - times * s for n, s in zip(numbers, sizes))
    high = min((n + 1) * by - 1 - times * s for n, s in zip(numbers, sizes))
    return None if low > high else min(max(0, low), high)


def _same(a: Any, b: Any) -> bool:
    return a.shape == b.shape and bool(np.ascontiguousarray(a).tobytes() == b.tobytes())


def _differs(what: str, op: Op | None) -> Unsupported:
    where = op.loc if op is not None else None
    named = f"{op.name}: " if op is not None else ""
    return Unsupported(f"{named}the graph is not the same at all sizes: {what}", where)


def same_graph(one: Graph, other: Graph) -> str:
    """Where two graphs of known sizes differ in operators or shapes; nothing where they do not.

    SLICEs of constants in the first may be constants in the other.
    """
    left = [op for op in one.ops if not (op.name == "SLICE" and op.ins[0].is_const)]
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
        for own, its in zip(a.regions, b.regions):
            if different := same_graph(own, its):
                return different
    return ""


def _numbers(value: Value) -> list[int]:
    assert value.const is not None
    return [int(n) for n in value.const.array.reshape(-1)]
