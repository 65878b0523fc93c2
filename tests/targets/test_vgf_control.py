"""Branches and loops for VGF, which has neither: both sides and SELECT, rounds written out."""

import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.vulkan import needs_converter, needs_vulkan

pytestmark = needs_converter


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.deep = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        def yes(x: Tensor) -> tuple[Tensor, Tensor]:
            return torch.relu(x), x.sum()

        def no(x: Tensor) -> tuple[Tensor, Tensor]:
            return self.deep(x), x.amax()

        first, second = torch.cond(x.mean() > 0, yes, no, (x,))
        return first + second


class Loop(nn.Module):
    def __init__(
        self, rounds: int, by_data: bool = False, counter: torch.dtype = torch.int32
    ) -> None:
        super().__init__()
        self.rounds, self.by_data, self.counter = rounds, by_data, counter
        self.step = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        def goes_on(i: Tensor, y: Tensor) -> Tensor:
            return y.sum() < 3 if self.by_data else i < self.rounds

        def body(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, torch.tanh(self.step(y)) + 0.1

        start = torch.zeros((), dtype=self.counter)
        count, y = torch.while_loop(goes_on, body, (start, x))
        return y if self.counter is torch.int32 else y * count


def _inputs() -> list[Tensor]:
    torch.manual_seed(1)
    x = torch.randn(2, 6)
    return [x.abs(), -x.abs(), x]


@pytest.mark.parametrize(
    "model",
    [Branch(), Loop(5), Loop(0), Loop(3, counter=torch.int64)],
    ids=["branch", "loop", "none", "int64"],
)
def test_floats_are_those_of_the_model_on_either_way(model: nn.Module) -> None:
    given = _inputs()
    made = tosaic.compile(model.eval(), (given[0],), target="vgf")
    assert not made.report.refused
    assert len(made.partition.graphs) == 1
    for x in given:
        torch.testing.assert_close(made.run(x), model(x).detach(), rtol=1e-5, atol=1e-5)


@needs_vulkan
@pytest.mark.parametrize("model", [Branch(), Loop(4)], ids=["branch", "loop"])
def test_integers_are_the_same_on_vulkan(model: nn.Module) -> None:
    given = _inputs()
    calibration = [(x,) for x in given]
    made = tosaic.compile(
        model.eval(), calibration[0], target="vgf", scheme="int8", calibration=calibration
    )
    assert not made.report.refused
    for x in given:
        assert torch.equal(made.run(x), made.run(x, engine="vulkan"))


@pytest.mark.parametrize(
    ("model", "reason"),
    [(Loop(100), "the loop has more than 64 rounds"), (Loop(3, True), "when the loop ends")],
    ids=["long", "by data"],
)
def test_other_loops_stay_in_pytorch_with_the_reason(model: nn.Module, reason: str) -> None:
    told = tosaic.explain(model.eval(), (_inputs()[0],), target="vgf")
    assert any(reason in refusal.reason for refusal in told.refused)
