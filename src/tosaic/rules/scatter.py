"""Scatter: elements written at indices, one by one, by row, or by several indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule, shared
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives import data_movement as moves
from tosaic.lowering.alternatives.mask import is_mask
from tosaic.lowering.builder import Lowering
from tosaic.rules._indices import countable, wrapped
from tosaic.rules._operands import Operand
from tosaic.rules._writes import added, filled, written
from tosaic.rules.compare import where
from tosaic.rules.index import axes_and_places, cropped, lines, picks, unlined

Write = Callable[[Value, Value], Value]  # rows [N, K, 1] and indices [N, W] to new rows


def _along(b: Lowering, self: Value, dim: int, index: Value, write: Write) -> Value:
    """Lines along an axis, of which the index may reach only some."""
    if not self.type.rank:
        return b.reshape(_along(b, b.reshape(self, (1,)), 0, b.reshape(index, (1,)), write), ())
    axis, shape = dim % self.type.rank, index.shape
    if 0 in shape:
        return self
    part = cropped(b, self, shape, axis)
    rows = lines(b, part, axis)
    made = write(b.reshape(rows, (*rows.shape, 1)), lines(b, countable(b, index), axis))
    return _put_back(b, self, unlined(b, made, part.shape, axis))


def _put_back(b: Lowering, whole: Value, part: Value) -> Value:
    """A part that begins where the whole does, in its place there."""
    for axis, size in enumerate(part.shape):
        if size < whole.shape[axis]:
            rest = moves.piece(b, whole, axis, size, whole.shape[axis])
            part = _put_back(b, moves.piece(b, whole, axis, 0, size), part)
            if part.quant is not None and part.quant != rest.quant:
                rest = b.requantize(rest, part.quant, part.dtype)
            return moves.joined(b, [part, rest], axis)
    return part


def _new_lines(b: Lowering, src: Value, index: Value, dim: int) -> Value:
    """As many elements of a source as there are indices, as [N, W, 1]."""
    if not src.type.rank:
        return b.reshape(src, (1, 1, 1))
    found = lines(b, cropped(b, src, index.shape, -1), dim % src.type.rank)
    return b.reshape(found, (*found.shape, 1))


@shared(
    "aten.scatter.src",
    samples=[
        Sample(((3, 6), (3, 4), (3, 4)), (1,), kinds=("", "distinct:6")),
        Sample(((2, 5, 4), (2, 5, 3), (2, 5, 4)), (-1,), kinds=("", "distinct:4")),
        Sample(((3, 4, 6), (2, 3, 4), (3, 4, 5)), (2,), kinds=("", "distinct:6")),
        Sample(((2, 4), (2, 3)), (1, torch.tensor([[3, 0, 1], [2, 1, 0]]))),
    ],
)
def scatter(b: Lowering, self: Value, dim: int, index: Value, src: Value) -> Value:
    new = _new_lines(b, src, index, dim)
    return _along(b, self, dim, index, lambda rows, which: written(b, rows, which, new))


@rule(
    "aten.scatter.value",
    samples=[
        Sample(((3, 6), (3, 4)), (1, 2.5), kinds=("", "index:6")),
        Sample(((4, 2, 3), (2, 2, 2)), (0, -1), kinds=("", "index:4")),
        Sample(((2, 4),), (1, torch.tensor([[3, 3], [2, 1]]), 0.5)),
    ],
)
def scatter_value(b: Lowering, self: Value, dim: int, index: Value, value: float) -> Value:
    return _along(b, self, dim, index, lambda rows, which: filled(b, rows, which, value))


@rule(
    "aten.scatter_add.default",
    samples=[
        Sample(((3, 6), (3, 4), (3, 4)), (1,), kinds=("", "index:6")),
        Sample(((2, 3, 4), (2, 5, 3), (2, 5, 4)), (1,), kinds=("", "index:3")),
        Sample(((2, 4), (2, 3)), (1, torch.tensor([[3, 3, 1], [2, 1, 2]]))),
    ],
)
def scatter_add(b: Lowering, self: Value, dim: int, index: Value, src: Value) -> Value:
    new = _new_lines(b, src, index, dim)
    return _along(b, self, dim, index, lambda rows, which: added(b, rows, which, new))


@rule(
    "aten.scatter_reduce.two",
    samples=[Sample(((3, 6), (3, 4), (3, 4)), (1, "sum"), kinds=("", "index:6"))],
)
def scatter_reduce(
    b: Lowering, self: Value, dim: int, index: Value, src: Value, reduce: str,
    include_self: bool = True,
) -> Value:  # fmt: skip
    if reduce != "sum" or not include_self:
        raise Unsupported(f"scatter_reduce with {reduce = }, {include_self = } is not lowered")
    return scatter_add(b, self, dim, index, src)


def _rows(b: Lowering, x: Value, axis: int) -> Value:
    """[..., axis, ...] as [N, K, C]."""
    shape = x.shape
    return b.reshape(x, (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])))


def _for_each(b: Lowering, index: Value, batch: int) -> Value:
    """One list of indices for all of N."""
    which = b.reshape(countable(b, index), (1, index.type.size))
    return moves.tiled(b, which, (batch, 1))


@shared(
    "aten.index_copy.default",
    samples=[
        Sample(((5, 4), (2,), (2, 4)), (0,), kinds=("", "distinct:5")),
        Sample(((2, 6, 3), (1,), (2, 1, 3)), (1,), kinds=("", "index:6")),
        Sample(((2, 6), (2, 3)), (-1, torch.tensor([4, 0, 1]))),
    ],
)
def index_copy(b: Lowering, self: Value, dim: int, index: Value, source: Value) -> Value:
    axis = dim % self.type.rank
    rows, new = _rows(b, self, axis), _rows(b, source, axis)
    return b.reshape(written(b, rows, _for_each(b, index, rows.shape[0]), new), self.shape)


@rule(
    "aten.index_add.default",
    samples=[
        Sample(((5, 4), (7,), (7, 4)), (0,), kinds=("", "index:5")),
        Sample(((2, 6, 3), (4,), (2, 4, 3)), (1,), (("alpha", 0.5),), kinds=("", "index:6")),
        Sample(((2, 6), (2, 3)), (-1, torch.tensor([4, 4, 1]))),
    ],
)
def index_add(
    b: Lowering, self: Value, dim: int, index: Value, source: Value, alpha: float = 1
) -> Value:
    axis = dim % self.type.rank
    rows, new = _rows(b, self, axis), _rows(b, source, axis)
    return b.reshape(added(b, rows, _for_each(b, index, rows.shape[0]), new, alpha), self.shape)


@rule(
    "aten.index_fill.int_Scalar",
    samples=[
        Sample(((5, 4), (3,)), (0, 1.5), kinds=("", "signed:5")),
        Sample(((2, 6),), (-1, torch.tensor([4, 0, -1]), -2)),
    ],
)
def index_fill(b: Lowering, self: Value, dim: int, index: Value, value: Operand) -> Value:
    axis = dim % self.type.rank
    rows, which = _rows(b, self, axis), wrapped(b, index, self.shape[axis])
    return b.reshape(filled(b, rows, _for_each(b, which, rows.shape[0]), value), self.shape)


rule(
    "aten.index_fill.int_Tensor",
    samples=[Sample(((5, 4), (3,), ()), (0,), kinds=("", "index:5"))],
)(index_fill)


_PUT = [
    Sample(((5, 4), (2,), (2, 4)), ([...],), kinds=("", "distinct:5")),
    Sample(((2, 6, 3), (1,), (2, 1, 3)), ([None, ...],), kinds=("", "signed:6")),
    Sample(((4, 5, 3), (3,), (3,)), ([..., torch.tensor([2, -1, 0])],), kinds=("", "distinct:4")),
    Sample(((4, 5, 3), (2,), (2, 5)), ([..., None, torch.tensor([0, 2])],),
           kinds=("", "distinct:4")),
    Sample(((2, 4, 5), (2, 1)), ([None, torch.tensor([3, 0]), torch.tensor([1, -1])],)),
    Sample(((4, 5), (8,)), ([torch.arange(20).reshape(4, 5) % 5 > 2],)),
    Sample(((4, 5), (3,), ()), ([...],), kinds=("", "index:4")),
    Sample(((4, 5), (4, 5), ()), ([...],), kinds=("", "bool")),
    Sample(((4, 5), (4,), (1,)), ([...],), kinds=("", "bool")),
    Sample(((5, 4), (3,), (3, 4)), ([...], True), kinds=("", "index:5")),
    Sample(((4, 5), (4,), (4,)), ([torch.tensor([1, 0, 1, 3]), ...], True), kinds=("", "signed:5")),
]  # fmt: skip


@shared("aten.index_put.default", samples=_PUT)
def index_put(
    b: Lowering, self: Value, indices: Sequence[Value | None], values: Value,
    accumulate: bool = False,
) -> Value:  # fmt: skip
    masks = [i for i in indices if i is not None and is_mask(i) and not i.is_const]
    if masks and len(indices) == 1 and values.type.size == 1 and not accumulate:
        return _put_by_mask(b, self, masks[0], values)
    axes, places = axes_and_places(b, self, indices)
    p = picks(b, self, axes, places)
    index = _for_each(b, p.which, p.rows.shape[0])
    if values.type.size == 1 and not accumulate:
        made = filled(b, p.rows, index, b.reshape(values, ()))
    else:
        new = moves.expanded(b, values, (*p.before, *p.which.shape, *p.after))
        new = b.reshape(new, (p.rows.shape[0], p.which.type.size, p.rows.shape[2]))
        made = (added if accumulate else written)(b, p.rows, index, new)
    order = [*axes, *(i for i in range(self.type.rank) if i not in axes)]
    apart = b.reshape(made, p.x.shape)
    back = sorted(range(len(order)), key=order.__getitem__)
    return apart if p.x is self else b.permute(apart, back)


def _put_by_mask(b: Lowering, self: Value, mask: Value, values: Value) -> Value:
    """One number wherever a mask of the first axes says so."""
    wide = b.reshape(mask, (*mask.shape, *(1,) * (self.type.rank - mask.type.rank)))
    return where(b, wide, b.reshape(values, ()), self)
