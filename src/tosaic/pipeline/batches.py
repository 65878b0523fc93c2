"""Runs of more inputs than a program was compiled for: so many at a time, results joined."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.program import Program


def parts_of(program: Program, leaves: list[Any]) -> list[list[Any]] | None:
    """The leaves of a large batch as those of several runs; None if they are those of one.

    A batch is large if the first axis of every tensor is the same multiple of the example's, and
    all else of it is the example's.
    """
    pairs = [(node.meta.get("val"), leaf) for node, leaf in zip(program.arguments, leaves)]
    counts = {_times(example, leaf) for example, leaf in pairs if isinstance(example, Tensor)}
    if len(leaves) != len(program.arguments) or len(counts) != 1:
        return None
    count = counts.pop()
    if count is None or count < 2:
        return None
    if program.changes:
        raise InvalidInput(
            "the program keeps a state from one run to the next, so it takes a batch as it was "
            "compiled for: call run once for each"
        )
    split = [
        leaf.reshape(count, -1, *leaf.shape[1:]) if isinstance(example, Tensor) else [leaf] * count
        for example, leaf in pairs
    ]
    return [[part[index] for part in split] for index in range(count)]


def joined(results: list[list[Any]], leaves: list[Any]) -> list[Any]:
    """The results of several runs as those of one, each along its first axis."""
    size = next(len(leaf) for leaf in leaves if getattr(leaf, "shape", ())) // len(results)
    made: list[Any] = []
    for parts in map(list, zip(*results)):
        if isinstance(parts[0], Tensor) and (not parts[0].dim() or len(parts[0]) != size):
            raise InvalidInput(
                f"the program was compiled for a batch of {size}, and one of its results is of "
                f"{list(parts[0].shape)}: call run once for each"
            )
        made.append(torch.cat(parts) if isinstance(parts[0], Tensor) else parts[0])
    return made


def _times(example: Tensor, leaf: Any) -> int | None:
    """How many examples a tensor holds; None if it holds something else."""
    shape = torchapi.known_shape(example)
    given = tuple(getattr(leaf, "shape", ()))
    if not shape or len(shape) != len(given) or shape[1:] != given[1:] or not shape[0]:
        return None
    return given[0] // shape[0] if given[0] % shape[0] == 0 else None
