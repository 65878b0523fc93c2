"""The registry of kernels: how each TOSA operator is computed on torch tensors.

A kernel is registered as a maker: it gets the operator once, reads its attributes, types and
constant operands, and returns the function that runs: one tensor for each operand in, the
result (or a tuple of results) out. Integers are exact; what TOSA leaves unpredictable raises.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tosaic.interp.bounds import Bounds
from tosaic.interp.device import placed
from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.spec import dtypes as d

Run = Callable[..., Any]
RegionRun = Callable[[Sequence[Tensor]], list[Tensor]]

TORCH: dict[d.DType, torch.dtype] = {
    d.BOOL: torch.bool,
    d.I4: torch.int8,
    d.I8: torch.int8,
    d.I16: torch.int16,
    d.I32: torch.int32,
    d.I48: torch.int64,
    d.I64: torch.int64,
    d.SHAPE: torch.int64,
    d.F16: torch.float16,
    d.BF16: torch.bfloat16,
    d.F32: torch.float32,
    d.F8E4M3: torch.float8_e4m3fn,
    d.F8E5M2: torch.float8_e5m2,
    d.F6E2M3: torch.int8,  # uint8 is what fused kernels carry int8 in
    d.F6E3M2: torch.int8,
    d.F4E2M1: torch.int8,
    d.F8UE8M0: torch.int8,
    d.MXI8: torch.int8,
}
# Types that numpy and torch exchange by their bits.
_BITS = {
    torch.bfloat16: (np.int16, torch.int16),
    torch.float8_e4m3fn: (np.int8, torch.int8),
    torch.float8_e5m2: (np.int8, torch.int8),
}


@dataclass(slots=True)
class Context:
    """What a maker may ask of the plan it becomes part of."""

    plan_region: Callable[[Graph], RegionRun]
    variables: dict[str, Tensor] = field(default_factory=dict)
    constants: set[int] = field(default_factory=set)  # where the constants lie in memory
    rescales: dict[object, Run] = field(default_factory=dict)  # by their parameters
    bounds: Bounds = field(default_factory=Bounds)

    def keeps(self, tensor: Tensor) -> bool:
        """Whether a tensor lies in memory that the next run reads, too."""
        held = (place(v) for v in self.variables.values())
        return place(tensor) in self.constants or place(tensor) in held


def place(tensor: Tensor) -> int:
    """Where the memory of a tensor begins, the same for all views of it."""
    return tensor.untyped_storage().data_ptr()


Maker = Callable[[Op, Context], Run]
KERNELS: dict[str, Maker] = {}


def kernel(*names: str) -> Callable[[Maker], Maker]:
    """Register a maker for operators."""

    def register(maker: Maker) -> Maker:
        for name in names:
            KERNELS[name] = maker
        return maker

    return register


@cache
def _allow_constants() -> None:
    """Use up PyTorch's one warning of a tensor over constants: no kernel writes into an operand."""
    constant = np.zeros(1)
    constant.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(constant)


def to_torch(array: Array, dtype: d.DType) -> Tensor:
    """A tensor over the array's memory where torch knows the type (ml_dtypes by their bits).

    A plan for a GPU gets a copy there.
    """
    target = TORCH[dtype]
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array).reshape(array.shape)
    if dtype.kind == "mx":
        array = array.view(np.int8)
    bits = _BITS.get(target)
    if not array.flags.writeable:
        _allow_constants()
    tensor = torch.from_numpy(array if bits is None else array.view(bits[0]))
    return placed(tensor if bits is None else tensor.view(target))


def to_numpy(tensor: Tensor, dtype: d.DType) -> Array:
    """The array of a tensor, in the type that TOSA's type is held in."""
    tensor = tensor.contiguous()
    bits = _BITS.get(tensor.dtype)
    if dtype.kind == "mx":
        return tensor.numpy().view(dtype.array)
    return tensor.numpy() if bits is None else tensor.view(bits[1]).numpy().view(dtype.array)


def constant(value: Value) -> Tensor | None:
    """A constant operand as a tensor, or None if it is computed at run time."""
    return None if value.const is None else to_torch(value.const.array, value.dtype)
