"""The fewest axes of a permutation: merges axes that stay adjacent."""

from __future__ import annotations

import math
from collections.abc import Sequence


def merged_axes(shape: Sequence[int], perms: Sequence[int]) -> tuple[list[int], list[int]]:
    """A transposition over as few axes as there are: neighbours that stay such are one."""
    groups: list[list[int]] = []
    for axis in (p for p in perms if shape[p] != 1):
        between = range(groups[-1][-1] + 1, axis) if groups else range(0)
        follows = groups and groups[-1][-1] < axis and all(shape[a] == 1 for a in between)
        if follows:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    order = sorted(range(len(groups)), key=lambda g: groups[g][0])
    extents = [math.prod(shape[a] for a in groups[g]) for g in order]
    return extents, [order.index(g) for g in range(len(groups))]
