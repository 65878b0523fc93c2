"""Interpolation between corners to axes of one element, where PyTorch takes the first."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tosaic


class Resized(nn.Module):
    def __init__(self, size: tuple[int, ...], mode: str) -> None:
        super().__init__()
        self.size, self.mode = size, mode

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, size=self.size, mode=self.mode, align_corners=True)


SIZES = {
    "trilinear": [(1, 1, 1), (2, 1, 1), (1, 3, 1), (1, 1, 4), (5, 1, 1)],
    "bilinear": [(1, 1), (3, 1), (1, 6)],
    "linear": [(1,)],
}


@pytest.mark.parametrize("scheme", [None, "int8", "a16w8"])
@pytest.mark.parametrize(("mode", "size"), [(m, s) for m, sizes in SIZES.items() for s in sizes])
def test_the_first_element_is_taken(mode: str, size: tuple[int, ...], scheme: str | None) -> None:
    torch.manual_seed(0)
    shape = (1, 7, *(4, 3, 5)[: len(size)])
    data = [(torch.randn(shape),) for _ in range(16)]
    model = Resized(size, mode)
    if scheme is None:
        art = tosaic.compile(model, data[0], target="TOSA-1.0+FP")
    else:
        art = tosaic.compile(
            model, data[0], target="TOSA-1.0+INT+int16", scheme=scheme, calibration=data
        )
    assert not art.report.refused
    right = torch.cat([model(*each) for each in data])
    noise = right - torch.cat([art.run(*each) for each in data])
    bound = {None: 1e-12, "int8": 1e-3, "a16w8": 1e-7}[scheme]
    assert noise.square().mean() < bound * right.square().mean()
