"""A saved file takes inputs in the order of the model's arguments and gives results in its own."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.interp.model import Model


class Backwards(nn.Module):
    """Reads its last argument first, and gives last what it computes first."""

    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        early = (c * 2).tanh()
        late = b - a
        return late + 1, late, early


@pytest.mark.parametrize(
    "options", [{}, {"scheme": "int8"}, {"scheme": "int8", "io": "int8"}], ids=str
)
def test_a_file_is_called_by_position_as_the_model_is(
    options: dict[str, str], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    inputs = tuple(torch.randn(2, 3) for _ in range(3))
    calibration = [inputs] if options else None
    made = tosaic.compile(
        Backwards(), inputs, target="TOSA-1.0+INT+FP", calibration=calibration, **options
    )
    made.save(tmp_path / "net.tosa")
    file = tosaic.load(tmp_path / "net.tosa")
    assert isinstance(file, Model)
    assert [port.name for port in file.inputs] == ["a", "b", "c"]
    assert [port.name for port in file.outputs] == ["add", "sub", "tanh"]
    if "io" not in options:
        for got, wanted in zip(file.run(*inputs), Backwards()(*inputs), strict=True):
            torch.testing.assert_close(torch.from_numpy(got), wanted, atol=0.05, rtol=0)


class Between(nn.Module):
    """A call that PyTorch keeps lies between two graphs."""

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        kept = torch.bincount((b > 0).flatten().to(torch.int64), minlength=2)[:2].float()
        return a * kept, b - a


def test_what_pytorch_gives_comes_behind_the_arguments() -> None:
    inputs = torch.randn(3, 2), torch.randn(3, 2)
    made = tosaic.compile(Between(), inputs, target="TOSA-1.0+INT+FP")
    for got, wanted in zip(made.run(*inputs), Between()(*inputs), strict=True):
        torch.testing.assert_close(got, wanted)
    names = [[value.name for value in graph.inputs] for graph in made.partition.graphs]
    assert names[-1][0] == "a"
    assert len(names[-1]) > 1
