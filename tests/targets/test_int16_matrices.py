"""Products of two computed int16 matrices on the NPUs that multiply matrices of int8 alone."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import tosaic

CASES: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "few columns": (torch.bmm, ((2, 20, 24), (2, 24, 5))),
    "few rows": (torch.bmm, ((2, 3, 24), (2, 24, 40))),
    "many of both": (torch.bmm, ((1, 140, 9), (1, 9, 130))),
    "long sums": (torch.bmm, ((1, 129, 600), (1, 600, 130))),
    "a vector": (torch.matmul, ((3, 7, 33), (3, 33, 1))),
    "attention": (nn.functional.scaled_dot_product_attention, ((1, 2, 12, 16),) * 3),
    "causal attention": (
        lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        ((1, 2, 12, 16),) * 3,
    ),
}  # fmt: skip


class Function(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.function(*tensors)


def signal_to_noise(real: Tensor, made: Tensor) -> float:
    return float(10 * torch.log10(real.square().sum() / (made - real).square().sum()))


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-256"])
@pytest.mark.parametrize("name", CASES)
def test_products_are_whole_and_as_precise_as_with_int48(name: str, target: str) -> None:
    function, shapes = CASES[name]
    random = torch.Generator().manual_seed(len(name))
    data = [tuple(torch.randn(s, generator=random) for s in shapes) for _ in range(4)]
    net, x = Function(function), data[-1]
    made, wide = (
        tosaic.compile(net, x, target=each, scheme="a16w8", calibration=data)
        for each in (target, "TOSA-1.0+INT+int16")
    )
    assert not made.report.refused
    assert wide.report.ops["MATMUL"]
    result, real = made.run(*x), net(*x)
    assert len(result.unique()) > 15
    assert torch.equal(result, made.run(*x, engine="tosa"))
    assert signal_to_noise(real, result) > signal_to_noise(real, wide.run(*x)) - 2
