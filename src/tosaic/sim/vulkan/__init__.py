"""Runs ``.vgf`` files on a Vulkan driver: hardware, or lavapipe with emulated ML extensions."""

from tosaic.sim.vulkan.session import Session

__all__ = ["Session"]
