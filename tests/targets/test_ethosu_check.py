"""A stream that computes another result than its graph is found when it is compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic


class Sorted(nn.Module):
    """The call that fails has several results, and one of them is read."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sort(torch.relu(x), 1)[0]


def compiled(net: nn.Module, target: str, **options: Any) -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    data = [(torch.randn(3, 8),) for _ in range(4)]
    return tosaic.compile(net.eval(), data[0], target=target, calibration=data, **options), data[1][
        0
    ]


CASES = [
    (Sorted(), "ethos-u85-256", "aten.sort.default"),
]


@pytest.fixture
def unrepaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graphs as they are, without the copies that keep Vela's faults away."""
    monkeypatch.setattr(
        "tosaic.targets.ethosu.vela_workarounds.mend.apply_workarounds", lambda *given: None
    )
    monkeypatch.setattr("tosaic.targets.ethosu.target.mend", lambda *given: None)


@pytest.mark.usefixtures("unrepaired")
@pytest.mark.parametrize(("net", "target", "op"), CASES)
def test_a_call_that_vela_compiles_wrongly_stays_on_the_cpu(
    net: nn.Module, target: str, op: str
) -> None:
    art, x = compiled(net, target)
    (reason,) = [r.reason for r in art.report.refused if r.op == op]
    assert reason.startswith("Vela compiles the graph wrongly")
    assert torch.equal(art.run(x), art.run(x, engine="tosa"))
    assert (art.run(x) - net(x)).abs().max() < 0.05


@pytest.mark.usefixtures("unrepaired")
def test_without_the_check_the_stream_is_wrong() -> None:
    """So that the test above shows what it claims."""
    art, x = compiled(Sorted(), "ethos-u85-256", check=False)
    assert not art.report.refused
    try:
        same = torch.equal(art.run(x), art.run(x, engine="tosa"))
    except tosaic.TosaicError:
        same = False
    assert not same


@pytest.mark.parametrize(("net", "target", "op"), CASES)
def test_with_repairs_all_of_it_runs_on_the_npu(net: nn.Module, target: str, op: str) -> None:
    art, x = compiled(net, target, check=False)
    assert not art.report.refused
    assert torch.equal(art.run(x), art.run(x, engine="tosa"))
    assert (art.run(x) - net(x)).abs().max() < 0.05
