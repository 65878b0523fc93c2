"""Decompositions of operators that PyTorch has none for.

Unsupported says that operands are not such as these parts are for: the refusal stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tosaic.errors import Unsupported
from tosaic.passes.decompositions_weights import conv_transpose

_MOST_ROWS = 64  # of which all pairs are taken one row at a time
_FEW_ROWS = 4


def _hypot(self: Tensor, other: Tensor) -> Tensor:
    return torch.sqrt(self * self + other * other)


def _times_condition(self: Tensor, other: Tensor | float) -> Tensor:
    """A number where a condition holds, 0 elsewhere."""
    if self.dtype is not torch.bool or isinstance(other, (Tensor, bool, int)):
        raise Unsupported("a product of a condition and a number")
    return torch.where(self, torch.tensor(other), torch.tensor(0.0))


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
        raise Unsupported(f"it compares every pair of rows, of which {_MOST_ROWS} are the most")
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


def _round_decimals(self: Tensor, *, decimals: int) -> Tensor:
    return torch.round(self * 10.0**decimals) * 10.0**-decimals


def _ldexp(self: Tensor, other: Tensor) -> Tensor:
    return self * torch.exp2(other.to(self.dtype))


def _prelu(self: Tensor, weight: Tensor) -> Tensor:
    """With a weight that is computed."""
    shape = [-1 if axis == 1 else 1 for axis in range(self.dim())]
    slope = weight.reshape(shape) if weight.numel() > 1 else weight.reshape([1] * self.dim())
    return torch.relu(self) - slope * torch.relu(-self)


def _batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """By the numbers of the batch itself, of which each channel is one long row."""
    if running_mean is not None:
        raise Unsupported("its batch norm uses running statistics")
    transposed = input.transpose(0, 1)
    rows = transposed.reshape(1, transposed.shape[0], -1)
    return (
        F.instance_norm(rows, None, None, weight, bias, eps=eps)
        .reshape(transposed.shape)
        .transpose(0, 1)
    )


def _logcumsumexp(self: Tensor, dim: int) -> Tensor:
    """Each sum on its own, relative to its largest term: so all of them are exact."""
    x = self.movedim(dim, -1)
    size = x.shape[-1]
    if size > _MOST_ROWS:
        raise Unsupported(f"it sums over {size} elements, of which {_MOST_ROWS} are the most")
    if size <= _FEW_ROWS:  # no sum is rounded before its logarithm
        few = [x[..., : i + 1].logsumexp(-1) for i in range(size)]
        return torch.stack(few, dim)
    past = torch.ones(size, size).tril().bool()
    rows = torch.where(past, x.unsqueeze(-2), -math.inf)
    most = torch.cummax(x, -1).values
    sums = torch.where(past, torch.exp(rows - most.unsqueeze(-1)), 0.0).sum(-1)
    return (torch.log(sums) + most).movedim(-1, dim)


def _scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Which elements go to which place is a mask of all pairs of the two."""
    axis = dim % self.dim()
    x, places, given = (t.movedim(axis, -1) for t in (self, index, src))
    count, size = places.shape[-1], x.shape[-1]
    if count * size > _MOST_ROWS**2:
        raise Unsupported(f"scatter_reduce compares {count} × {size} places, too many")
    within = tuple(slice(0, n) for n in places.shape)
    if x[within[:-1]].shape != x.shape:
        raise Unsupported("the index of scatter_reduce does not cover all rows")
    hits = F.one_hot(places, size).to(x.dtype).transpose(-1, -2)
    goes = hits > 0.5
    terms = given[within].unsqueeze(-2)
    if reduce in ("sum", "prod"):
        total = (hits * terms).sum(-1)
        if reduce == "prod":
            total = torch.where(goes, terms, 1.0).prod(-1)
        if include_self:
            return (x + total if reduce == "sum" else x * total).movedim(-1, axis)
        return torch.where(goes.any(-1), total, x).movedim(-1, axis)
    if reduce == "mean":
        number = hits.sum(-1) + float(include_self)
        total = (hits * terms).sum(-1)
        mean = (total + x if include_self else total) / number.clamp(min=1.0)
        made = mean if include_self else torch.where(goes.any(-1), mean, x)
        return made.movedim(-1, axis)
    sign = 1.0 if reduce == "amax" else -1.0
    best = sign * torch.where(goes, sign * terms, -math.inf).amax(-1)
    if include_self:
        best = torch.maximum(best, x) if reduce == "amax" else torch.minimum(best, x)
    return torch.where(goes.any(-1), best, x).movedim(-1, axis)


