"""Replaces an unpooling by the indices of a pool whose windows do not overlap by selects.

Each element of a window is the value where the index is its own, and 0 elsewhere: elementwise calls
and a reshape in the place of a scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.decompose import inline
from tosaic.passes.engine import Replacement, node_pass
from tosaic.passes.match import name_of, shape_of


@node_pass("aten.max_unpool2d.default")
def unpool_windows(node: fx.Node) -> Replacement:
    bound = torchapi.bound_arguments(node)
    kernel, module = _windows(bound["indices"], bound["output_size"]), node.graph.owning_module
    if kernel is None or module is None:
        return None
    parts = torchapi.decomposed(node, partial(_unpooled, kernel))
    return None if parts is None else inline(module, node, parts)


def _windows(indices: fx.Node, size: Sequence[int]) -> tuple[int, int] | None:
    """The windows of the pool that made indices, if they tile the plane that is filled."""
    if name_of(indices) != "getitem" or indices.args[1] != 1:
        return None
    pool = indices.args[0]
    if not isinstance(pool, fx.Node) or name_of(pool) != "aten.max_pool2d_with_indices.default":
        return None
    bound = torchapi.bound_arguments(pool)
    height, width = bound["kernel_size"][0], bound["kernel_size"][-1]
    tiles = [*(bound["stride"] or (height, width))] in ([height, width], [height])
    plain = not any(bound["padding"]) and all(n == 1 for n in bound["dilation"])
    plane = [*shape_of(bound["self"])[-2:]]
    whole = not bound["ceil_mode"] and plane == [*size][-2:]
    return (height, width) if tiles and plain and whole else None


def _unpooled(
    kernel: tuple[int, int], self: Tensor, indices: Tensor, output_size: Sequence[int]
) -> Tensor:
    height, width = output_size[-2:]
    rows, columns = self.shape[-2:]
    first = torch.arange(rows)[:, None] * (kernel[0] * width) + torch.arange(columns) * kernel[1]
    lines = []
    for i in range(kernel[0]):
        line = [torch.where(indices == first + (i * width + j), self, 0.0)
                for j in range(kernel[1])]  # fmt: skip
        lines.append(torch.stack(line, -1).flatten(-2))
    made = torch.stack(lines, -2).flatten(-3, -2)
    after = width - made.shape[-1], height - made.shape[-2]
    return F.pad(made, (0, after[0], 0, after[1])) if any(after) else made
