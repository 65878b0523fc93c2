"""Quotients and remainders of integers on NPUs that have neither division nor comparisons."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from judges.programs import Function, agrees_with_reference, compiled

FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "by a number": lambda x, y: x // -7 + y % 1000,
}


def pairs() -> tuple[Tensor, Tensor]:
    """Extremes, neighbours of multiples, and numbers of every length."""
    random = torch.Generator().manual_seed(3)
    ends = [1 - 2**31, 2**31 - 1, -(2**30), 2**30, 2**30 + 1, -1, 0, 1, 2, 3, 7, 46341, 65535]
    x, y = (list(v) for v in zip(*((a, b) for a in ends for b in ends if b), strict=True))
    bits = torch.randint(1, 31, (600, 2), generator=random)
    more = (torch.rand(600, 2, generator=random, dtype=torch.float64) * 2**bits).long() + 1
    signs = torch.randint(0, 2, (600, 2), generator=random) * 2 - 1
    near = (more[:, 0] // more[:, 1]) * more[:, 1] - torch.arange(600) % 3 + 1
    x += [*(more[:, 0] * signs[:, 0]).tolist(), *near.tolist()]
    y += [*(more[:, 1] * signs[:, 1]).tolist(), *more[:, 1].tolist()]
    length = len(x) // 4 * 4
    made = [torch.tensor(v[:length], dtype=torch.int32).reshape(4, -1) for v in (x, y)]
    return made[0], made[1]


# One form shows that the other NPU is treated alike.
@pytest.mark.parametrize(
    ("name", "target"), [*((name, "ethos-u55-128") for name in FORMS), ("floor", "ethos-u65-256")]
)
def test_integers_are_divided_exactly(name: str, target: str) -> None:
    inputs = pairs()
    art = compiled(Function(FORMS[name]), inputs, target)
    assert not art.report.refused
    for engine in ("npu", "tosa"):
        assert torch.equal(art.run(*inputs, engine=engine), FORMS[name](*inputs)), engine
    agrees_with_reference(art.graph)
