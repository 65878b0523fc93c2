"""Free sizes of a program: their names and ranges, and the shapes of inputs as lines of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

_AUTO = Dim.AUTO
_ENDLESS = 1 << 31  # what no size reaches


@dataclass(frozen=True, slots=True)
class FreeSize:
    """A size that inputs choose: its name, the range it is from, and what the example has."""

    name: str
    low: int
    high: int | None
    example: int


@dataclass(frozen=True, slots=True)
class Line:
    """A size that is ``step`` times a free one, given by its index, and ``start``."""

    free: int
    step: int = 1
    start: int = 0


@dataclass(frozen=True, slots=True)
class FreeSizes:
    """The free sizes of a program, and the shape of each input leaf by them; None for no tensor."""

    free: tuple[FreeSize, ...]
    shapes: tuple[tuple[int | Line, ...] | None, ...]

    def with_size(self, name: str, leaf: int, axis: int, example: int) -> FreeSizes:
        """The same with one more free size, of an axis of an input leaf."""
        shapes = list(self.shapes)
        sizes = list(shapes[leaf] or ())
        sizes[axis] = Line(len(self.free))
        shapes[leaf] = tuple(sizes)
        return FreeSizes((*self.free, FreeSize(name, 1, None, example)), tuple(shapes))

    def shapes_at(self, values: Sequence[int]) -> list[tuple[int, ...] | None]:
        """The shapes of all leaves where the free sizes have some values."""

        def value(size: int | Line) -> int:
            return size if isinstance(size, int) else size.step * values[size.free] + size.start

        return [None if shape is None else tuple(map(value, shape)) for shape in self.shapes]

    def values_of(self, shapes: Sequence[Sequence[int] | None]) -> tuple[int, ...] | None:
        """The free sizes of inputs of some shapes; None where no values give these."""
        found: dict[int, int] = {}
        for own, given in zip(self.shapes, shapes):
            for size, number in zip(own or (), given or ()):
                if isinstance(size, Line):
                    found.setdefault(size.free, (number - size.start) // size.step)
        values = tuple(found.get(n, free.example) for n, free in enumerate(self.free))
        fits = [None if s is None else tuple(s) for s in shapes] == self.shapes_at(values)
        return values if fits else None


class _Found:
    """Free sizes as they are met, by what tells them apart."""

    def __init__(self) -> None:
        self.indices: dict[Any, int] = {}
        self.sizes: list[FreeSize] = []

    def line(self, key: Any, step: int, start: int, number: int, *told: Any) -> Line:
        """A size of a tensor that has a number now; ``told`` is a name and a range."""
        name, low, high = told
        if key not in self.indices:
            self.indices[key] = len(self.sizes)
            # torch's ranges begin at 2, since it never takes 0 and 1 for free sizes.
            first, last = 1 if low <= 2 else int(low), int(high) if high < _ENDLESS else None
            self.sizes.append(FreeSize(name, first, last, (number - start) // step))
        return Line(self.indices[key], step, start)


def free_sizes(exported: ExportedProgram, dynamic_shapes: Any = None) -> FreeSizes:
    """What is free in the sizes of a program; names are those of Dims, or of an axis."""
    nodes = {node.name: node for node in exported.graph.nodes}
    inputs = [
        nodes[spec.arg.name] for spec in exported.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]  # fmt: skip
    found, shapes = _Found(), list[Any]()
    dims = _dims(dynamic_shapes, [node.name for node in inputs]) or [{} for _ in inputs]
    for node, own in zip(inputs, dims):
        value = node.meta.get("val")
        sizes: list[Any] = list(value.shape) if isinstance(value, Tensor) else []
        for axis, size in enumerate(sizes):
            symbols: Any = size.node.expr.free_symbols if isinstance(size, torch.SymInt) else ()
            if not symbols:
                sizes[axis] = int(size)
            if len(symbols) == 1:
                (symbol,), expression = symbols, size.node.expr
                start, next_ = (int(expression.subs({symbol: n})) for n in (0, 1))
                limits = exported.range_constraints.get(symbol)
                ends = (0, _ENDLESS) if limits is None else (limits.lower, limits.upper)
                dim = getattr(own.get(axis), "root", own.get(axis))
                name = dim.__name__ if isinstance(dim, Dim) else f"{node.name}.shape[{axis}]"
                number = int(size.node.hint)
                sizes[axis] = found.line(symbol, next_ - start, start, number, name, *ends)
        shapes.append(tuple(sizes) if isinstance(value, Tensor) else None)
    return FreeSizes(tuple(found.sizes), tuple(shapes))


def stated_sizes(
    dynamic_shapes: Any, names: Sequence[str], leaves: Sequence[Any]
) -> FreeSizes | None:
    """What a user says is free, without a look at the model; None where a Dim leaves it to torch.

    So a model whose program differs with its sizes, such as a recurrence, has free ones too.
    """
    dims = _dims(dynamic_shapes, names)
    if dims is None or len(dims) != len(leaves):
        return None
    found, shapes = _Found(), list[Any]()
    for own, leaf in zip(dims, leaves):
        shape: list[Any] = list(leaf.shape) if isinstance(leaf, Tensor) else []
        for axis, dim in own.items():
            if dim is None or isinstance(dim, int) or not shape:
                continue
            root = getattr(dim, "root", dim)
            if not isinstance(root, Dim):
                return None
            start, next_ = (0, 1) if root is dim else (int(dim.fn(n)) for n in (0, 1))
            told: Any = root
            shape[axis] = found.line(
                told.__name__, next_ - start, start, shape[axis], told.__name__, told.min, told.max
            )
        shapes.append(tuple(shape) if isinstance(leaf, Tensor) else None)
    return FreeSizes(tuple(found.sizes), tuple(shapes))


def automatic_sizes(dynamic_shapes: Any, names: Sequence[str]) -> list[tuple[int, int]]:
    """Input leaves and axes of which torch.export finds out whether they are free."""
    dims = _dims(dynamic_shapes, names) or []
    kind = getattr(_AUTO, "type", _AUTO)
    return [
        (leaf, axis) for leaf, own in enumerate(dims) for axis, dim in own.items()
        if isinstance(dim, type(_AUTO)) and getattr(dim, "type", dim) == kind
    ]  # fmt: skip


def _dims(dynamic_shapes: Any, names: Sequence[str]) -> list[dict[int, Any]] | None:
    """The Dims of each input leaf by axis; None where what the user wrote does not tell."""
    if isinstance(dynamic_shapes, Mapping) and set(dynamic_shapes) <= set(names):
        dynamic_shapes = [dynamic_shapes.get(name) for name in names]
    elif not isinstance(dynamic_shapes, (list, tuple)):
        return None
    leaves = [leaf for part in dynamic_shapes for leaf in _leaves(part)]
    return [
        dict(leaf) if isinstance(leaf, Mapping) else dict(enumerate(leaf or ())) for leaf in leaves
    ]


def _leaves(spec: Any) -> Iterator[Any]:
    """What stands for a tensor each: None, sizes by axis, or sizes in a row."""
    if isinstance(spec, Mapping) and not all(isinstance(key, int) for key in spec):
        parts = list(spec.values())
    elif isinstance(spec, (list, tuple)) and any(
        isinstance(part, (Mapping, list, tuple)) for part in spec
    ):
        parts = list(spec)
    else:
        yield spec
        return
    for part in parts:
        yield from _leaves(part)
