"""Turns slice writes into concatenations: a value that is written to part by part is its parts.

``boxes[..., :2] = a; boxes[..., 2:] = b`` changes one value twice. Each part of it has a range of
its own, and what is overwritten, such as zeros, none that counts; the parts of a concatenation
are quantized each by itself, and what reads a part reads where it comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.passes.engine import Call, Replacement, graph_pass, node_pass, replace
from tosaic.passes.match import name_of

aten = torch.ops.aten
_LONGEST = 4096  # rows of a value that is followed row by row
_MOST = 16  # parts that one concatenation has
_WRITES = ("aten.slice_scatter.default", "aten.select_scatter.default")


@dataclass(frozen=True, slots=True)
class _Row:
    """One of a value's slices along an axis: that of a source, or all of one without this axis."""

    source: fx.Node
    index: int | None


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where the slices of a value along an axis come from."""

    axis: int
    rows: list[_Row]


@node_pass("aten.copy.default")
def drop_overwritten(node: fx.Node) -> Replacement:
    """Let a whole write be what is written, in the shape of what was there, which nothing reads."""
    bound = torchapi.bound_arguments(node)
    shape, given = torchapi.known_shape(node.meta["val"]), bound["src"].meta["val"]
    if shape is None or given.dtype != node.meta["val"].dtype:
        return None
    return Call(aten.expand.default, (bound["src"], list(shape)))


@graph_pass
def functionalize_slices(module: fx.GraphModule) -> bool:
    """The program without writes to parts of what it computes itself."""
    known: dict[fx.Node, _Rows] = {}
    for node in list(module.graph.nodes):
        name = name_of(node)
        if name in _WRITES:
            _write(node, known)
        elif name in ("aten.slice.Tensor", "aten.select.int") and known:
            _read(node, known)
    return bool(known)


def _write(node: fx.Node, known: dict[fx.Node, _Rows]) -> None:
    """Make a concatenation of a write to a part, where its parts are few."""
    bound = torchapi.bound_arguments(node)
    base, shape = bound["self"], torchapi.known_shape(node.meta["val"])
    if shape is None or base.op != "call_function":
        return  # what is given or kept has parameters of its own
    axis = bound["dim"] % len(shape)
    places = _places(bound, shape[axis])
    source = _copied(bound["src"])
    if source is None or shape[axis] > _LONGEST:
        return
    rows = _rows(base, axis, shape[axis], known)
    if "index" in bound:
        rows[places[0]] = _Row(source, None)
    else:
        for place, row in zip(places, _rows(source, axis, len(places), known), strict=True):
            rows[place] = row
    parts = _parts(rows)
    if len(parts) <= _MOST:
        with node.graph.inserting_before(node):
            given = [_part(node, axis, part) for part in parts]
        replace(node, Call(aten.cat.default, (given, axis)))
        known[node] = _Rows(axis, rows)


def _read(node: fx.Node, known: dict[fx.Node, _Rows]) -> None:
    """Let a call read a part where it comes from."""
    bound = torchapi.bound_arguments(node)
    found = known.get(bound["self"])
    if found is None or found.axis != bound["dim"] % bound["self"].meta["val"].dim():
        return
    read = [found.rows[place] for place in _places(bound, len(found.rows))]
    if not read:
        return
    source, index = read[0].source, read[0].index
    if index is None:
        if "index" in bound:
            node.replace_all_uses_with(source, lambda user: user.op != "output")
    elif "index" in bound:
        node.args = (source, found.axis, index)
    elif (step := _step(read)) is not None:
        node.args = (source, found.axis, index, index + (len(read) - 1) * step + 1, step)


def _places(bound: dict[str, Any], size: int) -> Sequence[int]:
    """The places along an axis that a call reads or writes."""
    if "index" in bound:
        return [bound["index"] % size]
    return range(*slice(bound["start"], bound["end"], bound["step"]).indices(size))


def _copied(value: Any) -> fx.Node | None:
    """What is written, without the copy to the type and shape of what was there before."""
    while isinstance(value, fx.Node) and torchapi.target_name(value) == "aten.copy.default":
        bound = torchapi.bound_arguments(value)
        source, old = bound["src"], bound["self"].meta["val"]
        given = source.meta["val"]
        if given.dtype != old.dtype:
            break
        if given.shape != old.shape:
            replace(value, Call(aten.expand.default, (source, list(old.shape))))
            break
        value = source
    return value if isinstance(value, fx.Node) else None


def _rows(value: fx.Node, axis: int, size: int, known: dict[fx.Node, _Rows]) -> list[_Row]:
    found = known.get(value)
    if found is not None and found.axis == axis:
        return list(found.rows)
    return [_Row(value, index) for index in range(size)]


def _parts(rows: Sequence[_Row]) -> list[list[_Row]]:
    """Rows that follow each other in one source, together."""
    parts: list[list[_Row]] = []
    for row in rows:
        last = parts[-1][-1] if parts else None
        follows = last is not None and row.source is last.source and None not in (
            row.index, last.index
        )  # fmt: skip
        if follows and last is not None and row.index == (last.index or 0) + 1:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def _step(rows: Sequence[_Row]) -> int | None:
    """The step between rows of one source, if it is one throughout."""
    places = [row.index for row in rows if row.index is not None]
    if len(places) < len(rows) or any(row.source is not rows[0].source for row in rows):
        return None
    steps = {after - before for before, after in pairwise(places)} or {1}
    return steps.pop() if len(steps) == 1 and min(steps) > 0 else None


def _part(node: fx.Node, axis: int, part: Sequence[_Row]) -> fx.Node:
    """Rows of one source as a value of their own."""
    source, index = part[0].source, part[0].index
    if index is None:
        return torchapi.new_call(node, aten.unsqueeze.default, (source, axis))
    if len(part) == source.meta["val"].shape[axis]:
        return source
    return torchapi.new_call(node, aten.slice.Tensor, (source, axis, index, index + len(part)))
