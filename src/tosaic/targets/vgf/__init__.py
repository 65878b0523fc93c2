"""VGF as a target: networks for Vulkan's ML extensions, written by the SDK's model converter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tosaic.targets.family import Family

if TYPE_CHECKING:
    from tosaic.lowering.target import Target


def _make(name: str, options: Mapping[str, Any]) -> Target:
    from tosaic.targets.vgf.target import with_options

    return with_options(options)


FAMILY = Family(
    {"vgf": "Vulkan with VK_ARM_tensors and VK_ARM_data_graph: integers, floats, both at once"},
    _make,
    kinds={"vgf": "VGF"},
)
