"""Values of a ``.pte`` program: tensors in the memory that the file plans, numbers and lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tosaic.errors import InvalidInput
from tosaic.executorch.programreader import Items, Plan, TensorEntry
from tosaic.executorch.tensors import KINDS, TensorInfo, check_kind, check_room, described

TYPES = {number: getattr(torch, kind) for number, (kind, _) in KINDS.items()}


class Memory:
    """Values by index. Tensors that share planned memory share it here."""

    def __init__(
        self, plan: Plan, infos: Mapping[int, TensorInfo], outside: Mapping[str, bytes]
    ) -> None:
        self._arenas = [torch.zeros(size, dtype=torch.uint8) for size in plan.arenas]
        self._outside, self._infos = outside, infos
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
        info = self._infos[index]
        if tensor.outside is not None:
            return _view(info, _bytes(self._outside[tensor.outside]))
        if tensor.memory is None:
            if tensor.data is None:
                return _view(info, torch.zeros(info.size, dtype=torch.uint8))
            return _view(info, _bytes(tensor.data))
        number, offset = tensor.memory
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
        if index not in self._infos:
            raise InvalidInput(f"a delegate is given value {index}, which is no tensor")
        return self._infos[index].dim_order

    def accept(self, index: int, given: Any, number: int) -> None:
        """Take an input; a number must be the one that the program was made with."""
        info = self._infos.get(index)
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
            kind = str(tensor.dtype).removeprefix("torch.")
            got = described(kind, tuple(tensor.shape))
            raise InvalidInput(f"input {number} is {info}, not {got}")
        self.values[index].copy_(tensor.detach())

    def result(self, index: int) -> Any:
        """An output, in memory of its own."""
        value = self.read(index)
        return value.clone() if isinstance(value, Tensor) else value

    def store(self, index: int, data: Tensor) -> None:
        """Copy the bytes of a delegate's result, which lie in the order of the tensor's memory."""
        info, target = self._infos.get(index), self.values[index]
        if info is None or data.numel() != info.size:
            raise InvalidInput(f"a delegate gives {data.numel()} bytes for value {index}")
        target.copy_(_view(info, data))


def torch_dtype(number: int) -> torch.dtype:
    """The type with that number in ExecuTorch's files."""
    check_kind(number)
    found: torch.dtype = TYPES[number]
    return found


def _bytes(data: bytes) -> Tensor:
    if not data:
        return torch.zeros(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _view(info: TensorInfo, data: Tensor) -> Tensor:
    """A tensor over bytes."""
    check_room(info, data.numel())
    return data[: info.size].view(info.dtype).as_strided(info.shape, info.strides)
