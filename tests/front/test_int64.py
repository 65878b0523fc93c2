"""int64 is 32 bits in TOSA: where that is enough, where it is refused, where run checks it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from judges.programs import Function, check, compiled
from tosaic.errors import InvalidInput

BOTH = "TOSA-1.0+INT+FP"


SMALL = [
    lambda x, n: (x > 0).sum(1),
    lambda x, n: torch.arange(4) * 3 + 1,
    lambda x, n: n.clamp(0, 9) * 100 - 7,
    lambda x, n: torch.where(x > 0, 1, 0).sum() * 2,
    lambda x, n: (x.clamp(-8, 8) * 100).to(torch.int64),
    lambda x, n: n.reshape(2, 2).t().flatten(),
    lambda x, n: torch.maximum(n, torch.full((4,), 2)),
]
LARGE = {
    "a sum of inputs": lambda x, n: n + n,
    "a product": lambda x, n: n * 3,
    "a number": lambda x, n: n.clamp(0, 2) + 2**40,
    "a constant": lambda x, n: torch.tensor([2**40, 1, 2, 3]) + (x > 0).sum(),
    "a cast": lambda x, n: (x * 1e10).to(torch.int64),
    "a power": lambda x, n: n**3,
    "a full tensor": lambda x, n: torch.full((4,), 2**35) + (x > 0).sum(),
}


class Fields(nn.Module):
    """A table for several fields, each of which counts from 0."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("starts", torch.tensor([0, 10, 20]))
        self.table = nn.Embedding(30, 4)

    def forward(self, fields: Tensor) -> Tensor:
        places = fields + self.starts.unsqueeze(0)
        return self.table(places) + self.table.weight[places[:, :1]]


@pytest.mark.parametrize("target", [BOTH, "TOSA-1.0+INT"])
def test_what_is_read_as_a_position_alone_is_small(target: str) -> None:
    torch.manual_seed(0)
    data = [(torch.randint(0, 10, (2, 3)),) for _ in range(4)]
    options = {"calibration": data} if target != BOTH else {}
    check(Fields(), *data, target=target, places=0.1, **options)


@pytest.mark.parametrize("index", range(len(SMALL)))
def test_small_int64_values_are_lowered(index: int) -> None:
    torch.manual_seed(0)
    x, n = torch.randn(3, 4), torch.tensor([3, -1, 2**20, 0])
    check(Function(SMALL[index]), (x, n), (x - 1, n), target=BOTH)


@pytest.mark.parametrize("name", LARGE)
def test_int64_values_that_may_not_fit_stay_in_pytorch(name: str) -> None:
    torch.manual_seed(0)
    x, n = torch.randn(3, 4), torch.tensor([3, -1, 2**31 - 1, 0])
    art = check(Function(LARGE[name]), (x, n), target=BOTH, refused=None)
    assert any("fit the 32 bits of TOSA's integers" in r.reason for r in art.report.refused)


def test_an_int64_input_that_does_not_fit_is_named_at_run_time() -> None:
    art = compiled(Function(lambda n: n.flip(0)), (torch.tensor([1, 2]),), BOTH)
    with pytest.raises(InvalidInput, match="inputs_0 holds 4294967296, which does not fit the 32"):
        art.run(torch.tensor([1, 2**32]))


def test_a_number_that_does_not_fit_leaves_its_call_to_pytorch() -> None:
    table = torch.randn(10, 8, generator=torch.Generator().manual_seed(0))
    model, data = Function(lambda n: table[n * 2654435761 % 10] * 2), (torch.arange(6),)
    art = compiled(model, data, "TOSA-1.0+INT", calibration=[data])
    assert "aten.mul.Tensor" in {refusal.op for refusal in art.report.refused}
    assert torch.allclose(art.run(*data), model(*data), atol=0.1)