def _scatter_added(self: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str) -> Tensor:
    if reduce != "add":
        raise Unsupported(f"scatter has no reduction {reduce!r} in TOSA")
    return self.scatter_add(dim, index, src)


def _histc(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    if min >= max or bins > _MOST_ROWS:
        raise Unsupported(f"a histogram needs known bounds and at most {_MOST_ROWS} bins")
    ends = torch.linspace(min, max, bins + 1)
    below = (self.flatten() >= ends[:-1].unsqueeze(-1)) & (self.flatten() < ends[1:].unsqueeze(-1))
    counts = below.to(self.dtype).sum(-1)
    last = (self.flatten() == max).to(self.dtype).sum().reshape(1)
    return torch.cat([counts[:-1], counts[-1:] + last])


def _quantile(
    self: Tensor, q: float, dim: int | None = None, keepdim: bool = False, *,
    interpolation: str = "linear",
) -> Tensor:  # fmt: skip
    if interpolation != "linear":
        raise Unsupported(f"a quantile is lowered with linear interpolation, not {interpolation!r}")
    axis = 0 if dim is None else dim
    order = torch.sort(self.flatten() if dim is None else self, axis).values
    place = q * (order.shape[axis] - 1)
    low, high = math.floor(place), math.ceil(place)
    found = order.narrow(axis, low, 1)
    if high > low:
        found = found + (order.narrow(axis, high, 1) - found) * (place - low)
    if dim is None:
        return found.reshape([1] * self.dim() if keepdim else [])
    return found if keepdim else found.squeeze(axis)


def _nll_loss(
    self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1,
    ignore_index: int = -100,
) -> Tensor:  # fmt: skip
    """What is ignored counts neither as a term nor for the mean."""
    axis = min(self.dim() - 1, 1)
    kept = target != ignore_index
    known = torch.where(kept, target, 0)
    share = kept.to(self.dtype)
    if weight is not None:
        share = share * weight.index_select(0, known.flatten()).reshape(known.shape)
    terms = -self.gather(axis, known.unsqueeze(axis)).squeeze(axis) * share
    if reduction == 0:
        return terms
    return terms.sum() / share.sum() if reduction == 1 else terms.sum()


def _cross_entropy(
    self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1,
    ignore_index: int = -100, label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    axis = min(self.dim() - 1, 1)
    scores, size = F.log_softmax(self, axis), self.shape[axis]
    if not target.is_floating_point():
        made = _nll_loss(scores, target, weight, reduction, ignore_index)
        if not label_smoothing:
            return made
        if weight is not None or ignore_index >= 0:
            raise Unsupported("label smoothing is lowered without weights and ignore_index")
        return (
            made * (1 - label_smoothing) - _reduced(scores.mean(axis), reduction) * label_smoothing
        )
    shares = target * (1 - label_smoothing) + label_smoothing / size
    if weight is not None:
        shares = shares * weight.reshape([-1 if i == axis else 1 for i in range(self.dim())])
    return -_reduced((scores * shares).sum(axis), reduction)


def _reduced(terms: Tensor, reduction: int) -> Tensor:
    return terms if reduction == 0 else terms.mean() if reduction == 1 else terms.sum()


def _mixed(
    x: Tensor, rows: Sequence[Sequence[float]], columns: Sequence[Sequence[float]]
) -> Tensor:
    """Each axis of an image as mixtures of its own elements: products with two known matrices."""
    wide = F.linear(x, torch.tensor(columns, dtype=x.dtype))
    return F.linear(wide.transpose(-1, -2), torch.tensor(rows, dtype=x.dtype)).transpose(-1, -2)


def _shares(size: int, out: int, scale: float, reach: float, filter: Any) -> list[list[float]]:
    """How much of each input each output is, where all within its own area count."""
    wide, made = max(scale, 1.0), []
    for i in range(out):
        centre = scale * (i + 0.5)
        first = max(int(centre - reach * wide + 0.5), 0)
        last = min(int(centre + reach * wide + 0.5), size)
        line = [filter((j - centre + 0.5) / wide) if first <= j < last else 0.0
                for j in range(size)]  # fmt: skip
        made.append([share / sum(line) for share in line])
    return made


def _triangle(x: float) -> float:
    return max(1.0 - abs(x), 0.0)


def _cubic(x: float) -> float:
    x = abs(x)
    if x < 1:
        return (1.5 * x - 2.5) * x * x + 1
    return ((-0.5 * x + 2.5) * x - 4) * x + 2 if x < 2 else 0.0


def _antialiased(reach: float, filter: Any) -> Callable[..., Tensor]:
    def resized(
        input: Tensor, output_size: Sequence[int] | None, align_corners: bool,
        scale_factors: Sequence[float] | None,
    ) -> Tensor:  # fmt: skip
        lines = []
        for i in (0, 1):
            size, factor = input.shape[2 + i], scale_factors[i] if scale_factors else None
            out = int(output_size[i]) if output_size else int(size * (factor or 1.0))
            if align_corners:
                scale = (size - 1) / (out - 1) if out > 1 else 0.0
            else:
                scale = 1 / factor if factor else size / out
            lines.append(_shares(size, out, scale, reach, filter))
        return _mixed(input, *lines)

    return resized


def _adaptive_avg_pool2d(self: Tensor, output_size: Sequence[int]) -> Tensor:
    lines = []
    for size, out in zip(self.shape[-2:], output_size):
        ends = [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]
        lines.append([[1 / (stop - start) if start <= j < stop else 0.0 for j in range(size)]
                      for start, stop in ends])  # fmt: skip
    return _mixed(self, *lines)


WRITTEN: dict[str, Callable[..., Tensor]] = {
    "aten.hypot.default": _hypot, "aten.copysign.Tensor": _copysign,
    "aten.heaviside.default": _heaviside, "aten.special_xlogy.other_scalar": _xlogy,
    "aten.mul.Tensor": _times_condition,
    "aten.xlogy.Scalar_Other": _xlogy, "aten.count_nonzero.default": _count_nonzero,
    "aten.count_nonzero.dim_IntList": _count_nonzero, "aten.isin.Tensor_Tensor": _isin,
    "aten.median.default": _median, "aten.bilinear.default": _bilinear,
    "aten.addbmm.default": _addbmm, "aten.block_diag.default": _block_diag,
    "aten.pdist.default": _pdist, "aten._pdist_forward.default": _pdist,
    "aten.cross.default": _cross, "aten.linalg_cross.default": _linalg_cross,
    "aten.masked_scatter.default": _masked_scatter, "aten.round.decimals": _round_decimals,
    "aten.ldexp.Tensor": _ldexp, "aten.prelu.default": _prelu,
    "aten.batch_norm.default": _batch_norm,
    "aten.logcumsumexp.default": _logcumsumexp, "aten.scatter_reduce.two": _scatter_reduce,
    "aten.scatter.reduce": _scatter_added, "aten.histc.default": _histc,
    "aten.quantile.scalar": _quantile, "aten.nll_loss_nd.default": _nll_loss,
    "aten.cross_entropy_loss.default": _cross_entropy,
    "aten.conv_transpose3d.input": partial(conv_transpose, 3),
    "aten._upsample_bilinear2d_aa.vec": _antialiased(1.0, _triangle),
    "aten._upsample_bicubic2d_aa.vec": _antialiased(2.0, _cubic),
    "aten.adaptive_avg_pool2d.default": _adaptive_avg_pool2d,
}  # fmt: skip
