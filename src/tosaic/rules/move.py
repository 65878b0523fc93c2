"""Concatenation, slicing and reordering."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, shared
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives import data_movement as moves
from tosaic.lowering.builder import Lowering
from tosaic.rules._operands import converted
from tosaic.rules.shape import meta_result


@shared(
    "aten.cat.default",
    samples=[
        Sample(((2, 3, 4), (2, 5, 4)), (1,)),
        Sample(((2, 3), (4, 3), (1, 3))),
        Sample(((1, 2, 3, 3), (1, 4, 3, 3)), (-3,)),
    ],
)
def cat(b: Lowering, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Operands with other parameters than the result are rescaled, each on its own."""
    parts = [t for t in tensors if t.shape != (0,)]  # PyTorch passes these over, in any rank
    if any(p.quant != parts[0].quant or p.dtype is not parts[0].dtype for p in parts):
        if b.wanted is None:
            raise Unsupported("the operands have different scales, and the result is not quantized")
        parts = [b.requantize(p, *b.wanted) for p in parts]
    return moves.joined(b, parts, dim % parts[0].type.rank)


@shared(
    "aten.stack.default",
    samples=[Sample(((2, 3), (2, 3)), (1,)), Sample(((2, 3), (2, 3), (2, 3)), (-1,))],
)
def stack(b: Lowering, tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = dim % (tensors[0].type.rank + 1)
    shape = tensors[0].shape
    return cat(b, [b.reshape(t, (*shape[:axis], 1, *shape[axis:])) for t in tensors], axis)


@shared("aten.hstack.default", samples=[Sample(((3,), (4,))), Sample(((2, 3), (2, 1)))])
def hstack(b: Lowering, tensors: Sequence[Value]) -> Value:
    parts = [b.reshape(t, t.shape or (1,)) for t in tensors]
    return cat(b, parts, 0 if parts[0].type.rank == 1 else 1)


@shared("aten.vstack.default", samples=[Sample(((3,), (3,))), Sample(((2, 3), (1, 3)))])
def vstack(b: Lowering, tensors: Sequence[Value]) -> Value:
    return cat(b, [b.reshape(t, (1,) * (2 - t.type.rank) + t.shape) for t in tensors], 0)


def _parts(name: str, b: Lowering, self: Value, dim: int = 0, **arguments: Any) -> list[Value]:
    """Parts along an axis, as long as those that PyTorch makes."""
    made = meta_result(name, self.shape, {**arguments, "dim": dim})
    ends, axis = accumulate(part.shape[dim] for part in made), dim % self.type.rank
    return [moves.piece(b, self, axis, e - part.shape[dim], e) for e, part in zip(ends, made)]


_CHUNKS = [Sample(((6, 4),), (2,)), Sample(((2, 7, 3),), (3, 1)), Sample(((2, 8),), (4, -1))]
for _name, _samples in {
    "split_with_sizes.default": [Sample(((6, 4),), ([1, 2, 3],)),
                                 Sample(((2, 3, 5),), ([4, 1], -1))],
    "split.Tensor": _CHUNKS,
    "chunk.default": [*_CHUNKS[:2], Sample(((2, 8),), (2, -1))],
    "tensor_split.sections": [Sample(((7, 4),), (3,)), Sample(((2, 8),), (2, -1))],
}.items():  # fmt: skip
    shared(f"aten.{_name}", samples=_samples)(partial(_parts, _name))


@shared("aten.unbind.int", samples=[Sample(((3, 4),)), Sample(((2, 5, 3),), (-1,))])
def unbind(b: Lowering, self: Value, dim: int = 0) -> list[Value]:
    return [select(b, self, dim, index) for index in range(self.shape[dim])]


@shared("aten.select.int", samples=[Sample(((3, 4),), (0, 1)), Sample(((2, 5, 3),), (-2, -1))])
def select(b: Lowering, self: Value, dim: int, index: int) -> Value:
    axis, at = dim % self.type.rank, index % self.shape[dim]
    one = moves.piece(b, self, axis, at, at + 1)
    return b.reshape(one, (*self.shape[:axis], *self.shape[axis + 1 :]))


@shared(
    "aten.slice.Tensor",
    samples=[
        Sample(((6, 4),), (0, 1, 4)),
        Sample(((2, 9, 3),), (1, -4, 2**63 - 1)),
        Sample(((2, 9, 3),), (-2, 1, None, 2)),
        Sample(((1, 2, 7, 8),), (3, None, None, 3)),
        Sample(((1, 2, 7, 8),), (2, -100, 100, 2)),
    ],
)
def slice_tensor(
    b: Lowering, self: Value, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Value:  # fmt: skip
    indices = range(*slice(start, end, step).indices(self.shape[dim]))
    return moves.take(b, self, dim % self.type.rank, indices)


@shared(
    "aten.slice_scatter.default",
    samples=[
        Sample(((6, 4), (3, 4)), (0, 1, 4)),
        Sample(((2, 9), (2, 4)), (1, -4, 2**63 - 1)),
        Sample(((2, 3), (2, 3)), (-1,)),
        Sample(((2, 9), (2, 4)), (1, 1, 8, 2)),
        Sample(((20, 3), (7, 3)), (0, 0, None, 3)),
    ],
)
def slice_scatter(
    b: Lowering, self: Value, src: Value, dim: int = 0, start: int | None = None,
    end: int | None = None, step: int = 1,
) -> Value:  # fmt: skip
    """What is before, the new part, and what is behind; with a step, one from each in turns."""
    axis, size = dim % self.type.rank, self.shape[dim]
    src = src if src.quant is not None else converted(b, src, self.dtype)
    begin, stop, _ = slice(start, end, step).indices(size)
    if step != 1:
        sources = list(range(size))
        sources[begin:stop:step] = range(size, size + len(sources[begin:stop:step]))
        return moves.take(b, cat(b, [self, src], axis), axis, sources)
    parts = [moves.piece(b, self, axis, 0, begin)] if begin else []
    parts += [src] if stop > begin else []
    parts += [moves.piece(b, self, axis, max(stop, begin), size)] if stop < size else []
    return cat(b, parts, axis)


@shared(
    "aten.select_scatter.default",
    samples=[Sample(((3, 4), (4,)), (0, 1)), Sample(((2, 5, 3), (2, 3)), (1, -1))],
)
def select_scatter(b: Lowering, self: Value, src: Value, dim: int, index: int) -> Value:
    axis, at = dim % self.type.rank, index % self.shape[dim]
    one = b.reshape(src, (*self.shape[:axis], 1, *self.shape[axis + 1 :]))
    return slice_scatter(b, self, one, axis, at, at + 1)


@shared(
    "aten.narrow.default",
    samples=[Sample(((6, 4),), (0, 1, 4)), Sample(((2, 9, 3),), (-2, -4, 3))],
)
def narrow(b: Lowering, self: Value, dim: int, start: int, length: int) -> Value:
    begin = start % self.shape[dim]
    return moves.piece(b, self, dim % self.type.rank, begin, begin + length)


@shared("aten.flip.default", samples=[Sample(((3, 4),), ([0],)), Sample(((2, 3, 4),), ([-1, 1],))])
def flip(b: Lowering, self: Value, dims: Sequence[int]) -> Value:
    for axis in dims:
        self = moves.backwards(b, self, axis % self.type.rank)
    return self


shared("aten.fliplr.default", samples=[Sample(((3, 4),)), Sample(((2, 3, 4),))])(
    partial(flip, dims=[1])
)
shared("aten.flipud.default", samples=[Sample(((5,),)), Sample(((2, 3, 4),))])(
    partial(flip, dims=[0])
)


@shared(
    "aten.rot90.default",
    samples=[Sample(((3, 4),)), Sample(((2, 3, 4),), (-1, [1, 2])), Sample(((3, 4),), (2,))],
)
def rot90(b: Lowering, self: Value, k: int = 1, dims: Sequence[int] = (0, 1)) -> Value:
    first, second = (axis % self.type.rank for axis in dims)
    if k % 4 == 2:
        return flip(b, self, [first, second])
    order = list(range(self.type.rank))
    order[first], order[second] = second, first
    if k % 4 == 1:
        return b.permute(flip(b, self, [second]), order)
    return self if k % 4 == 0 else flip(b, b.permute(self, order), [second])


@shared(
    "aten.roll.default",
    samples=[
        Sample(((5, 4),), ([2], [0])),
        Sample(((3, 4),), ([-5],)),
        Sample(((2, 5, 6),), ([-1, 8], [1, -1])),
    ],
)
def roll(b: Lowering, self: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    x = self if dims else b.reshape(self, (self.type.size,))
    for shift, dim in zip(shifts, dims or [0]):
        size = x.shape[dim]
        x = moves.take(b, x, dim % x.type.rank, [(i - shift) % size for i in range(size)])
    return b.reshape(x, self.shape)
