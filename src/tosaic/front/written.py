"""Operators that PyTorch has no parts for, written with others: what is refused is tried so.

NotImplementedError says that operands are not such as these parts are for: the refusal stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_MOST_ROWS = 64  # of which all pairs are taken one row at a time


def _hypot(self: Tensor, other: Tensor) -> Tensor:
    return torch.sqrt(self * self + other * other)


def _copysign(self: Tensor, other: Tensor) -> Tensor:
    return torch.where(other < 0, -self.abs(), self.abs())


def _heaviside(self: Tensor, values: Tensor) -> Tensor:
    return torch.where(self == 0, values, (self > 0).to(self.dtype))


def _xlogy(self: Tensor, other: float) -> Tensor:
    return self * math.log(other) if other > 0 else torch.xlogy(self, torch.tensor(other))


def _count_nonzero(self: Tensor, dim: Any = None) -> Tensor:
    axes = list(range(self.dim())) if dim is None else dim
    return (self != 0).sum(axes)


def _isin(
    elements: Tensor, test_elements: Tensor, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    found = (elements.unsqueeze(-1) == test_elements.flatten()).any(-1)
    return ~found if invert else found


def _searchsorted(
    sorted_sequence: Tensor, self: Tensor, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """How many elements of a row, or of the only one, come before."""
    if sorter is not None:
        raise NotImplementedError
    row, given = sorted_sequence.unsqueeze(-2), self.unsqueeze(-1)
    before = given >= row if right or side == "right" else given > row
    return before.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def _bucketize(
    self: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    given = self.unsqueeze(-1)
    before = given >= boundaries if right else given > boundaries
    return before.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def _median(self: Tensor) -> Tensor:
    return self.flatten().median(0).values


def _bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    made, first, second = weight.shape
    rows = weight.transpose(1, 2).reshape(made * second, first)
    each = F.linear(input1, rows).reshape(*input1.shape[:-1], made, second)
    sums = (each * input2.unsqueeze(-2)).sum(-1)
    return sums if bias is None else sums + bias


def _addbmm(
    self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    return self * beta + torch.bmm(batch1, batch2).sum(0) * alpha


def _block_diag(tensors: Sequence[Tensor]) -> Tensor:
    blocks = [t.reshape(-1, t.shape[-1]) if t.dim() == 2 else t.reshape(1, -1) for t in tensors]
    width, before, rows = sum(t.shape[1] for t in blocks), 0, []
    for block in blocks:
        rows.append(F.pad(block, (before, width - before - block.shape[1])))
        before += block.shape[1]
    return torch.cat(rows)


def _pdist(self: Tensor, p: float = 2) -> Tensor:
    if self.shape[0] > _MOST_ROWS:
        raise NotImplementedError
    apart = torch.cdist(self, self, p)
    return torch.cat([apart[i, i + 1 :] for i in range(self.shape[0] - 1)])


def _cross(self: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    axis = list(self.shape).index(3) if dim is None else dim
    shape = (self + other).shape
    a, b = self.expand(shape), other.expand(shape)
    first = torch.roll(a, -1, axis) * torch.roll(b, 1, axis)
    return first - torch.roll(a, 1, axis) * torch.roll(b, -1, axis)


def _linalg_cross(self: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    return _cross(self, other, dim)


def _masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    shape = torch.where(mask, self, self).shape
    whole, chosen = self.expand(shape), mask.expand(shape)
    place = (chosen.flatten().to(torch.int64).cumsum(0) - 1).clamp(0, source.numel() - 1)
    found = source.flatten().index_select(0, place).reshape(whole.shape)
    return torch.where(chosen, found, whole)


WRITTEN: dict[str, Callable[..., Tensor]] = {
    "aten.hypot.default": _hypot, "aten.copysign.Tensor": _copysign,
    "aten.heaviside.default": _heaviside, "aten.special_xlogy.other_scalar": _xlogy,
    "aten.xlogy.Scalar_Other": _xlogy, "aten.count_nonzero.default": _count_nonzero,
    "aten.count_nonzero.dim_IntList": _count_nonzero, "aten.isin.Tensor_Tensor": _isin,
    "aten.searchsorted.Tensor": _searchsorted, "aten.bucketize.Tensor": _bucketize,
    "aten.median.default": _median, "aten.bilinear.default": _bilinear,
    "aten.addbmm.default": _addbmm, "aten.block_diag.default": _block_diag,
    "aten.pdist.default": _pdist, "aten._pdist_forward.default": _pdist,
    "aten.cross.default": _cross, "aten.linalg_cross.default": _linalg_cross,
    "aten.masked_scatter.default": _masked_scatter,
}  # fmt: skip
