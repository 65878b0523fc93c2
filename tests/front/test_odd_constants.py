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


class Scheduled(nn.Module):
    """A schedule that is computed as tensors and read as numbers, as samplers of diffusion do."""

    def forward(self, x: Tensor) -> Tensor:
        for sigma in torch.linspace(0.25, 1.0, 4).tolist():
            x = x + (sigma * 0.5) * torch.sin(x)
            x = torch.cat([x, torch.full_like(x[:, :1], sigma + 0.125)], 1)
        return x


@pytest.mark.parametrize("target", ["TOSA-1.0+FP", "TOSA-1.0+INT", "ethos-u55-128"])
def test_numbers_that_python_reads_from_constants_are_numbers(target: str) -> None:
    x = (torch.randn(2, 5, generator=torch.Generator().manual_seed(0)),)
    art = tosaic.compile(Scheduled(), x, target=target, calibration=[x])
    assert not art.report.refused
    error = (art.run(*x) - Scheduled()(*x)).abs().max()
    assert error < (1e-5 if "FP" in target else 0.1)
