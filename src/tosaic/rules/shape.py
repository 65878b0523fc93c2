"""Operators that change a shape: elements keep their order, change it by axes, or repeat."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tosaic.front.registry import Sample, shared
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives import data_movement as moves
from tosaic.lowering.builder import Lowering


@shared(
    "aten.view.default",
    "aten.reshape.default",
    samples=[
        Sample(((2, 3, 4),), ([6, 4],)),
        Sample(((2, 3, 4),), ([2, -1],)),
        Sample(((2, 6, 2, 2),), ([-1],)),
    ],
)
def view(
    b: Lowering, self: Value, size: Sequence[int] | None = None, shape: Sequence[int] | None = None
) -> Value:
    sizes = list(size if size is not None else shape or ())
    known = math.prod(s for s in sizes if s != -1)
    return b.reshape(self, [self.type.size // known if s == -1 else s for s in sizes])


@shared("aten._reshape_alias.default")
def reshape_alias(b: Lowering, self: Value, size: Sequence[int], stride: Sequence[int]) -> Value:
    return b.reshape(self, size)


@shared(
    "aten.view_as.default",
    "aten.reshape_as.default",
    samples=[Sample(((2, 3, 4), (4, 6))), Sample(((6, 4), (1, 2, 12)))],
)
def view_as(b: Lowering, self: Value, other: Value) -> Value:
    return b.reshape(self, other.shape)


@shared(
    "aten.flatten.using_ints",
    samples=[
        Sample(((2, 3, 4),), (1,)),
        Sample(((2, 3, 4),)),
        Sample(((2, 3, 4, 2),), (1, -2)),
    ],
)
def flatten(b: Lowering, self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    rank = max(self.type.rank, 1)
    start, end = start_dim % rank, end_dim % rank
    middle = math.prod(self.shape[start : end + 1])
    return b.reshape(self, (*self.shape[:start], middle, *self.shape[end + 1 :]))


@shared("aten.ravel.default", samples=[Sample(((2, 3, 4),)), Sample(((5,),))])
def ravel(b: Lowering, self: Value) -> Value:
    return b.reshape(self, (self.type.size,))


@shared(
    "aten.unflatten.int",
    samples=[Sample(((2, 12, 3),), (1, [3, 4])), Sample(((2, 12),), (-1, [2, -1, 3]))],
)
def unflatten(b: Lowering, self: Value, dim: int, sizes: Sequence[int]) -> Value:
    axis = dim % self.type.rank
    known = math.prod(s for s in sizes if s != -1)
    split = [self.shape[axis] // known if s == -1 else s for s in sizes]
    return b.reshape(self, (*self.shape[:axis], *split, *self.shape[axis + 1 :]))


@shared("aten.squeeze.default", samples=[Sample(((1, 3, 1, 4),)), Sample(((2, 3),))])
def squeeze(b: Lowering, self: Value) -> Value:
    return b.reshape(self, [s for s in self.shape if s != 1])


@shared(
    "aten.squeeze.dim",
    samples=[Sample(((1, 3, 1, 4),), (2,)), Sample(((3, 1),), (-1,)), Sample(((3, 2),), (1,))],
)
def squeeze_dim(b: Lowering, self: Value, dim: int) -> Value:
    return squeeze_dims(b, self, [dim])


@shared(
    "aten.squeeze.dims",
    samples=[Sample(((1, 3, 1, 4),), ([0, -2],)), Sample(((1, 3, 1, 4),), ([1, 2],))],
)
def squeeze_dims(b: Lowering, self: Value, dim: Sequence[int]) -> Value:
    axes = {axis % max(self.type.rank, 1) for axis in dim}
    return b.reshape(self, [s for i, s in enumerate(self.shape) if s != 1 or i not in axes])


@shared(
    "aten.unsqueeze.default",
    samples=[Sample(((3, 4),), (1,)), Sample(((3, 4),), (-1,)), Sample(((3, 4),), (0,))],
)
def unsqueeze(b: Lowering, self: Value, dim: int) -> Value:
    axis = dim % (self.type.rank + 1)
    return b.reshape(self, (*self.shape[:axis], 1, *self.shape[axis:]))


@shared(
    "aten.permute.default",
    samples=[
        Sample(((2, 3, 4),), ([2, 0, 1],)),
        Sample(((2, 3),), ([-1, 0],)),
        Sample(((1, 2, 3, 2, 4),), ([0, 3, 1, -1, 2],)),
    ],
)
def permute(b: Lowering, self: Value, dims: Sequence[int]) -> Value:
    return b.permute(self, [axis % self.type.rank for axis in dims])


@shared("aten.transpose.int", samples=[Sample(((2, 3, 4),), (1, 2)), Sample(((2, 3, 4),), (-1, 0))])
def transpose(b: Lowering, self: Value, dim0: int, dim1: int) -> Value:
    order = list(range(self.type.rank))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return b.permute(self, order)


@shared("aten.t.default", "aten.numpy_T.default", samples=[Sample(((3, 4),)), Sample(((5,),))])
def t(b: Lowering, self: Value) -> Value:
    return b.permute(self, range(self.type.rank)[::-1])


@shared("aten.mT.default", samples=[Sample(((3, 4),)), Sample(((2, 3, 4),))])
def matrix_transpose(b: Lowering, self: Value) -> Value:
    return transpose(b, self, -1, -2)


@shared(
    "aten.movedim.int",
    samples=[Sample(((2, 3, 4),), (0, -1)), Sample(((2, 3, 4, 2),), (3, 1))],
)
def movedim(b: Lowering, self: Value, source: int, destination: int) -> Value:
    return movedims(b, self, [source], [destination])


@shared(
    "aten.movedim.intlist",
    samples=[
        Sample(((2, 3, 4),), ([0, 1], [-1, 0])),
        Sample(((2, 3, 4, 2),), ([3, -3], [0, 2])),
    ],
)
def movedims(b: Lowering, self: Value, source: Sequence[int], destination: Sequence[int]) -> Value:
    rank = self.type.rank
    places = dict(zip((n % rank for n in destination), (n % rank for n in source)))
    rest = iter([axis for axis in range(rank) if axis not in places.values()])
    return b.permute(self, [places[i] if i in places else next(rest) for i in range(rank)])


@shared(
    "aten.expand.default",
    samples=[
        Sample(((3, 1),), ([3, 4],)),
        Sample(((1, 3, 1),), ([2, -1, 4],)),
        Sample(((3, 1),), ([2, 3, 2],)),
    ],
)
def expand(b: Lowering, self: Value, size: Sequence[int], implicit: bool = False) -> Value:
    return moves.expanded(b, self, size)


shared(
    "aten.broadcast_to.default",
    samples=[Sample(((3, 1),), ([2, 3, 4],)), Sample(((4,),), ([3, 4],))],
)(expand)


@shared("aten.expand_as.default", samples=[Sample(((3, 1), (2, 3, 4)))])
def expand_as(b: Lowering, self: Value, other: Value) -> Value:
    return moves.expanded(b, self, other.shape)


@shared(
    "aten.repeat.default", samples=[Sample(((2, 3),), ([2, 2],)), Sample(((3,),), ([4, 2, 1],))]
)
def repeat(b: Lowering, self: Value, repeats: Sequence[int]) -> Value:
    extra = len(repeats) - self.type.rank
    return moves.tiled(b, b.reshape(self, (1,) * extra + self.shape), repeats)


@shared("aten.tile.default", samples=[Sample(((2, 3),), ([2, 2],)), Sample(((2, 3, 2),), ([3],))])
def tile(b: Lowering, self: Value, dims: Sequence[int]) -> Value:
    return repeat(b, self, (*(1,) * (self.type.rank - len(dims)), *dims))


@shared(
    "aten.repeat_interleave.self_int",
    samples=[Sample(((2, 3),), (2,)), Sample(((2, 3, 4),), (3, 1)), Sample(((2, 3),), (2, -1))],
)
def repeat_interleave(
    b: Lowering, self: Value, repeats: int, dim: int | None = None, output_size: int | None = None
) -> Value:
    """Each element along an axis several times: a new axis behind it, repeated."""
    x = b.reshape(self, (self.type.size,)) if dim is None else self
    axis = (dim or 0) % max(x.type.rank, 1)
    before, after = x.shape[: axis + 1], x.shape[axis + 1 :]
    if x.type.rank + 1 > b.env.level.max_rank:
        before, after = (math.prod(before),), (math.prod(after),)
    apart = b.reshape(x, (*before, 1, *after))
    multiples = [1] * len(before) + [repeats] + [1] * len(after)
    shape = [s * repeats if i == axis else s for i, s in enumerate(x.shape)]
    return b.reshape(moves.tiled(b, apart, multiples), shape)
