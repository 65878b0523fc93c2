"""Cortex-M cores under QEMU: C programs built, run with tensors in files, instructions counted."""
