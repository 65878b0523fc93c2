"""Decompositions of indexing, search, norms and special functions that PyTorch lacks or has worse.

Several decompositions of one operator are tried in their order: integers count in int32, and
targets of floats alone count in float.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tosaic.errors import Unsupported

Decomposition = Callable[..., Any]
_LONGEST = 1 << 14  # elements of a part of a row


def _as_strided(
    self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Elements of a dense tensor by their places in memory."""
    if not self.is_contiguous() or self.storage_offset():
        raise Unsupported("as_strided reads the memory of a tensor that is not contiguous")
    ways = itertools.product(*(range(n) for n in size))
    places = [sum(i * s for i, s in zip(way, stride)) + (storage_offset or 0) for way in ways]
    if not places or max(places) >= self.numel():
        raise Unsupported("as_strided reads beyond the end of the tensor")
    return self.reshape(-1).index_select(0, torch.tensor(places)).reshape(list(size))


def _vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    count = x.shape[-1] if N is None else N
    powers = [torch.ones_like(x), *(x**k for k in range(1, count))]
    return torch.stack(powers[:count] if increasing else powers[:count][::-1], -1)


def _linalg_vander(x: Tensor, *, N: int | None = None) -> Tensor:
    return _vander(x, N, increasing=True)


def _nanmean(self: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    if dtype not in (None, self.dtype):
        raise Unsupported(f"nanmean is lowered in the type of its operand, not in {dtype}")
    axes = list(range(self.dim())) if dim is None else dim
    known = ~torch.isnan(self)
    total = torch.where(known, self, 0.0).sum(axes, keepdim)
    return total / known.to(self.dtype).sum(axes, keepdim)


def _nanmedian_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower middle of the numbers, which come before what is none."""
    gaps = torch.isnan(self)
    order = torch.where(gaps, math.inf, self).sort(dim)
    count = (~gaps).to(torch.int64).sum(dim, keepdim=True)
    place = torch.clamp((count - 1) >> 1, min=0)
    found = [part.gather(dim, place) for part in order]
    values, places = found if keepdim else (part.squeeze(dim) for part in found)
    return values, places


def _nanmedian(self: Tensor) -> Tensor:
    return _nanmedian_dim(self.reshape(-1), 0)[0]


def _counted(before: Tensor, kind: torch.dtype, like: Tensor) -> Tensor:
    return before.sum(-1, dtype=kind)


def _counted_in_float(before: Tensor, kind: torch.dtype, like: Tensor) -> Tensor:
    real = like.dtype if like.is_floating_point() else torch.float32
    return before.to(real).sum(-1).to(kind)


def _searchsorted(count: Callable[[Tensor, torch.dtype, Tensor], Tensor]) -> Decomposition:
    """How many elements of a row, or of the only one, come before."""

    def searchsorted(
        sorted_sequence: Tensor, self: Tensor | float, *, out_int32: bool = False,
        right: bool = False, side: str | None = None, sorter: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if sorter is not None:
            raise Unsupported("searchsorted is lowered without a sorter")
        kind = torch.int32 if out_int32 else torch.int64
        if isinstance(self, Tensor):
            is_one = sorted_sequence.dim() == 1
            row = sorted_sequence if is_one else sorted_sequence.unsqueeze(-2)
            given = self.unsqueeze(-1)
            before = given >= row if right or side == "right" else given > row
        else:
            behind = sorted_sequence > self if right or side == "right" else sorted_sequence >= self
            before = ~behind
        return count(before, kind, sorted_sequence)

    return searchsorted


def _bucketize(count: Callable[[Tensor, torch.dtype, Tensor], Tensor]) -> Decomposition:
    search = _searchsorted(count)

    def bucketize(
        self: Tensor | float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
    ) -> Any:
        return search(boundaries, self, out_int32=out_int32, right=right)

    return bucketize


def _diagonal_scatter(
    self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """Each row with the element of the diagonal that it holds, where it holds one."""
    x = self.movedim((dim1, dim2), (-2, -1))
    rows, columns = x.shape[-2:]
    places = [i - max(0, -offset) for i in range(rows)]
    held = [0 <= i + offset < columns for i in range(rows)]
    mask = torch.tensor([[held[i] and j == i + offset for j in range(columns)]
                         for i in range(rows)])  # fmt: skip
    index = torch.tensor([p if h else 0 for p, h in zip(places, held)])
    each = src.index_select(-1, index).unsqueeze(-1)
    return torch.where(mask, each, x).movedim((-2, -1), (dim1, dim2))


def _fill_diagonal(self: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    if self.dim() != 2 or wrap:
        raise Unsupported("fill_diagonal is lowered for matrices, without wrap")
    return torch.where(torch.eye(*self.shape, dtype=torch.bool), fill_value, self)


def _normalised(rows: Tensor, eps: float) -> Tensor:
    """Rows [R, N] less their means by their deviations, which come from parts of each row."""
    count, length = rows.shape
    part = next((n for n in range(_LONGEST, 255, -1) if length % n == 0), 0)
    if not part or part == length:
        raise Unsupported(f"a norm over {length} elements, which have no equal parts")
    parts = rows.reshape(count, length // part, part)
    means = parts.mean(2)
    mean = means.mean(1, keepdim=True)
    away = (means - mean) ** 2
    spread = (parts.var(2, correction=0) + away).mean(1, keepdim=True)
    return (rows - mean) * torch.rsqrt(spread + eps)


def _layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5, cudnn_enable: bool = True,
) -> Tensor:  # fmt: skip
    made = _normalised(input.reshape(-1, math.prod(normalized_shape)), eps).reshape(input.shape)
    return _scaled(made, weight, bias)


def _group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    made = _normalised(input.reshape(input.shape[0] * num_groups, -1), eps).reshape(input.shape)
    shape = [-1, *(1,) * (input.dim() - 2)]
    return _scaled(made, *(None if t is None else t.reshape(shape) for t in (weight, bias)))


def _instance_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, use_input_stats: bool, momentum: float, eps: float,
    cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    if not use_input_stats:
        raise Unsupported("its instance norm uses running statistics")
    return _group_norm(input, input.shape[1], weight, bias, eps)


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _ndtri(self: Tensor) -> Tensor:
    return torch.erfinv(self * 2.0 - 1.0) * math.sqrt(2)


def _log_ndtr(self: Tensor) -> Tensor:
    return torch.log(torch.erfc(self * -math.sqrt(0.5)) * 0.5)


def _erfcx(self: Tensor) -> Tensor:
    return torch.exp(self * self) * torch.erfc(self)


def _spherical_bessel_j0(self: Tensor) -> Tensor:
    return torch.sinc(self * (1 / math.pi))


def _multigammaln(self: Tensor, p: int) -> Tensor:
    terms = [torch.lgamma(self - 0.5 * j) for j in range(p)]
    return torch.stack(terms).sum(0) + p * (p - 1) / 4 * math.log(math.pi)


DECOMPOSITIONS: dict[str, tuple[Decomposition, ...]] = {
    "aten.as_strided.default": (_as_strided,), "aten.as_strided_copy.default": (_as_strided,),
    "aten.vander.default": (_vander,), "aten.linalg_vander.default": (_linalg_vander,),
    "aten.nanmean.default": (_nanmean,), "aten.nanmedian.dim": (_nanmedian_dim,),
    "aten.nanmedian.default": (_nanmedian,),
    "aten.searchsorted.Tensor": (_searchsorted(_counted), _searchsorted(_counted_in_float)),
    "aten.searchsorted.Scalar": (_searchsorted(_counted), _searchsorted(_counted_in_float)),
    "aten.bucketize.Tensor": (_bucketize(_counted), _bucketize(_counted_in_float)),
    "aten.bucketize.Scalar": (_bucketize(_counted), _bucketize(_counted_in_float)),
    "aten.diagonal_scatter.default": (_diagonal_scatter,),
    "aten.fill_diagonal_.default": (_fill_diagonal,),
    "aten.layer_norm.default": (_layer_norm,), "aten.group_norm.default": (_group_norm,),
    "aten.instance_norm.default": (_instance_norm,),
    "aten.special_ndtri.default": (_ndtri,), "aten.special_log_ndtr.default": (_log_ndtr,),
    "aten.special_erfcx.default": (_erfcx,),
    "aten.special_spherical_bessel_j0.default": (_spherical_bessel_j0,),
    "aten.special_multigammaln.default": (_multigammaln,),
    "aten.mvlgamma.default": (_multigammaln,),
}  # fmt: skip
