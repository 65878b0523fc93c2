"""torch.cond and while_loop: regions of a graph where the specification has them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.programs import INTEGER, check, compiled

FLOAT_CF, BOTH_CF = "TOSA-1.0+FP+cf", "TOSA-1.0+INT+FP+cf"
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Branch(nn.Module):
    """One branch uses a parameter, the other gives an operand back; two results."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, flag: Tensor, x: Tensor) -> Tensor:
        def then(a: Tensor) -> tuple[Tensor, Tensor]:
            return torch.relu(self.linear(a)), a + 1

        def otherwise(a: Tensor) -> tuple[Tensor, Tensor]:
            return a * 2, a - 1

        first, second = torch.cond(flag, then, otherwise, (x + 1,))
        return first * 3 + second


class Loop(nn.Module):
    """Counts and multiplies; reads a tensor that it does not change."""

    def forward(self, x: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        def holds(i: Tensor, v: Tensor) -> Tensor:
            return i < 5

        def body(i: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, v * 1.5 + step

        count, value = torch.while_loop(holds, body, (torch.zeros((), dtype=torch.int64), x))
        return count, value + 1


class Nested(nn.Module):
    """A branch in a loop, by a condition that is computed."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def holds(i: Tensor, v: Tensor) -> Tensor:
            return i < 6

        def body(i: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            large = v.sum() > 4
            return i + 1, torch.cond(large, lambda a: a * 0.5, lambda a: a + 1, (v,))

        return torch.while_loop(holds, body, (torch.zeros((), dtype=torch.int32), x))


def inputs(kind: type[nn.Module], seed: int) -> tuple[Any, ...]:
    torch.manual_seed(seed)
    if kind is Branch:
        return torch.tensor(bool(seed % 2)), torch.randn(2, 4)
    return (torch.randn(2, 3), torch.randn(2, 3)) if kind is Loop else (torch.randn(2, 3),)


@pytest.mark.parametrize(
    ("kind", "target"), [(Branch, FLOAT_CF), (Branch, BOTH_CF), (Loop, BOTH_CF), (Nested, BOTH_CF)]
)
def test_branches_and_loops_become_regions_of_one_graph(kind: Any, target: str) -> None:
    torch.manual_seed(0)
    art = check(kind(), *(inputs(kind, seed) for seed in range(3)), target=target)
    assert len(art.partition.graphs) == 1
    wanted = {Branch: {"COND_IF"}, Loop: {"WHILE_LOOP"}, Nested: {"WHILE_LOOP", "COND_IF"}}[kind]
    assert wanted <= set(art.report.ops)


@pytest.mark.parametrize("kind", [Branch, Loop, Nested])
def test_without_the_extension_they_run_in_pytorch_and_the_reason_names_it(kind: Any) -> None:
    torch.manual_seed(0)
    art = check(kind(), *(inputs(kind, seed) for seed in range(2)), refused=None)
    reasons = {r.reason for r in art.report.refused}
    assert "branches and loops need extension cf, which TOSA-1.0+FP lacks" in reasons


def test_integer_targets_have_them_too() -> None:
    class Whole(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            def body(i: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
                return i + 1, v + i

            zero = torch.zeros((), dtype=torch.int32)
            return torch.while_loop(lambda i, v: i < 4, body, (zero, x))[1]

    x = torch.arange(6, dtype=torch.int32).reshape(2, 3)
    check(Whole(), (x,), (x * 7,), target=INTEGER + "+cf")


@pytest.mark.parametrize("target", [INTEGER, INTEGER + "+cf"])
def test_quantized_values_that_enter_a_branch_are_not_silently_wrong(target: str) -> None:
    torch.manual_seed(0)
    net = Branch().eval()
    data = [inputs(Branch, seed) for seed in range(8)]
    art = compiled(net, data[0], target, calibration=data)
    for x in data:
        with torch.no_grad():
            expected = net(*x)
        assert (art.run(*x) - expected).abs().max() < 0.03 * expected.abs().max() + 0.1
        assert expected.abs().max() > 1


def test_a_sum_of_int64_in_a_loop_that_may_grow_stays_in_pytorch() -> None:
    class Grows(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            def body(i: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
                return i + 1, v * 1000

            zero = torch.zeros((), dtype=torch.int64)
            return torch.while_loop(lambda i, v: i < 5, body, (zero, x))[1]

    art = check(Grows(), (torch.tensor([1, 2, 3]),), target=BOTH_CF, refused=None)
    assert any("int64 result may not fit" in r.reason for r in art.report.refused)


class Cells(nn.Module):
    """A call within a branch that is compiled by its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        def twice(x: Tensor) -> Tensor:
            hidden, cell = self.cell(x, (x, x))
            return hidden + cell

        def once(x: Tensor) -> Tensor:
            return self.cell(x)[0].flip(1)

        result: Tensor = torch.cond(x.sum() > 0, twice, once, (x,))
        return result


def test_calls_in_branches_are_decomposed_for_targets_of_floats() -> None:
    net, x = Cells(), torch.rand(2, 4)
    made = tosaic.compile(net, (x,), target=FLOAT_CF)
    assert not made.report.refused
    for given in (x, -x):
        torch.testing.assert_close(made.run(given), net(given))
