"""The device that a plan computes on: the processor, or a GPU through CUDA.

Kernels are the same torch operations on both. While a plan is prepared or run for a GPU, constants
and what kernels make are tensors of that device, and arithmetic is that of IEEE floats in direct
convolutions: cuDNN's transforms and TF32 are not exact on integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from tosaic.errors import InvalidInput, ToolMissing

CPU = "cpu"
_current: ContextVar[str] = ContextVar("device", default=CPU)


def is_gpu() -> bool:
    """Whether kernels are made for a GPU now."""
    return _current.get() != CPU


def placed(tensor: Tensor) -> Tensor:
    """A tensor on the device that kernels are made for."""
    return tensor.to(_current.get()) if is_gpu() else tensor


@contextmanager
def on(device: str) -> Iterator[None]:
    """Kernels are made for a device, and run there, inside of this."""
    if device == _current.get():
        yield
        return
    token = _current.set(device)
    try:
        with torch.device(device):
            yield
    finally:
        _current.reset(token)


@contextmanager
def exact_cuda() -> Iterator[None]:
    """Settings of the process under which sums of floats that hold integers are exact."""
    backends: Any = torch.backends
    cudnn, matmul = backends.cudnn, backends.cuda.matmul
    previous = cudnn.enabled, matmul.fp32_precision
    cudnn.enabled, matmul.fp32_precision = False, "ieee"
    try:
        yield
    finally:
        cudnn.enabled, matmul.fp32_precision = previous


def checked_memory(most: object) -> None:
    """InvalidInput where a limit of memory is no number of bytes."""
    if most is not None and (type(most) is not int or most <= 0):
        raise InvalidInput(f"max_memory is a number of bytes, as 2 << 30, not {most!r}")


def spelled(device: object) -> str:
    """The name of a device that may be on some machine; an error for any other."""
    name = str(device)
    kind, _, number = name.partition(":")
    if kind == CPU and not number:
        return CPU
    if kind != "cuda" or (number and not number.isdigit()):
        raise InvalidInput(f"device '{name}' is not known: it is cpu, cuda or cuda:N")
    return name


def checked(device: object) -> str:
    """The name of a device that is there; an error with the way out for any other."""
    name = spelled(device)
    if name == CPU:
        return CPU
    if not torch.cuda.is_available():
        raise ToolMissing(
            "torch sees no CUDA device here: install a build of torch for CUDA on a machine with a "
            f"GPU, or leave out device='{name}'"
        )
    number = name.partition(":")[2]
    if number and int(number) >= torch.cuda.device_count():
        raise InvalidInput(f"there is no {name}: torch sees {torch.cuda.device_count()} devices")
    return name
