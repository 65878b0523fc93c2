"""Tensors of a ``.pte`` program: types, shapes and places in memory, checked without PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tosaic.errors import InvalidInput
from tosaic.executorch.programreader import Plan, TensorEntry

if TYPE_CHECKING:
    import torch

# The names and bytes of the types that have a number in ExecuTorch's files.
KINDS = {
    0: ("uint8", 1), 1: ("int8", 1), 2: ("int16", 2), 3: ("int32", 4), 4: ("int64", 8),
    5: ("float16", 2), 6: ("float32", 4), 7: ("float64", 8), 11: ("bool", 1), 15: ("bfloat16", 2),
    27: ("uint16", 2), 28: ("uint32", 4), 29: ("uint64", 8),
}  # fmt: skip
_LARGEST = 1 << 36  # bytes of planned memory that no device of this kind has


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of a program. ``dim_order`` lists dimensions from outer to inner."""

    scalar_type: int
    shape: tuple[int, ...]
    dim_order: tuple[int, ...]

    def __str__(self) -> str:
        return described(KINDS[self.scalar_type][0], self.shape)

    @property
    def dtype(self) -> torch.dtype:
        import torch

        found: torch.dtype = getattr(torch, KINDS[self.scalar_type][0])
        return found

    @property
    def strides(self) -> list[int]:
        """Of a dense tensor whose dimensions lie in ``dim_order``."""
        strides, step = [0] * len(self.shape), 1
        for dimension in reversed(self.dim_order):
            strides[dimension] = step
            step *= max(self.shape[dimension], 1)
        return strides

    @property
    def size(self) -> int:
        return math.prod(self.shape) * KINDS[self.scalar_type][1]


def described(kind: str, shape: tuple[int, ...]) -> str:
    """A type and a shape as people write them."""
    return f"{kind}[{','.join(map(str, shape))}]"


def infos_of(plan: Plan, outside: Mapping[str, bytes]) -> dict[int, TensorInfo]:
    """The tensors among a program's values; InvalidInput where one does not fit its memory."""
    if sum(plan.arenas) > _LARGEST or min(plan.arenas, default=0) < 0:
        raise InvalidInput(f"the program plans {sum(plan.arenas)} bytes of memory")
    found: dict[int, TensorInfo] = {}
    for index, value in enumerate(plan.values):
        if isinstance(value, TensorEntry):
            found[index] = info = _info(index, value)
            room = _room(index, value, plan, outside)
            check_room(info, info.size if room is None else room)
    return found


def check_kind(number: int) -> None:
    """InvalidInput unless PyTorch has the type with that number."""
    if number not in KINDS:
        raise InvalidInput(f"the program has tensors of type {number}, which PyTorch has not")


def check_room(info: TensorInfo, room: int) -> None:
    """InvalidInput unless a tensor fits so many bytes."""
    if room < info.size:
        raise InvalidInput(f"a tensor {info} has {room} bytes of memory")


def _info(index: int, tensor: TensorEntry) -> TensorInfo:
    sizes, order = tensor.sizes, tensor.dim_order
    check_kind(tensor.scalar_type)
    if min(sizes, default=0) < 0 or sorted(order) != list(range(len(sizes))):
        raise InvalidInput(f"value {index} has impossible sizes {sizes} or order {order}")
    if tensor.storage_offset:
        raise InvalidInput(f"value {index} starts inside its memory, which is not supported")
    return TensorInfo(tensor.scalar_type, sizes, order)


def _room(index: int, tensor: TensorEntry, plan: Plan, outside: Mapping[str, bytes]) -> int | None:
    """How many bytes a tensor lies in; None where it gets as many as it needs."""
    if (key := tensor.outside) is not None:
        if key not in outside:
            raise InvalidInput(f"the weights {key!r} lie in another file: name its .ptd")
        return len(outside[key])
    size = _info(index, tensor).size
    if tensor.memory is None:
        if tensor.data is None and size > _LARGEST:
            raise InvalidInput(f"a tensor of the program has {size} bytes")
        return None if tensor.data is None else len(tensor.data)
    number, offset = tensor.memory
    if not 0 < number < len(plan.arenas):
        raise InvalidInput(f"value {index} lies in memory {number}, which is none")
    held = size if tensor.data is None else len(tensor.data)
    return min(max(plan.arenas[number] - offset, 0), held)
