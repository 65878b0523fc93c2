"""The operators of a ``.pte`` by PyTorch's own kernels."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from tosaic.errors import InvalidInput
from tosaic.executorch.memory import Memory
from tosaic.front import torchapi

Kernel = Callable[[Memory, list[int]], None]

_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "mod": operator.mod,
    "floordiv": operator.floordiv, "truediv": operator.truediv, "neg": operator.neg,
    "eq": operator.eq, "gt": operator.gt, "lt": operator.lt, "ge": operator.ge, "le": operator.le,
}  # fmt: skip
# They reach beyond the program's own values.
_FORBIDDEN = ("aten::from_file",)


def kernel_of(name: str, overload: str) -> Kernel:
    """What runs an operator; InvalidInput if nothing here does."""
    space, _, plain = name.partition("::")
    if space == "executorch_prim":
        return _primitive(plain, overload)
    packet = getattr(getattr(torch.ops, space, None), plain, None) if plain else None
    found = getattr(packet, overload or "default", None)
    if not isinstance(found, torch._ops.OpOverload) or name in _FORBIDDEN:
        raise InvalidInput(f"PyTorch has no operator {name}.{overload}, which the program calls")
    return _Call(found)


class _Call:
    """An operator with its results among its arguments, as ExecuTorch calls them."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.arguments = target._schema.arguments
        self.writes = any(a.alias_info is not None and a.alias_info.is_write for a in self.arguments)

    def __call__(self, memory: Memory, indices: list[int]) -> None:
        count = len(self.arguments)
        if len(indices) < count:
            raise InvalidInput(f"{self.target} is called with {len(indices)} values of {count}")
        values = [memory.read(i) for i in indices[:count]]
        split = sum(not a.kwarg_only for a in self.arguments)
        named = {a.name: v for a, v in zip(self.arguments[split:], values[split:])}
        result = self.target(*values[:split], **named)
        if not self.writes:
            for index, value in zip(indices[count:], _several(result)):
                memory.values[index] = value


def _several(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _primitive(name: str, overload: str) -> Kernel:
    if name == "et_view":
        return _view
    if overload == "Scalar" and name in _NUMBERS:
        return _number(_NUMBERS[name])
    raise InvalidInput(f"the program calls executorch_prim::{name}, which is not known here")


def _number(function: Callable[..., Any]) -> Kernel:
    def run(memory: Memory, indices: list[int]) -> None:
        *operands, out = indices
        memory.values[out] = function(*(memory.read(i) for i in operands))

    return run


def _view(memory: Memory, indices: list[int]) -> None:
    source, shape, out = indices[:3]
    memory.values[out] = memory.read(source).view(memory.read(shape))
