"""Runs the CPU operators of a ``.pte`` with PyTorch's kernels."""

from __future__ import annotations

import importlib.util
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from tosaic.boundary.qparams import without_nan
from tosaic.errors import InvalidInput
from tosaic.executorch.api import quiet
from tosaic.executorch.memory import Memory, torch_dtype

Kernel = Callable[[Memory, Sequence[int]], None]

_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "mod": operator.mod,
    "floordiv": operator.floordiv, "truediv": operator.truediv, "neg": operator.neg,
    "eq": operator.eq, "gt": operator.gt, "lt": operator.lt, "ge": operator.ge, "le": operator.le,
}  # fmt: skip
# They reach beyond the program's own values.
_FORBIDDEN = ("aten::from_file",)


def register_kernels(names: Iterable[str]) -> None:
    """Has PyTorch know the operators of a program that others than it bring."""
    if {name.partition("::")[0] for name in names} <= {"aten", "executorch_prim", "dim_order_ops"}:
        return
    from torch.ao.quantization.fx import _decomposed  # noqa: F401

    if importlib.util.find_spec("executorch") is not None:
        with quiet():
            import executorch.kernels.quantized  # noqa: F401  (loads a library, and no Python)


def kernel_of(name: str, overload: str) -> Kernel:
    """What runs an operator; InvalidInput if nothing here does."""
    space, _, plain = name.partition("::")
    if space == "executorch_prim":
        return _primitive(plain, overload)
    if space == "dim_order_ops":
        return _copy
    packet = getattr(getattr(torch.ops, space, None), plain, None) if plain else None
    # The out variants of these are ExecuTorch's, and wrong for tensors that are not contiguous.
    is_copied = space == "quantized_decomposed"
    if is_copied:
        overload = "" if overload == "out" else overload.removesuffix("_out")
    found = getattr(packet, overload or "default", None)
    if not isinstance(found, torch._ops.OpOverload) or name in _FORBIDDEN:
        raise InvalidInput(f"PyTorch has no operator {name}.{overload}, which the program calls")
    return _Call(found, is_copied)


class _Call:
    """An operator with its results among its arguments, as ExecuTorch calls them.

    If ``copies``, it returns them, and they are copied to where they belong.
    """

    def __init__(self, target: Any, copies: bool) -> None:
        self.target, self.copies = target, copies
        self.arguments = target._schema.arguments
        self.writes = any(map(_is_written, self.arguments))

    def __call__(self, memory: Memory, indices: Sequence[int]) -> None:
        count = len(self.arguments)
        if len(indices) < count + self.copies:
            raise InvalidInput(f"{self.target} is called with {len(indices)} values of {count}")
        values = [_typed(memory.read(i), a) for i, a in zip(indices, self.arguments)]
        if self.copies and "::quantize_per" in self.target._schema.name:
            values[0] = without_nan(values[0])
        given = [*zip(self.arguments, values)]
        result = self.target(
            *(v for a, v in given if not a.kwarg_only),
            **{a.name: v for a, v in given if a.kwarg_only},
        )
        for index, value in zip(indices[count:], _several(result) if not self.writes else ()):
            if self.copies:
                memory.read(index).copy_(value)
            else:
                memory.values[index] = value


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


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
    def run(memory: Memory, indices: Sequence[int]) -> None:
        *operands, out = indices
        memory.values[out] = function(*(memory.read(i) for i in operands))

    return run


def _copy(memory: Memory, indices: Sequence[int]) -> None:
    """Another order in memory, or another type; both are those of the result."""
    source, out = memory.read(indices[0]), memory.read(indices[-1])
    out.copy_(source)


def _view(memory: Memory, indices: Sequence[int]) -> None:
    source, shape, out = indices[:3]
    memory.values[out] = memory.read(source).view(memory.read(shape))


def _copy_index(memory: Memory, indices: Sequence[int]) -> None:
    """One element of a sequence that a loop fills."""
    out, source, index = (memory.read(i) for i in indices[:3])
    if not isinstance(index, int) or not 0 <= index < len(out):
        raise InvalidInput(f"a loop of the program fills element {index} of {len(out)}")
    out[index].copy_(source)
