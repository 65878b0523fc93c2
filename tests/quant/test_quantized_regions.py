"""Branches and loops in integers: quantized inside, across the border, and exact."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.programs import fed
from judges.reference import run_reference
from tosaic.pipeline.artifact import Artifact

SCHEMES = [("TOSA-1.0+INT+cf", "int8", 25.0), ("TOSA-1.0+INT+int16+cf", "a16w8", 35.0)]
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Branch(nn.Module):
    """A layer in one branch, functions in the other, and two results of different sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        def then(a: Tensor) -> tuple[Tensor, Tensor]:
            return torch.relu(self.linear(a)), a + 1

        def otherwise(a: Tensor) -> tuple[Tensor, Tensor]:
            return torch.tanh(a) * 2, a - 1

        first, second = torch.cond(x.sum() > 0, then, otherwise, (x,))
        return first * 3 + second


class Loop(nn.Module):
    """What goes round grows beyond its start and its end."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        def holds(i: Tensor, v: Tensor) -> Tensor:
            return i < 4

        def body(i: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, torch.tanh(self.linear(v)) * 2 + x

        start = torch.zeros((), dtype=torch.int32)
        return torch.while_loop(holds, body, (start, x * 0.25))[1]


class Nested(nn.Module):
    """A branch in a loop, by a condition on quantized values."""

    def __init__(self, limit: float = 2.0) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        def holds(i: Tensor, v: Tensor) -> Tensor:
            return i < 3

        def body(i: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, torch.cond(
                v.sum() > self.limit, lambda a: a * 0.5, lambda a: torch.tanh(a) + 1, (v,)
            )

        start = torch.zeros((), dtype=torch.int32)
        return torch.while_loop(holds, body, (start, x))[1]


def data(count: int, seed: int) -> list[tuple[Tensor]]:
    make = torch.Generator().manual_seed(seed)
    return [(torch.randn(4, 6, generator=make),) for _ in range(count)]


def is_clear(net: Nested, x: Tensor) -> bool:
    """Whether roundings of the values that decide change no branch."""
    return all(torch.equal(Nested(net.limit + by)(x), net(x)) for by in (-0.2, 0.2))


def check(net: nn.Module, target: str, scheme: str, least: float) -> Artifact:
    """One graph without refusals, as the reference model runs it, near to float."""
    calibration, unseen = data(32, 1), data(24, 2)
    if isinstance(net, Nested):
        unseen = [x for x in unseen if is_clear(net, *x)]
    art = tosaic.compile(net, calibration[0], target=target, scheme=scheme, calibration=calibration)
    assert not art.report.refused, art.report
    assert len(art.partition.graphs) == 1
    model = tosaic.load(art.bytes)
    for x in unseen[:6]:
        ours, theirs = model.run(*fed(art, x)), run_reference(art.bytes, fed(art, x))
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    with torch.no_grad():
        real = torch.cat([net(*x) for x in unseen])
    noise = torch.cat([art.run(*x) for x in unseen]) - real
    found = float(10 * torch.log10(real.square().sum() / noise.square().sum()))
    assert found > least, found
    return art


@pytest.mark.parametrize(("target", "scheme", "least"), SCHEMES)
@pytest.mark.parametrize("kind", [Branch, Loop, Nested])
def test_regions_are_quantized_inside_and_exact(
    kind: type[nn.Module], target: str, scheme: str, least: float
) -> None:
    torch.manual_seed(0)
    art = check(kind().eval(), target, scheme, least)
    wanted = {Branch: {"COND_IF"}, Loop: {"WHILE_LOOP"}, Nested: {"COND_IF", "WHILE_LOOP"}}
    assert wanted[kind] <= set(art.report.ops)


def test_a_branch_that_calibration_never_takes_is_calibrated_nevertheless() -> None:
    class Rare(nn.Module):
        def forward(self, flag: Tensor, x: Tensor) -> Tensor:
            def rarely(a: Tensor) -> Tensor:
                return torch.sigmoid(a * 5) * 8

            return torch.cond(flag, rarely, lambda a: torch.tanh(a) * 8, (x,))

    no, yes = torch.tensor(False), torch.tensor(True)
    calibration = [(no, *x) for x in data(16, 1)]
    net = Rare().eval()
    art = tosaic.compile(net, calibration[0], target=SCHEMES[0][0], calibration=calibration)
    assert not art.report.refused, art.report
    for (x,) in data(4, 2):
        with torch.no_grad():
            real = net(yes, x)
        assert float((art.run(yes, x) - real).abs().max()) < 0.4
        assert float(real.std()) > 2


def test_without_the_extension_the_rest_is_quantized_and_the_branch_runs_in_pytorch() -> None:
    torch.manual_seed(0)
    net, calibration = Branch().eval(), data(32, 1)
    art = tosaic.compile(net, calibration[0], target="TOSA-1.0+INT", calibration=calibration)
    reasons = {r.reason for r in art.report.refused}
    assert "branches and loops need extension cf, which TOSA-1.0+INT lacks" in reasons
    with torch.no_grad():
        real = torch.cat([net(*x) for x in calibration])
    noise = torch.cat([art.run(*x) for x in calibration]) - real
    assert 10 * torch.log10(real.square().sum() / noise.square().sum()) > 25
