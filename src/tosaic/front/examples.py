"""Checks example inputs for kinds that torch.export would silently convert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tosaic.errors import InvalidInput
from tosaic.front import torchapi


def in_order(model: Any, example_inputs: Any) -> Any:
    """Example inputs by name as a tuple in the order of the model's arguments."""
    if not isinstance(example_inputs, Mapping):
        return example_inputs
    made = torchapi.in_order(model, dict(example_inputs))
    if isinstance(made, str):
        raise InvalidInput(made)
    return made


def check_examples(example_inputs: Any) -> None:
    """A tuple whose tensors lie apart in memory; InvalidInput says what is wrong."""
    if not isinstance(example_inputs, tuple):
        kind = type(example_inputs).__name__
        raise InvalidInput(f"example_inputs must be a tuple of the model's arguments, not a {kind}")
    seen: dict[int, list[tuple[int, Tensor]]] = {}
    flat, _ = torchapi.flatten(example_inputs)
    for index, value in enumerate(flat):
        if isinstance(value, np.ndarray):
            raise InvalidInput(f"example input {index} is an array: give torch.from_numpy(array)")
        if not isinstance(value, Tensor) or value.device.type == "meta" or not value.numel():
            continue
        near = seen.setdefault(value.untyped_storage().data_ptr(), [])
        for first, other in near:
            _check_apart(first, other, index, value)
        near.append((index, value))


def _check_apart(first: int, other: Tensor, index: int, value: Tensor) -> None:
    """torch.export merges equal tensors; writes to one of two that overlap change both."""
    if not _overlap(other, value):
        return
    same = other.data_ptr() == value.data_ptr() and other.shape == value.shape
    how = "are the same tensor, which torch.export would merge into one"
    if not same or other.stride() != value.stride():
        how = "overlap in memory"
    raise InvalidInput(f"example inputs {first} and {index} {how}; pass a clone")


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors in one storage have an element in common."""
    if one.element_size() != other.element_size():
        return True
    taken = torch.zeros(one.untyped_storage().nbytes() // one.element_size(), dtype=torch.bool)
    taken.as_strided(one.shape, one.stride(), one.storage_offset()).fill_(True)
    return bool(taken.as_strided(other.shape, other.stride(), other.storage_offset()).any())
