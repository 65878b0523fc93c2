"""Free sizes on targets that have them: one graph with unknown sizes, from several known ones.

The program is lowered at a few sizes; what differs is generalised into shape operators, and the
result is compared with what lowering makes of further sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from torch import fx

from tosaic.boundary.arguments import Given, checked_leaves
from tosaic.errors import InvalidInput, Unsupported
from tosaic.front import torchapi
from tosaic.interp.model import Model
from tosaic.ir.align import aligned
from tosaic.ir.generalize import generalize, same_graph
from tosaic.ir.graph import Array, Graph, Value
from tosaic.ir.specialize import specialize
from tosaic.ir.verify import verify
from tosaic.lowering.partition import Piece
from tosaic.lowering.target import Target
from tosaic.passes.rnn_loops import steps_of
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.report import Report
from tosaic.pipeline.sized import artifact_at, calibration_for
from tosaic.pipeline.sizes import Sizes, Values

_MOST = 1 << 24  # elements of an input at the end of a range
_INSTEAD = "compile for a target of fixed sizes with sizes=[...], or leave less free"
_NEAR = 5  # sizes that are lowered beside the example's


@dataclass(eq=False, repr=False)
class DynamicArtifact(Artifact):
    """A program whose inputs choose sizes: its graphs have unknown ones.

    ``example`` is what it is at the sizes of the example.
    """

    free: torchapi.FreeSizes = field(default_factory=lambda: torchapi.FreeSizes((), ()))
    example: Artifact | None = None

    @cached_property
    def report(self) -> Report:
        """The report at the sizes of the example."""
        assert self.example is not None
        made = self.example.report
        told = "; ".join(f"{f.name} {f.low} to {f.high or 'any'}" for f in self.free.free)
        return replace(made, settings={**made.settings, "free sizes": told})

    @cached_property
    def file_sizes(self) -> dict[str, int]:
        """Those at the sizes of the example."""
        assert self.example is not None
        return self.example.file_sizes

    def _checked(self, leaves: list[Any]) -> list[Given]:
        given = checked_leaves(self.program, leaves, is_free=True)
        shapes = [tuple(leaf.value.shape) if hasattr(leaf.value, "shape") else None
                  for leaf in given]  # fmt: skip
        values = self.free.values_of(shapes)
        for size, number in zip(self.free.free, values or ()):
            if number < 1 or (size.high is not None and number > size.high):
                raise InvalidInput(f"{size.name} is from {size.low} to {size.high}, not {number}")
        if values is None:
            told = " and ".join(str(list(shape)) for shape in shapes if shape is not None)
            raise InvalidInput(f"the program takes no inputs of {told}, whatever is free")
        return given

    def _parts(self, leaves: list[Any]) -> None:
        """A batch is of any size."""


def compile_dynamic(
    sizes: Sizes, wanted: Iterable[Any] | None, target: Target, scheme: Any, calibration: Any,
    io: Any, options: Mapping[str, Any],
) -> DynamicArtifact:  # fmt: skip
    """The program with unknown sizes; InvalidInput says what of it is not the same at all."""
    # Whether a constant is folded must not depend on its size.
    target = replace(target, traits=replace(target.traits, folded_bytes=_MOST))
    fitted = _fitted(sizes)
    target = with_loops(target, sizes, fitted)
    checked = [v for v in (sizes.chosen(wanted) if wanted else _others(sizes)) if v not in fitted]
    stored = calibration_for(sizes, [*fitted, *checked], target, scheme, calibration)
    used = {"scheme": scheme, "io": io, **options}
    made = [
        artifact_at(sizes, values, target, scheme, stored, io, used)
        for values in (*fitted, *checked)
    ]
    _check_outside(made)
    first, pieces = made[0], list[Piece]()
    for piece in first.partition.pieces:
        number = sum(p.graph is not None for p in pieces)
        general = piece.graph and _general(made, number, len(fitted), target)
        pieces.append(replace(piece, graph=general))
    partition = replace(first.partition, pieces=pieces)
    return DynamicArtifact(
        first.program, partition, first.target, first.delegates, used, target,
        free=sizes.free, example=first,
    )  # fmt: skip


def with_loops(target: Target, sizes: Sizes, several: Iterable[Values]) -> Target:
    """The target, with loops where a recurrence has as many steps as a size."""
    programs = [torchapi.module_of(sizes.at(values).model).graph for values in several]
    steps = [[steps_of(node) for node in graph.nodes] for graph in programs]
    if all(own == steps[0] for own in steps):
        return target
    if target.env.has("cf"):
        return replace(target, traits=replace(target.traits, longest_unrolled=1))
    for column in zip(*steps):
        if len(set(column)) > 1 and None not in column:
            raise InvalidInput(
                "a recurrence has as many steps as a size, which a WHILE_LOOP does: add +cf to "
                f"the target, as {target.name}+cf, or leave this size as it is"
            )
    return target


def _check_outside(made: Sequence[Artifact]) -> None:
    """Calls that stay in PyTorch are those of the example, whatever the size is."""
    for nodes in zip(*([p.node for p in each.partition.pieces] for each in made)):
        told = {str(fx.map_arg((n.args, n.kwargs), lambda _: None)) for n in nodes if n is not None}
        if len(told) > 1:
            first = made[0].partition
            why = next((f" ({r.reason})" for r in first.refused if r.node == nodes[0].name), "")
            raise InvalidInput(
                f"{torchapi.target_name(nodes[0])} stays in PyTorch{why}, and what it takes "
                f"depends on the size; {_INSTEAD}",
                torchapi.location(nodes[0]).place,
            )


def _general(made: Sequence[Artifact], number: int, fitted: int, target: Target) -> Graph:
    """The graph of a number with unknown sizes."""
    try:
        if len({len(each.partition.graphs) for each in made}) > 1:
            raise Unsupported("some calls stay in PyTorch at some sizes alone")
        given = [each.partition.graphs[number] for each in made]
        every = aligned(given)
        alike = _alike(every)
        same = [graph for graph in every[:fitted] if graph in alike]
        general = generalize(same if len(same) > 1 else every[:fitted], target.env)
        _check(general, alike)
        for graph, as_made in zip(every, given):
            if graph not in alike or (graph is not as_made and as_made is given[-1]):
                _compare(general, as_made)
    except Unsupported as refusal:
        raise InvalidInput(f"{refusal.reason}; {_INSTEAD}", refusal.where) from None
    verify(general, target.env)
    return general


def _alike(graphs: Sequence[Graph]) -> list[Graph]:
    """The graphs that have the operators of most: where sizes happen to be equal, some are idle."""
    names = [tuple(op.name for op in graph.ops) for graph in graphs]
    most = max(names, key=names.count)
    return [graph for graph, own in zip(graphs, names) if own == most]


def _check(general: Graph, graphs: Sequence[Graph]) -> None:
    """The graph with unknown sizes is what lowering makes, at every size that was lowered."""
    for graph in graphs:
        at = specialize(general, [value.shape for value in graph.inputs])
        if different := same_graph(at, graph):
            raise Unsupported(f"the graph is not the same at all sizes: {different}")


def _compare(general: Graph, graph: Graph) -> None:
    """A size at which other operators compute the same, which random numbers show."""
    random = np.random.default_rng(0)
    given = [_random(value, random) for value in graph.inputs]
    at = specialize(general, [value.shape for value in graph.inputs])
    for one, other in zip(Model(at).run(*given), Model(graph).run(*given)):
        is_real = one.dtype.kind not in "iub"
        one, other = (a.astype(np.float64) if is_real else a for a in (one, other))
        same = partial(np.allclose, rtol=1e-4, atol=1e-5, equal_nan=True)
        if not (same if is_real else np.array_equal)(one, other):
            names = [{op.name for op in g.ops} for g in (at, graph)]
            told = ", ".join(sorted(names[0] ^ names[1])) or "sizes"
            raise Unsupported(f"the graph is not the same at all sizes: it differs in {told}")


def _random(value: Value, random: np.random.Generator) -> Array:
    if value.dtype.is_float:
        return random.standard_normal(value.shape).astype(value.dtype.array)
    low, high = value.limits or value.dtype.range
    if value.quant is None and value.limits is None and value.dtype.bits > 16:
        low, high = 0, 1  # indices, of which these are in any table
    return random.integers(low, high + 1, value.shape).astype(value.dtype.array)


def _fitted(sizes: Sizes) -> list[Values]:
    """Sizes to fit to: the example's, others near it, and the ends of the range."""
    free = sizes.free.free
    found = [tuple(f.example for f in free), *_together([_near(f) for f in free])]
    if any(f.low > 2 for f in free):  # a range that somebody has stated
        found.append(tuple(f.low if f.low > 2 else f.example for f in free))
    high = tuple(f.high or f.example for f in free)
    shapes = sizes.free.shapes_at(high)
    if all(_count(shape) < _MOST for shape in shapes if shape is not None):
        found.append(high)
    return list(dict.fromkeys(found))


def _together(columns: Sequence[Sequence[int]]) -> list[Values]:
    """Rows of numbers, each free size's own in another order than those beside it."""
    most = max(map(len, columns))
    return [
        tuple(column[(row * (n + 1) + n) % len(column)] for n, column in enumerate(columns))
        for row in range(most)
    ]


def _near(size: torchapi.FreeSize) -> list[int]:
    """A few other values of a free size, of which windows with a stride leave over other parts."""
    high = size.high or 4 * size.example + 8
    wished = (1, 3, size.example + 1, 6, 2, -1)
    found = [size.example + more for more in wished]
    inside = [n for n in found if max(size.low, 2) <= n <= high]
    return inside[:_NEAR] or [size.example]


def _others(sizes: Sizes) -> list[Values]:
    """Sizes to check with that nothing was fitted to."""
    columns = [(3 * f.example // 2 + 2, 5 * f.example // 4 + 5) for f in sizes.free.free]
    inside = [[min(f.high or n, n) for n in own] for f, own in zip(sizes.free.free, columns)]
    return _together(inside)


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
