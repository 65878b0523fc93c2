"""What messages of Vulkan's loader, of its layers and of the runner mean, and the way out."""

from __future__ import annotations

from tosaic.errors import ToolFailed, ToolMissing, first_line
from tosaic.sim.vulkan.environment import APT, PIP

_CAUSES = (
    ("Cannot find queue index",
     f"the driver has no data graphs, and the emulation layers did not load: {PIP}, or choose "
     "another device"),
    ("ErrorFeatureNotPresent",
     "the emulation layers are in the wrong order (the graph layer has to come first), or the "
     "driver lacks a feature that they need: lavapipe of Mesa 22.3 or newer has all of them"),
    ("requires extension: VK_ARM_tensors",
     "the emulation layers are in the wrong order: the graph layer has to come first"),
    ("ErrorIncompatibleDriver", f"no Vulkan driver is here: {APT}"),
    ("Failed to load vulkan library", f"Vulkan's loader is missing: {APT}"),
    ("ErrorLayerNotPresent", f"the emulation layers are missing: {PIP}"),
    ("ErrorOutOf", "the driver has no memory left for this graph"),
    ("ErrorDeviceLost", "the Vulkan device was lost while it computed"),
    ("ErrorInitializationFailed", "the Vulkan driver does not start"),
)  # fmt: skip


def cause_of(problem: BaseException, doing: str) -> ToolFailed:
    """The error that a user reads for one of the runner's own."""
    said = str(problem)
    for words, cause in _CAUSES:
        if words in said:
            return ToolMissing(f"{cause} (Vulkan says: {first_line(problem)})")
    return ToolFailed(f"Vulkan fails while {doing}: {first_line(problem)}")
