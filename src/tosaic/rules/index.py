"""Indexing: constant indices by SLICE and CONCAT, computed ones by GATHER."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, shared
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives import data_movement as moves
from tosaic.lowering.alternatives.mask import is_mask
from tosaic.lowering.builder import Lowering
from tosaic.rules._indices import countable, flat_index, known, pick, rows_at, wrapped
from tosaic.spec import dtypes as d

_COMPUTED_MASK = (
    "how many elements a computed mask picks is known only when it runs: use where or masked_fill"
)


@shared(
    "aten.index_select.default",
    samples=[
        Sample(((5, 4),), (0, torch.tensor([4, 0, 0, 2]))),
        Sample(((2, 7, 3),), (1, torch.tensor([6, 5, 4, 0, 2, 4, 6, 3, 3]))),
        Sample(((2, 30, 3),), (-2, torch.arange(40) * 7 % 30)),
        Sample(((2, 30),), (1, torch.arange(80) * 11 * 7 % 29)),
        Sample(((6, 4), (3,)), (0,), kinds=("", "index:6")),
        Sample(((2, 3, 8), (5,)), (-1,), kinds=("", "index:8")),
    ],
)
def index_select(b: Lowering, self: Value, dim: int, index: Value) -> Value:
    return pick(b, self, dim % self.type.rank, index) if self.type.rank else self


@shared(
    "aten.embedding.default",
    samples=[
        Sample(((10, 6), (2, 5)), kinds=("", "index:10")),
        Sample(((10, 6), (4,)), (3,), kinds=("", "index:10")),
        Sample(((10, 6),), (torch.tensor([[9, 0, 1, 2], [2, 3, 3, 7]]),)),
    ],
)
def embedding(
    b: Lowering, weight: Value, indices: Value, padding_idx: int = -1,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Value:  # fmt: skip
    """The row of padding is a row like others: it matters to training alone."""
    found = pick(b, weight, 0, indices)
    return b.reshape(found, (*indices.shape, *weight.shape[1:]))


def _places(b: Lowering, index: Value) -> list[Value]:
    """An index as indices for each axis that it stands for: a mask is one for several."""
    if not is_mask(index):
        return [index]
    mask = known(index)
    if mask is None:
        raise Unsupported(_COMPUTED_MASK)
    return [b.const(axis, d.I32) for axis in np.nonzero(mask)]


def axes_and_places(
    b: Lowering, x: Value, indices: Sequence[Value | None]
) -> tuple[list[int], list[Value]]:
    """The axes that a list of indices names, and an index of integers for each."""
    axes: list[int] = []
    places: list[Value] = []
    axis = 0
    for index in indices:
        found = [None] if index is None else _places(b, index)
        axes += [axis + i for i, place in enumerate(found) if place is not None]
        places += [place for place in found if place is not None]
        axis += len(found)
    return axes, places


@dataclass(frozen=True, slots=True)
class Picks:
    """Rows [N, K, C] of axes taken together, the index of each pick, and the shapes about K."""

    x: Value  # with these axes side by side, in their order: at the front if they were apart
    rows: Value
    which: Value
    before: tuple[int, ...]
    after: tuple[int, ...]


def picks(b: Lowering, x: Value, axes: Sequence[int], places: Sequence[Value]) -> Picks:
    """Rows and indices of several axes as those of one."""
    at = axes[0]
    if list(axes) != list(range(at, at + len(axes))):
        x, at = b.permute(x, [*axes, *(i for i in range(x.type.rank) if i not in axes)]), 0
    sizes, before, after = x.shape[at : at + len(axes)], x.shape[:at], x.shape[at + len(axes) :]
    which = flat_index(b, places, sizes)
    rows = b.reshape(x, (math.prod(before), math.prod(sizes), math.prod(after)))
    return Picks(x, rows, which, before, after)


_INDEX = [
    Sample(((5, 4), (3,)), ([...],), kinds=("", "signed:5")),
    Sample(((2, 6, 3), (2, 2)), ([None, ...],), kinds=("", "index:6")),
    Sample(((4, 5, 3), (3, 1), (4,)), ([..., ...],), kinds=("", "signed:4", "index:5")),
    Sample(((4, 5, 3), (2,), (2,)), ([..., None, ...],), kinds=("", "index:4", "signed:3")),
    Sample(((2, 4, 5), (3,), (3,)), ([None, ..., ...],), kinds=("", "index:4", "index:5")),
    Sample(((4, 5, 3), (2,)), ([..., None, torch.tensor([2, -1])],), kinds=("", "index:4")),
    Sample(((5, 4),), ([torch.tensor([3, -1, 0, 0])],)),
    Sample(((2, 6, 3),), ([None, torch.tensor([[1, 2], [-1, 0]])],)),
    Sample(((4, 5),), ([torch.tensor([[0], [3], [1]]), torch.tensor([4, -2])],)),
    Sample(((4, 5),), ([torch.arange(20).reshape(4, 5) % 3 == 1],)),
    Sample(((2, 6),), ([None, torch.tensor([True, False, True, True, False, True])],)),
    Sample(((4, 5),), ([torch.tensor(2)],)),
]


@shared("aten.index.Tensor", samples=_INDEX)
def index_tensor(b: Lowering, self: Value, indices: Sequence[Value | None]) -> Value:
    """As numpy does it: axes that are apart leave their places to one in front of all others."""
    axes, places = axes_and_places(b, self, indices)
    if not axes:
        return self
    p = picks(b, self, axes, places)
    return b.reshape(pick(b, p.rows, 1, p.which), (*p.before, *p.which.shape, *p.after))


def cropped(b: Lowering, x: Value, shape: Sequence[int], axis: int) -> Value:
    """As many elements as a shape has, along all axes but one."""
    for i, size in enumerate(shape):
        x = x if i == axis else moves.piece(b, x, i, 0, size)
    return x


def lines(b: Lowering, x: Value, axis: int) -> Value:
    """[..., axis, ...] as [N, K]: a row for each line along the axis."""
    return b.reshape(b.axis_last(x, axis), (x.type.size // x.shape[axis], x.shape[axis]))


def unlined(b: Lowering, x: Value, shape: Sequence[int], axis: int) -> Value:
    """Rows of lines along an axis in a shape again."""
    return b.axis_back(b.reshape(x, (*shape[:axis], *shape[axis + 1 :], shape[axis])), axis)


_GATHER = [
    Sample(((3, 6), (3, 4)), (1,), kinds=("", "index:6")),
    Sample(((5, 3, 4), (2, 3, 2)), (0,), kinds=("", "index:5")),
    Sample(((2, 6, 4), (2, 3, 4)), (-2,), kinds=("", "index:6")),
    Sample(((2, 4),), (1, torch.tensor([[3, 0, 1], [2, 2, 0]]))),
    Sample(((2, 4, 3),), (1, torch.tensor([3, 0]).reshape(1, 2, 1).expand(2, 2, 3))),
]  # after expand, as for an index that is the same in every row


@shared("aten.gather.default", samples=_GATHER)
def gather(b: Lowering, self: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    """Along one axis, with indices of their own at each place of the others."""
    if not self.type.rank:
        return b.reshape(self, index.shape)
    axis, shape = dim % self.type.rank, index.shape
    x = cropped(b, self, shape, axis)
    numbers = known(index)
    if numbers is not None:
        line = np.moveaxis(numbers, axis, -1).reshape(-1, shape[axis])
        if (line == line[:1]).all():
            return moves.take(b, x, axis, [int(i) for i in line[0]])
    rows = lines(b, x, axis)
    found = rows_at(b, b.reshape(rows, (*rows.shape, 1)), lines(b, countable(b, index), axis))
    return unlined(b, found, shape, axis)


@shared(
    "aten.take_along_dim.default",
    samples=[
        Sample(((3, 6), (3, 4)), (1,), kinds=("", "index:6")),
        Sample(((2, 6, 3), (1, 4, 1)), (1,), kinds=("", "index:6")),
        Sample(((2, 3), (4,)), kinds=("", "index:6")),
    ],
)
def take_along_dim(b: Lowering, self: Value, indices: Value, dim: int | None = None) -> Value:
    if dim is None:
        flat = b.reshape(self, (self.type.size,))
        return pick(b, flat, 0, indices)
    axis = dim % self.type.rank
    both = np.broadcast_shapes(*(v.shape[:axis] + v.shape[axis + 1 :] for v in (self, indices)))
    x, which = (
        moves.expanded(b, v, (*both[:axis], v.shape[axis], *both[axis:]))
        for v in (self, countable(b, indices))
    )
    return gather(b, x, axis, which)


@shared(
    "aten.take.default",
    samples=[
        Sample(((3, 4), (2, 5)), kinds=("", "signed:12")),
        Sample(((3, 4),), (torch.tensor([[0, 1], [-1, 7]]),)),
    ],
)
def take(b: Lowering, self: Value, index: Value) -> Value:
    flat = b.reshape(self, (self.type.size,))
    return b.reshape(pick(b, flat, 0, wrapped(b, index, self.type.size)), index.shape)


@shared(
    "aten.repeat_interleave.self_Tensor",
    samples=[
        Sample(((3, 4),), (torch.tensor([2, 1, 3]), 0)),
        Sample(((2, 3),), (torch.tensor([2]),)),
    ],
)
def repeat_interleave(
    b: Lowering, self: Value, repeats: Value, dim: int | None = None, output_size: int | None = None
) -> Value:
    """Each element along an axis as often as a constant says."""
    counts = known(repeats)
    if counts is None:
        raise Unsupported("repeats must be constant: the size of the result follows from it")
    x = b.reshape(self, (self.type.size,)) if dim is None else self
    axis = (dim or 0) % max(x.type.rank, 1)
    places = np.repeat(np.arange(x.shape[axis]), counts.reshape(-1))
    return moves.take(b, x, axis, [int(i) for i in places])
