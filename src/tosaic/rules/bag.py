"""EmbeddingBag: rows by index, reduced for each bag."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.data_movement import joined, piece
from tosaic.lowering.builder import Lowering
from tosaic.rules._indices import known
from tosaic.rules.index import embedding
from tosaic.rules.linear import multiply
from tosaic.rules.reduce import amax, mean, sum

_MODES = (sum, mean, amax)  # as PyTorch numbers them
_MOST_BAGS = 64  # of different sizes: each is reduced on its own

_EVEN, _UNEVEN = torch.tensor([0, 3, 6, 9]), torch.tensor([0, 1, 5])
_BAGS = [
    Sample(((10, 6), (12,)), (..., _EVEN, False, 0), kinds=("", "index:10")),
    Sample(((10, 6), (12,)), (..., _EVEN, False, 1), kinds=("", "index:10")),
    Sample(((10, 6), (12,)), (..., _EVEN, False, 2), kinds=("", "index:10")),
    Sample(((10, 6), (9,)), (..., _UNEVEN, False, 0), kinds=("", "index:10")),
    Sample(((10, 6), (9,)), (..., _UNEVEN, False, 1), kinds=("", "index:10")),
]


def _sizes(offsets: Value, count: int, include_last_offset: bool) -> list[int]:
    starts = known(offsets)
    if starts is None:
        raise Unsupported(
            "the offsets of the bags must be constant: the sizes of bags follow from them"
        )
    ends = [int(i) for i in starts]
    ends = ends if include_last_offset else [*ends, count]
    sizes = [stop - start for start, stop in itertools.pairwise(ends)]
    if min(sizes) < 1:
        raise Unsupported("a bag without elements has no form in TOSA")
    if len(set(sizes)) > 1 and len(sizes) > _MOST_BAGS:
        raise Unsupported(
            f"{len(sizes)} bags of different sizes are too many: {_MOST_BAGS} are not"
        )
    return sizes


@rule("aten.embedding_bag.default", "aten._embedding_bag_forward_only.default", samples=_BAGS)
@rule("aten.embedding_bag.padding_idx")
def embedding_bag(
    b: Lowering, weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: Value | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Value | None, ...]:  # fmt: skip
    """The bags; what backpropagation would need of them has no form."""
    if padding_idx is not None and padding_idx >= 0:
        raise Unsupported("a bag that leaves out its padding has no size that is known before")
    sizes = _sizes(offsets, indices.type.size, include_last_offset)
    rows, start, bags = embedding(b, weight, indices), 0, []
    for size in [sizes[0]] if len(set(sizes)) == 1 else sizes:
        count = len(sizes) if len(set(sizes)) == 1 else 1
        stop = start + size * count
        shares = per_sample_weights and piece(b, per_sample_weights, 0, start, stop)
        with b.wanting(b.items.get(0, b.wanted)):
            bags.append(_bag(b, piece(b, rows, 0, start, stop), shares, count, mode))
        start = stop
    return joined(b, bags, 0), None, None, None


def _bag(b: Lowering, rows: Value, shares: Value | None, count: int, mode: int) -> Value:
    """Rows of bags of one size, reduced."""
    size, channels = rows.shape[0] // count, rows.shape[1]
    apart = b.reshape(rows, (count, size, channels))
    if shares is not None:
        weighted = multiply(b, b.reshape(shares, (count, 1, size)), apart)
        found = b.reshape(weighted, (count, channels))
    else:
        reduce: Any = _MODES[mode]
        found = reduce(b, apart, [1])
    return b.requantized(found)
