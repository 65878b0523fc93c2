"""Runs the CPU operators of a ``.pte`` with PyTorch's kernels."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from tosaic.boundary.ports import without_nan
from tosaic.errors import InvalidInput
from tosaic.executorch.memory import Memory, torch_dtype

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
    # The out variants of these are ExecuTorch's, and wrong for tensors that are not contiguous.
    if space == "dim_order_ops":
        return _copy
    if space == "quantized_decomposed":
        plain = "default" if overload == "out" else overload.removesuffix("_out")
        return _Call(found, getattr(packet, plain, None))
    return _Call(found)


class _Call:
    """An operator with its results among its arguments, as ExecuTorch calls them.

    With ``functional``, that one is called in its stead, and its result copied.
    """

    def __init__(self, target: Any, functional: Any = None) -> None:
        self.target, self.functional = target, functional
        self.arguments = target._schema.arguments
        self.results = [n for n, a in enumerate(self.arguments) if _is_written(a)]

    def __call__(self, memory: Memory, indices: list[int]) -> None:
        count = len(self.arguments)
        if len(indices) < count:
            raise InvalidInput(f"{self.target} is called with {len(indices)} values of {count}")
        values = [_typed(memory.read(i), a) for i, a in zip(indices, self.arguments)]
        if self.functional is not None:
            if "::quantize_per" in self.target._schema.name:
                values[0] = without_nan(values[0])
            made = _call(self.functional, self.arguments, values, self.results)
            for place, value in zip(self.results, _several(made)):
                values[place].copy_(value)
            return
        result = _call(self.target, self.arguments, values, [])
        if not self.results:
            for index, value in zip(indices[count:], _several(result)):
                memory.values[index] = value


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _call(target: Any, arguments: Any, values: list[Any], without: list[int]) -> Any:
    given = [(a, v) for n, (a, v) in enumerate(zip(arguments, values)) if n not in without]
    named = {a.name: v for a, v in given if a.kwarg_only}
    return target(*(v for a, v in given if not a.kwarg_only), **named)


def _typed(value: Any, argument: Any) -> Any:
    """A type is a number in the file."""
    if isinstance(value, int) and "ScalarType" in str(argument.real_type):
        return torch_dtype(value)
    return value


def _several(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _primitive(name: str, overload: str) -> Kernel:
    if name == "et_view":
        return _view
    if overload == "Scalar" and name in _NUMBERS:
        return _number(_NUMBERS[name])
    if name == "et_copy_index":
        return _copy_index
    raise InvalidInput(f"the program calls executorch_prim::{name}, which is not known here")


def _number(function: Callable[..., Any]) -> Kernel:
    def run(memory: Memory, indices: list[int]) -> None:
        *operands, out = indices
        memory.values[out] = function(*(memory.read(i) for i in operands))

    return run


def _copy(memory: Memory, indices: list[int]) -> None:
    """Another order in memory, or another type; both are those of the result."""
    source, out = memory.read(indices[0]), memory.read(indices[-1])
    out.copy_(source)


def _view(memory: Memory, indices: list[int]) -> None:
    source, shape, out = indices[:3]
    memory.values[out] = memory.read(source).view(memory.read(shape))


def _copy_index(memory: Memory, indices: list[int]) -> None:
    """One element of a sequence that a loop fills."""
    out, source, index = (memory.read(i) for i in indices[:3])
    if not isinstance(index, int) or not 0 <= index < len(out):
        raise InvalidInput(f"a loop of the program fills element {index} of {len(out)}")
    out[index].copy_(source)
