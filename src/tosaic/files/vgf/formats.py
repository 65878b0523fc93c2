"""Vulkan's numbers of tensor formats and the TOSA types they hold."""

from __future__ import annotations

import re

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


def format_name(number: int) -> str:
    """The name of a format, as Vulkan spells it."""
    words = re.findall(r"[A-Z][a-z]*[0-9]*|[0-9]+", _found(number)[0])
    special = {"R8BoolArm": "R8_BOOL_ARM", "R16Bfloat16Arm": "R16_SFLOAT_FPENCODING_BFLOAT16_ARM",
               "R8Float8E4M3Arm": "R8_SFLOAT_FPENCODING_FLOAT8E4M3_ARM",
               "R8Float8E5M2Arm": "R8_SFLOAT_FPENCODING_FLOAT8E5M2_ARM"}  # fmt: skip
    return "VK_FORMAT_" + special.get(_found(number)[0], "_".join(words).upper())


def vulkan_name(kind: DType) -> str:
    """The name of a type's format, as Vulkan spells it."""
    return _VULKAN[kind]


_VULKAN = {
    I8: "VK_FORMAT_R8_SINT", I16: "VK_FORMAT_R16_SINT", I32: "VK_FORMAT_R32_SINT",
    F32: "VK_FORMAT_R32_SFLOAT", F16: "VK_FORMAT_R16_SFLOAT", BOOL: "VK_FORMAT_R8_BOOL_ARM",
}  # fmt: skip


def _found(number: int) -> tuple[str, DType]:
    if number not in _FORMATS:
        raise InvalidGraph(f"the file has a tensor of Vulkan format {number}, which TOSA lacks")
    return _FORMATS[number]
