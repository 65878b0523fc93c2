"""Constants that passes keep in a module never take the place of the user's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import tosaic


class Factors(nn.Module):
    """Two products that become one, and a buffer with the name that the pass gives its factor."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.register_buffer(name, torch.tensor([3.0, 2.0, 1.0]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        both = x * torch.tensor([1.0, 2.0, 4.0]) * torch.tensor([2.0, 1.0, 0.5])
        return both, torch.relu(x) * self.get_buffer(self.name)


class Affine(nn.Module):
    """A scale and an offset that become a layer, and a parameter with the name of its bias."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.register_parameter(name, nn.Parameter(torch.tensor([0.5, 2.0, 1.0])))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * torch.tensor([1.0, 2.0, 4.0]) + torch.tensor([1.0, -1.0, 0.5])
        return torch.relu(y), torch.sigmoid(x) * self.get_parameter(self.name)


@pytest.mark.parametrize(
    ("make", "name"), [(Factors, "_factor_0"), (Affine, "_add_bias"), (Affine, "_add_weight")]
)
def test_a_tensor_of_the_user_keeps_its_values(make: type[nn.Module], name: str) -> None:
    shape = (8, 3) if make is Factors else (2, 4, 3)
    net, x = make(name).eval(), torch.linspace(-2, 2, 24).reshape(shape)
    art = tosaic.compile(net, (x,), target="TOSA-1.0+INT+int16", scheme="a16w8", calibration=[(x,)])
    for ours, right in zip(art.run(x), net(x), strict=True):
        assert torch.allclose(ours, right, atol=2e-3), name
