"""Values of a ``.pte`` program: tensors in the memory that the file plans, numbers and lists."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tosaic.errors import InvalidInput
from tosaic.executorch.programreader import Items, Plan, TensorEntry

TYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64,
    5: torch.float16, 6: torch.float32, 7: torch.float64, 11: torch.bool, 15: torch.bfloat16,
    27: torch.uint16, 28: torch.uint32, 29: torch.uint64,
}  # fmt: skip
_LARGEST = 1 << 36  # bytes of planned memory that no device of this kind has


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of a program. ``dim_order`` lists dimensions from outer to inner."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    dim_order: tuple[int, ...]

    def __str__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        return f"{kind}[{','.join(map(str, self.shape))}]"

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
        return math.prod(self.shape) * self.dtype.itemsize


class Memory:
    """Values by index. Tensors that share planned memory share it here."""

    def __init__(self, plan: Plan, outside: Mapping[str, bytes]) -> None:
        sizes = list(plan.arenas)
        if sum(sizes) > _LARGEST or min(sizes, default=0) < 0:
            raise InvalidInput(f"the program plans {sum(sizes)} bytes of memory")
        self._arenas = [torch.zeros(size, dtype=torch.uint8) for size in sizes]
        self._outside = outside
        self.infos: dict[int, TensorInfo] = {}
        self.values: list[Any] = []
        self._lists: dict[int, Any] = {}
        for index, value in enumerate(plan.values):
            self.values.append(self._value(index, value))

    def _value(self, index: int, value: Any) -> Any:
        if isinstance(value, TensorEntry):
            return self._tensor(index, value)
        if isinstance(value, Items):
            self._lists[index] = list(value.indices)  # looked up when they are read
            return None
        return value

    def _tensor(self, index: int, tensor: TensorEntry) -> Tensor:
        info = _info(index, tensor)
        self.infos[index] = info
        if (key := tensor.outside) is not None:
            if key not in self._outside:
                raise InvalidInput(f"the weights {key!r} lie in another file: name its .ptd")
            return _view(info, _bytes(self._outside[key]))
        if tensor.memory is None:
            if tensor.data is None:
                return _view(info, torch.zeros(_bounded(info.size), dtype=torch.uint8))
            return _view(info, _bytes(tensor.data))
        number, offset = tensor.memory
        if not 0 < number < len(self._arenas):
            raise InvalidInput(f"value {index} lies in memory {number}, which is none")
        made = _view(info, self._arenas[number][offset:])
        if tensor.data is not None:
            made.copy_(_view(info, _bytes(tensor.data)))
        return made

    def read(self, index: int) -> Any:
        """A value, its items looked up if it is a list."""
        if index in self._lists:
            return [None if i < 0 else self.values[i] for i in self._lists[index]]
        return self.values[index]

    def order(self, index: int) -> tuple[int, ...]:
        if index not in self.infos:
            raise InvalidInput(f"a delegate is given value {index}, which is no tensor")
        return self.infos[index].dim_order

    def accept(self, index: int, given: Any, number: int) -> None:
        """Take an input; a number must be the one that the program was made with."""
        info = self.infos.get(index)
        if info is None:
            if given != self.values[index]:
                raise InvalidInput(f"input {number} is fixed to {self.values[index]!r}")
            return
        try:
            tensor = torch.as_tensor(given)
        except (TypeError, ValueError, RuntimeError):
            kind = type(given).__name__
            raise InvalidInput(f"input {number} is {info}, and a {kind} makes no tensor") from None
        if tensor.dtype is not info.dtype or tuple(tensor.shape) != info.shape:
            got = TensorInfo(tensor.dtype, tuple(tensor.shape), ())
            raise InvalidInput(f"input {number} is {info}, not {got}")
        self.values[index].copy_(tensor.detach())

    def result(self, index: int) -> Any:
        """An output, in memory of its own."""
        value = self.read(index)
        return value.clone() if isinstance(value, Tensor) else value

    def store(self, index: int, data: Tensor) -> None:
        """Copy the bytes of a delegate's result, which lie in the order of the tensor's memory."""
        info, target = self.infos.get(index), self.values[index]
        if info is None or data.numel() != info.size:
            raise InvalidInput(f"a delegate gives {data.numel()} bytes for value {index}")
        target.copy_(_view(info, data))


def _info(index: int, tensor: TensorEntry) -> TensorInfo:
    sizes, order = tensor.sizes, tensor.dim_order
    dtype = torch_dtype(tensor.scalar_type)
    if min(sizes, default=0) < 0 or sorted(order) != list(range(len(sizes))):
        raise InvalidInput(f"value {index} has impossible sizes {sizes} or order {order}")
    if tensor.storage_offset:
        raise InvalidInput(f"value {index} starts inside its memory, which is not supported")
    return TensorInfo(dtype, sizes, order)


def torch_dtype(number: int) -> torch.dtype:
    """The type with that number in ExecuTorch's files."""
    if number not in TYPES:
        raise InvalidInput(f"the program has tensors of type {number}, which PyTorch has not")
    return TYPES[number]


def _bounded(size: int) -> int:
    if size > _LARGEST:
        raise InvalidInput(f"a tensor of the program has {size} bytes")
    return size


def _bytes(data: bytes) -> Tensor:
    if not data:
        return torch.zeros(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _view(info: TensorInfo, data: Tensor) -> Tensor:
    """A tensor over bytes."""
    if data.numel() < info.size:
        raise InvalidInput(f"a tensor {info} has {data.numel()} bytes of memory")
    return data[: info.size].view(info.dtype).as_strided(info.shape, info.strides)
