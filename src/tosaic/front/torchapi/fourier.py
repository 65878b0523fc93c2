"""The operator of Fourier transforms that programs for targets with FFT operators call."""

from __future__ import annotations

import torch
from torch import Tensor

_library = torch.library.Library("tosaic", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define(  # type: ignore[no-untyped-call]
    "fft2d(Tensor re, Tensor? im, bool inverse) -> (Tensor, Tensor)"
)


@torch.library.impl(_library, "fft2d", "CompositeExplicitAutograd")
def _fft2d(re: Tensor, im: Tensor | None, inverse: bool) -> tuple[Tensor, Tensor]:
    """The transform of [N, H, W] over height and width, not normalised; half of a real one's."""
    if im is None:
        made = torch.fft.rfft2(re)
    elif inverse:
        made = torch.fft.ifft2(torch.complex(re, im), norm="forward")
    else:
        made = torch.fft.fft2(torch.complex(re, im))
    return made.real.clone(), made.imag.clone()


FFT2D = torch.ops.tosaic.fft2d.default
