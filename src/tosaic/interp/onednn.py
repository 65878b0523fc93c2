"""oneDNN's 8-bit convolution: exact int32 accumulators, then one float32 scale and offset.

Its result is `acc * slope + offset`, each operation rounded to float32, then rounded half to
even and saturated if the output is 8-bit. That is observed, not documented, and processors
without VNNI saturate products: `available` tries it once a process, and each fused layer is
tried again on its own shape (`fused.py`). PyTorch's operator takes uint8 inputs only, so int8
tensors come as `value + 128`, the *offset carrier*: torch.uint8, never a TOSA type of its own.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.interp.device import is_gpu

OFFSET = 128


def to_carrier(x: Tensor) -> Tensor:
    """An int8 tensor as uint8 with 128 added; a carrier comes back as it is."""
    return x if x.dtype is torch.uint8 else x.view(torch.uint8) ^ OFFSET


def from_carrier(x: Tensor) -> Tensor:
    """The int8 tensor that a carrier holds; an int8 tensor comes back as it is."""
    return (x ^ OFFSET).view(torch.int8) if x.dtype is torch.uint8 else x


class IntegerConvolution:
    """One packed convolution of a carrier (NCHW, channels last) with int8 weights (OIHW)."""

    __slots__ = ("_arguments", "_input_zp", "_none", "_offset", "_packed", "_slope")

    def __init__(
        self,
        weight: Tensor,
        input_shape: tuple[int, ...],
        *,
        input_zp: int,
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        groups: int,
        slope: Tensor | None = None,
        offset: Tensor | None = None,
    ) -> None:
        channels = len(weight)
        self._slope = torch.ones(channels) if slope is None else slope
        self._offset = torch.zeros(channels) if offset is None else offset
        self._none = torch.zeros(channels, dtype=torch.int32)
        self._input_zp = input_zp + OFFSET
        self._arguments = (list(stride), list(padding), list(dilation), groups, 1.0, 0)
        self._packed = torch.ops.onednn.qconv_prepack(
            weight.to(torch.int8),
            self._slope,
            1.0,
            self._input_zp,
            *self._arguments[:4],
            list(input_shape),
        )

    def __call__(
        self, x: Tensor, dtype: torch.dtype, levels: tuple[int, int] | None = None
    ) -> Tensor:
        """float32 results, or 8-bit ones limited to `levels`."""
        limits = ("none", []) if levels is None else ("hardtanh", list(levels))
        result: Tensor = torch.ops.onednn.qconv2d_pointwise(
            x,
            1.0,
            self._input_zp,
            self._packed,
            self._slope,
            self._none,
            self._offset,
            *self._arguments,
            dtype,
            *limits,
            "",
        )
        return result


def _agrees(channels: int, outputs: int, kernel: int, groups: int, stride: int) -> bool:
    """Does one convolution at extreme values give the arithmetic that our proofs assume?"""
    generator = torch.Generator().manual_seed(channels)
    shape = (2, 9, 9, channels)
    x = torch.randint(0, 256, shape, generator=generator).to(torch.uint8).permute(0, 3, 1, 2)
    x[0] = 255
    weight = torch.randint(
        -128, 128, (outputs, channels // groups, kernel, kernel), generator=generator
    )
    weight[0], weight[1] = 127, -128
    slope = torch.rand(outputs, generator=generator) * 1e-3
    offset = torch.rand(outputs, generator=generator) * 100
    padding = kernel // 2
    for input_zp in (-128, 5, 127):
        run = IntegerConvolution(
            weight,
            tuple(x.shape),
            input_zp=input_zp,
            stride=(stride, stride),
            padding=(padding, padding),
            dilation=(1, 1),
            groups=groups,
            slope=slope,
            offset=offset,
        )
        values = x.double() - (input_zp + OFFSET)
        exact = F.conv2d(values, weight.double(), None, stride, padding, 1, groups)
        scaled = (exact.float() * slope[:, None, None]) + offset[:, None, None]
        byte = scaled.round().clamp(10, 200).to(torch.uint8)
        if not torch.equal(run(x, torch.float32), scaled):
            return False
        if not torch.equal(run(x, torch.uint8, (10, 200)), byte):
            return False
    return True


def available() -> bool:
    """Is the operator there, and is it exact on this processor? A GPU has none."""
    return not is_gpu() and _works()


@lru_cache(maxsize=1)
def _works() -> bool:
    cases = ((3, 32, 3, 1, 2), (64, 48, 1, 1, 1), (40, 40, 3, 40, 1), (96, 16, 3, 1, 1))
    try:
        with torch.no_grad():
            return all(_agrees(*case) for case in cases)
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
