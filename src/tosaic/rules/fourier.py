"""Fourier transforms, for targets that have operators of them."""

from __future__ import annotations

from typing import Any

from tosaic.errors import Unsupported
from tosaic.front.registry import rule
from tosaic.ir.graph import Value
from tosaic.lowering.builder import Lowering


@rule("tosaic.fft2d.default", integers=(), why="TOSA has transforms of float32 alone")
def fft2d(b: Lowering, re: Value, im: Value | None, inverse: bool) -> Any:
    """The transform of [N, H, W] over height and width, not normalised; half of a real one's."""
    if re.quant is not None:
        raise Unsupported("TOSA has Fourier transforms of float32 alone")
    return b.RFFT2D(re) if im is None else b.FFT2D(re, im, inverse=inverse)
