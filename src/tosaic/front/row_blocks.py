"""Evaluates row-wise functions of large tensors in blocks that fit the caches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_ELEMENTS = 1 << 15


def by_rows(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """What a function gives of tensors, each row of which depends on the same rows of these alone.

    Tensors of one row are for all rows. The result is the same as at once.
    """
    count = max(len(t) for t in tensors)
    rows = max(_ELEMENTS * count // max(*(t.numel() for t in tensors), 1), 1)
    if count <= rows:
        return function(*tensors)
    made: Tensor | None = None
    for start in range(0, count, rows):
        part = function(*(t[start : start + rows] if len(t) > 1 else t for t in tensors))
        if made is None:
            made = torch.empty(count, *part.shape[1:], dtype=part.dtype, device=part.device)
        made[start : start + rows] = part
    assert made is not None
    return made
