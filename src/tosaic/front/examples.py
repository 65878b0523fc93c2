"""Example inputs without kinds that torch.export would silently convert, or merge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram

from tosaic.errors import InvalidInput, kind_of
from tosaic.front import torchapi


def in_order(model: Any, example_inputs: Any) -> Any:
    """Example inputs by name as a tuple in the order of the model's arguments.

    Without any they are those that a program was exported with.
    """
    if example_inputs is None and isinstance(model, ExportedProgram) and model.example_inputs:
        args, kwargs = model.example_inputs
        return None if kwargs else args
    if not isinstance(example_inputs, Mapping):
        return example_inputs
    made = torchapi.in_order(model, dict(example_inputs))
    if isinstance(made, str):
        raise InvalidInput(made)
    return made


def checked_examples(example_inputs: Any) -> tuple[Any, ...]:
    """The examples, with tensors that lie apart in memory; InvalidInput says what is wrong.

    A tensor alone is the one argument. torch.export merges equal tensors into one input, so one
    that is given twice is cloned.
    """
    if isinstance(example_inputs, Tensor):
        example_inputs = (example_inputs,)
    if example_inputs is None:
        raise InvalidInput("give example_inputs: a tensor, or a tuple of the model's arguments")
    if not isinstance(example_inputs, tuple):
        raise InvalidInput(
            "example_inputs must be a tensor or a tuple of the model's arguments, not "
            f"{kind_of(example_inputs)}"
        )
    seen: dict[int, list[tuple[int, Tensor]]] = {}
    flat, spec = torchapi.flatten(example_inputs)
    sizes = {i: list(v.shape) for i, v in enumerate(flat) if isinstance(v, Tensor)}
    if sizes and not any(math.prod(size) for size in sizes.values()):
        told = ", ".join(f"{index} is {size}" for index, size in sizes.items())
        raise InvalidInput(f"the example inputs have no elements (input {told}): give a batch")
    made = list(flat)
    for index, value in enumerate(flat):
        if isinstance(value, np.ndarray):
            raise InvalidInput(f"example input {index} is an array: give torch.from_numpy(array)")
        if isinstance(value, Tensor) and value.layout is not torch.strided:
            raise InvalidInput(f"example input {index} is sparse: give x.to_dense()")
        if not isinstance(value, Tensor) or value.device.type == "meta" or not value.numel():
            continue
        near = seen.setdefault(value.untyped_storage().data_ptr(), [])
        for first, other in near:
            if _overlap(other, value):
                if not _is_same(other, value):
                    raise InvalidInput(
                        f"example inputs {first} and {index} overlap in memory; pass a clone"
                    )
                made[index] = value.clone()
        near.append((index, value))
    apart: tuple[Any, ...] = torchapi.unflatten(made, spec)
    return apart


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same elements in the same order."""
    start = one.data_ptr() == other.data_ptr()
    return start and one.shape == other.shape and one.stride() == other.stride()


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors in one storage have an element in common."""
    if one.element_size() != other.element_size():
        return True
    taken = torch.zeros(one.untyped_storage().nbytes() // one.element_size(), dtype=torch.bool)
    taken.as_strided(one.shape, one.stride(), one.storage_offset()).fill_(True)
    return bool(taken.as_strided(other.shape, other.stride(), other.storage_offset()).any())
