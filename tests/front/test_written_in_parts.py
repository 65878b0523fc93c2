"""Results that are put together in place, of empty parts, or in memory that nothing has set."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from judges.programs import INTEGER, Function, agrees_with_reference, check, compiled

SHAPE = 1, 6, 8


def _padded(x: Tensor) -> Tensor:
    y, made = F.pad(x, (1, 1)), torch.zeros_like(x)
    for row in range(3):
        made[:, row] = y[:, row, 1:-1] * 2 + made[:, row - 1]
    return made


def _summed(x: Tensor) -> Tensor:
    made = torch.zeros(1, 6, 6)
    made[0] = torch.einsum("ij,kj->ik", x[0], x[0])
    return made


def _in_a_grid(x: Tensor) -> Tensor:
    rows, columns = torch.meshgrid(x[0, 0], x[0, 1], indexing="ij")
    made = torch.zeros(1, 8, 8)
    made[0] = rows * columns
    return made


def _spread(x: Tensor) -> Tensor:
    one, other = torch.broadcast_tensors(x, x[:, :1])
    made = torch.zeros_like(x)
    made[:, 0] = (one * other)[:, 1].type_as(x)
    return made


def _in_unset_memory(x: Tensor) -> Tensor:
    made = x.new_empty(1, 6, 16)
    made[..., :8] = x * 2
    made[..., 8:] = x - 1
    return made + torch.cat([torch.empty_like(made)[:, :0], made], 1)


def _with_an_empty_part(x: Tensor) -> Tensor:
    turned, rest = x[..., :8].flip(-1) * 0.5, x[..., 8:]
    return torch.cat([turned, rest], -1) + x


FORMS = _padded, _summed, _in_a_grid, _spread, _in_unset_memory, _with_an_empty_part


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_parts_become_a_whole(form: Callable[[Tensor], Tensor]) -> None:
    example = (torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)),)
    check(Function(form), example)


@pytest.mark.parametrize("form", [_padded, _in_unset_memory, _with_an_empty_part])
def test_parts_become_a_whole_in_integers(form: Callable[[Tensor], Tensor]) -> None:
    data = [(torch.randn(SHAPE, generator=torch.Generator().manual_seed(i)),) for i in range(4)]
    art = compiled(Function(form), data[0], INTEGER, calibration=data)
    assert not art.report.refused
    real = form(*data[1])
    noise = (art.run(*data[1]) - real).square().sum() / real.square().sum()
    assert -10 * math.log10(float(noise)) > 28
    agrees_with_reference(art.graph)


class Buckets(nn.Module):
    """Attends with a bias by distance: integers, a log of 0 and writes in place, all known."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bias, self.places = nn.Embedding(8, 1), nn.Embedding(32, 6)

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(6)
        apart = steps[None, :] - steps[:, None]
        bucket = (apart > 0).long() * 4
        far = 2 + (torch.log(apart.abs().float() / 2) / math.log(3)).long()
        bucket += torch.where(apart.abs() < 2, apart.abs(), torch.minimum(far, torch.tensor(3)))
        x = (x @ x.transpose(-1, -2) + self.bias(bucket)[..., 0]).softmax(-1) @ x
        places = (x.argmax(-1) + steps).clamp(0, 31)
        return x * 2 + self.places(places).sum(-1, keepdim=True)


def test_known_integers_beside_writes_and_sums_of_integers_stay_integers() -> None:
    data = [(torch.randn(SHAPE, generator=torch.Generator().manual_seed(i)),) for i in range(4)]
    net = Buckets().eval()
    art = compiled(net, data[0], INTEGER, calibration=data)
    assert not art.report.refused
    real = net(*data[1]).detach()
    assert float((art.run(*data[1]) - real).square().sum() / real.square().sum()) < 0.02
    agrees_with_reference(art.graph)


def test_the_place_of_the_largest_integer_is_found() -> None:
    """As models find the end of a text: the largest token, the first of its kind."""
    ids = torch.tensor([[3, 40_000, 7, 49_407, 49_407, 0], [9, 9, 2, 1, 0, 70_000]])
    check(Function(lambda x: (x.argmax(-1), (x == 9).int().argmax(-1), x.argmin(0))), (ids,),
          target=INTEGER)  # fmt: skip
