"""Vulkan's numbers of tensor formats and the TOSA types they hold."""

from __future__ import annotations

from tosaic.errors import InvalidGraph
from tosaic.spec.dtypes import (
    BF16,
    BOOL,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    I8,
    I16,
    I32,
    I48,
    DType,
)  # fmt: skip

# VkFormat, from the registry of Vulkan and of its extensions for tensors.
_FORMATS: dict[int, tuple[str, DType]] = {
    13: ("R8Uint", I8),
    14: ("R8Sint", I8),
    74: ("R16Uint", I16),
    75: ("R16Sint", I16),
    76: ("R16Sfloat", F16),
    98: ("R32Uint", I32),
    99: ("R32Sint", I32),
    100: ("R32Sfloat", F32),
    111: ("R64Sint", I48),
    1000460000: ("R8BoolArm", BOOL),
    1000460001: ("R16Bfloat16Arm", BF16),
    1000460002: ("R8Float8E4M3Arm", F8E4M3),
    1000460003: ("R8Float8E5M2Arm", F8E5M2),
}


def dtype_of(number: int) -> DType:
    """The type of a tensor of that format."""
    return _found(number)[1]


def name_of(number: int) -> str:
    """The name of a format, as the SDK's own runner spells it."""
    return _found(number)[0]


def _found(number: int) -> tuple[str, DType]:
    if number not in _FORMATS:
        raise InvalidGraph(f"the file has a tensor of Vulkan format {number}, which TOSA lacks")
    return _FORMATS[number]
