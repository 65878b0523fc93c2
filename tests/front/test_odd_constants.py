"""Constants of many elements beside functions of one value."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import tosaic


class Divided(nn.Module):
    """A quotient by a constant vector, beside a selection that no result needs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(9)
        self.register_buffer("divisor", torch.randn(12))

    def forward(self, picked: Tensor, x: Tensor) -> Tensor:
        rows = picked[picked[..., 0] == picked[..., 0]]
        quotient = x / (self.divisor.abs() + 0.23)
        rows.fill_diagonal_(-1.09)
        return quotient


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_functions_of_a_constant_vector_are_no_numbers(scheme: str) -> None:
    torch.manual_seed(0)
    data = [(torch.randn(1, 2, 1, 1, 1, 6), torch.rand(12) * 70 - 40) for _ in range(16)]
    model = Divided()
    art = tosaic.compile(model, data[0], target="ethos-u55-128", scheme=scheme, calibration=data)
    right, ours = model(*data[1]), art.run(*data[1])
    noise = (right - ours).square().mean() / right.square().mean()
    assert noise < (1e-3 if scheme == "int8" else 1e-7)
