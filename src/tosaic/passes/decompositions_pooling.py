"""Decompositions of maximum pools whose indices are read, and of the pools that undo them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.errors import Unsupported

_MOST = 64  # elements of a window, of which each is a slice of the input


def _max_pool2d_with_indices(
    self: Tensor, kernel_size: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0), dilation: Sequence[int] = (1, 1), ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The pool, and of each window the first element that is largest, counted in the plane.

    Windows end at the border: what lies in the padding is the element beside it.
    """
    sizes, (kernel, pads, gaps) = self.shape[-2:], map(_pair, (kernel_size, padding, dilation))
    steps = _pair(stride) if stride else kernel
    pooled = F.max_pool2d(self, kernel, steps, pads, gaps, ceil_mode)
    firsts = [[s * i - p for i in range(n)] for s, p, n in zip(steps, pads, pooled.shape[-2:])]
    after = [first[-1] + g * (k - 1) - n + 1
             for first, g, k, n in zip(firsts, gaps, kernel, sizes)]  # fmt: skip
    if kernel[0] * kernel[1] > _MOST:
        raise Unsupported(f"the indices of a pool with {kernel[0]} × {kernel[1]} elements a window")
    if any(g > 1 and (p or a > 0) for g, p, a in zip(gaps, pads, after)):
        raise Unsupported("the indices of a pool with padding and dilation")
    padded = self if self.dim() == 4 else self[None]
    if any(p > 0 for p in (*pads, *after)):
        around = (pads[1], max(after[1], 0), pads[0], max(after[0], 0))
        padded = F.pad(padded, around, mode="replicate")
    spans = [s * (n - 1) + 1 for s, n in zip(steps, pooled.shape[-2:])]
    windows = [
        padded[..., i * gaps[0] :, j * gaps[1] :][..., : spans[0] : steps[0], : spans[1] : steps[1]]
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]
    place = torch.stack(windows).argmax(0).reshape(pooled.shape)
    row, column = place // kernel[1] * gaps[0], place % kernel[1] * gaps[1]
    row = (row + torch.tensor(firsts[0])[:, None]).clamp(0, sizes[0] - 1)
    column = (column + torch.tensor(firsts[1])).clamp(0, sizes[1] - 1)
    return pooled, row * sizes[1] + column


def _max_pool1d_with_indices(
    self: Tensor, kernel_size: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    step = stride or kernel_size
    pooled, places = _max_pool2d_with_indices(
        self.unsqueeze(-2), (1, kernel_size[0]), (1, step[0]), (0, padding[0]), (1, dilation[0]),
        ceil_mode,
    )  # fmt: skip
    return pooled.squeeze(-2), places.squeeze(-2)


def _max_unpool2d(self: Tensor, indices: Tensor, output_size: Sequence[int]) -> Tensor:
    """Each element at its place in a plane of zeros; windows that overlap may have the same one."""
    count = output_size[-2] * output_size[-1]
    planes = self.new_zeros((*self.shape[:-2], count))
    given = indices.flatten(-2), self.flatten(-2)
    filled = planes.scatter_reduce(-1, *given, "amax", include_self=False)
    return filled.reshape(*self.shape[:-2], *output_size[-2:])


def _pair(given: Sequence[int]) -> tuple[int, int]:
    return given[0], given[-1]


POOLS: dict[str, tuple[Callable[..., Any], ...]] = {
    "aten.max_pool2d_with_indices.default": (_max_pool2d_with_indices,),
    "aten.max_pool1d_with_indices.default": (_max_pool1d_with_indices,),
    "aten.max_unpool2d.default": (_max_unpool2d,),
}
