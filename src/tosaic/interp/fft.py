"""Fourier transforms of [N, H, W] over height and width, not normalised."""

from __future__ import annotations

import torch
from torch import Tensor

from tosaic.interp.kernel import Context, Run, kernel
from tosaic.ir.graph import Op


def _parts(spectrum: Tensor) -> tuple[Tensor, Tensor]:
    return spectrum.real, spectrum.imag


@kernel("FFT2D")
def fft2d(op: Op, context: Context) -> Run:
    inverse = op.attrs["inverse"]

    def run(real: Tensor, imag: Tensor) -> tuple[Tensor, Tensor]:
        signal = torch.complex(real, imag)
        if inverse:
            return _parts(torch.fft.ifft2(signal, norm="forward"))
        return _parts(torch.fft.fft2(signal))

    return run


@kernel("RFFT2D")
def rfft2d(op: Op, context: Context) -> Run:
    return lambda real: _parts(torch.fft.rfft2(real))
