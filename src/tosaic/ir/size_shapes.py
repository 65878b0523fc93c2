"""Sizes of a graph as shape operators: what a number of a shape is at sizes that nobody has tried.

A number is a size of an operand or a product of two, what windows with a stride see of one, or is
fitted as floor((a * m + b) / c), where m is a size of an input or a product of sizes, and is right
if it holds at sizes that it was not fitted to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, combinations_with_replacement
from typing import Any

from tosaic.errors import Unsupported
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec import OPS
from tosaic.spec.check import resolve
from tosaic.spec.dtypes import F32, SHAPE, TensorType
from tosaic.spec.env import Env, everything

Numbers = tuple[int, ...]  # one for each of the graphs
_Place = tuple[Numbers, Value, int]  # sizes, and the value and the axis that have them
_SIZE = TensorType(SHAPE, (1,))
_DIVISORS = tuple(range(1, 65))


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


class Sizes:
    """The sizes of several graphs of one program, in the graph that is made of them."""

    def __init__(self, graphs: Sequence[Graph], env: Env) -> None:
        self.graphs, self.env = graphs, env
        self.made = Graph(graphs[0].name, version=graphs[0].version)
        self.builder = Builder(everything(self.made.version, level="none"), self.made)
        self.values: dict[Value, Value] = {}  # of the first graph, as the made one has them
        self.dims: dict[tuple[Value, int], Value] = {}
        self.casts: dict[Value, Value] = {}
        self.known: dict[tuple[Any, ...], Value] = {}
        self.sources = list(self._sources())
        self.now: Sequence[Op] = ()  # the operator of each graph that is at work
        self.windows = _windows(graphs[0])

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

    def op(
        self, name: str, kind: TensorType, ins: list[Value], attrs: dict[str, Any] | None = None
    ) -> Value:
        out = Value(kind)
        self.made.ops.append(Op(OPS[name], ins, [out], attrs or {}, (), self.builder.loc))
        return out

    def shape(
        self, shapes: Sequence[Sequence[int]], op: Op | None, axes: Sequence[int] | None = None
    ) -> Value:
        """Numbers of a shape, or of ``axes``, as shape operators; runs of a kind go together."""
        if len({len(shape) for shape in shapes}) > 1:
            raise differs("a shape has another rank", op)
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
            parts.append(self.number(tuple(map(int, numbers)), op, axis))
        flush()
        return parts[0] if len(parts) == 1 else self.emit("CONCAT_SHAPE", *parts, length=None)

    def number(self, numbers: Numbers, op: Op | None, axis: int) -> Value:
        known = self._of_windows(numbers, axis) or self._of_operands(numbers, axis)
        if known is not None or (known := self._left_over(numbers, axis)) is not None:
            return known
        fit = next(self._fits(numbers), None)
        if fit is None and (known := self._multiple(numbers) or self._remainder(numbers)):
            return known
        if fit is None:
            raise differs(f"a size is {', '.join(map(str, numbers))}, which follows from none of "
                           "the inputs' sizes", op)  # fmt: skip
        key = fit.source.axes, fit.times, fit.plus, fit.by
        if key not in self.known:
            value = self._dim_of(*fit.source.axes[0])
            for place in fit.source.axes[1:]:
                value = self.emit("MUL_SHAPE", value, self._dim_of(*place))
            if fit.times != 1:
                value = self.emit("MUL_SHAPE", value, self.builder.shape([fit.times]))
            if fit.plus:
                name = "ADD_SHAPE" if fit.plus > 0 else "SUB_SHAPE"
                value = self.emit(name, value, self.builder.shape([abs(fit.plus)]))
            if fit.by != 1:
                value = self.emit("DIV_FLOOR_SHAPE", value, self.builder.shape([fit.by]))
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
        value = self.dim(self.values[self.now[0].ins[0]], axis)
        steps = (less, abs(rest)), ("DIV_FLOOR_SHAPE", stride), ("MUL_SHAPE", stride)
        for name, number in (*steps, (more, abs(rest))):
            value = self.emit(name, value, self.builder.shape([number])) if number else value
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
                value = self.dim(self.values[self.now[0].ins[0]], axis)
                for name, number in (("ADD_SHAPE", more), ("MOD_SHAPE", stride)):
                    value = self.emit(name, value, self.builder.shape([number]))
                return self.emit("SUB_SHAPE", self.builder.shape([most]), value)
        return None

    def _of_operands(self, numbers: Numbers, axis: int) -> Value | None:
        """A size of an operand, of this axis if there are several, or a product of two."""
        places = self._places()
        same = [(own, number) for sizes, own, number in places if sizes == numbers]
        if same:
            return self.dim(*min(same, key=lambda place: place[1] != axis))
        for one, other in combinations(places, 2):
            if tuple(a * b for a, b in zip(one[0], other[0])) == numbers:
                return self.emit("MUL_SHAPE", self.dim(*one[1:]), self.dim(*other[1:]))
        return None

    def _places(self) -> list[_Place]:
        """The sizes of operands that are not the same for all graphs."""
        return [
            (sizes, own, number)
            for values in zip(*(op.ins for op in self.now))
            if (own := self.values.get(values[0])) is not None and own.dtype is not SHAPE
            for number, sizes in enumerate(zip(*(v.shape for v in values)))
            if len(set(sizes)) > 1
        ]

    def _multiple(self, numbers: Numbers) -> Value | None:
        """A size of an operand several times, or a part of it, as heads are of a batch."""
        for sizes, own, axis in self._places():
            ratio = Fraction(numbers[0], sizes[0])
            if all(ratio * s == n for n, s in zip(numbers, sizes)):
                value = self.emit(
                    "MUL_SHAPE", self.dim(own, axis), self.builder.shape([ratio.numerator])
                )
                by = self.builder.shape([ratio.denominator])
                return value if ratio.denominator == 1 else self.emit("DIV_FLOOR_SHAPE", value, by)
        return None

    def _remainder(self, numbers: Numbers) -> Value | None:
        """What a size leaves over of a number, or lacks to a multiple of one."""
        own = [(s.sizes, self.made.inputs[n], axis) for s in self.sources
               for n, axis in s.axes if len(s.axes) == 1]  # fmt: skip
        for sizes, value, axis in (*self._places(), *own):
            for by, more in ((n, rest) for n in _DIVISORS for rest in range(n)):
                left = [(s + more) % by for s in sizes]
                most = numbers[0] + left[0]
                is_rest = all(n == r for n, r in zip(numbers, left))
                if not is_rest and any(most - r != n for n, r in zip(numbers, left)):
                    continue
                steps = ("ADD_SHAPE", more), ("MOD_SHAPE", by)
                made = self.dim(value, axis)
                for name, number in steps:
                    made = self.emit(name, made, self.builder.shape([number])) if number else made
                return made if is_rest else self.emit("SUB_SHAPE", self.builder.shape([most]), made)
        return None

    def dim(self, value: Value, axis: int) -> Value:
        if (value, axis) not in self.dims:
            out = Value(_SIZE)
            source = value if self._has_dim(value) else self._real(value)
            self.made.ops.append(Op(OPS["DIM"], [source], [out], {"axis": axis}))
            self.dims[value, axis] = out
        return self.dims[value, axis]

    def _has_dim(self, value: Value) -> bool:
        return self.takes("DIM", value.type, _SIZE)

    def takes(self, name: str, given: TensorType, result: TensorType) -> bool:
        try:
            resolve(OPS[name], self.env, [given], {"axis": 0}, lambda _: None, [result])
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
        return self.dim(self.made.inputs[number], axis)

    def emit(self, name: str, *ins: Value, length: int | None = 1) -> Value:
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


def _offset(numbers: Numbers, sizes: Numbers, times: int, by: int) -> int | None:
    """The number nearest 0 that makes floor((times * size + it) / by) right; None if none does."""
    low = max(n * by - times * s for n, s in zip(numbers, sizes))
    high = min((n + 1) * by - 1 - times * s for n, s in zip(numbers, sizes))
    return None if low > high else min(max(0, low), high)


def differs(what: str, op: Op | None) -> Unsupported:
    where = op.loc if op is not None else None
    named = f"{op.name}: " if op is not None else ""
    return Unsupported(f"{named}the graph is not the same at all sizes: {what}", where)
