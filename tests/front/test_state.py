"""Writes in place, views, and what a program changes: as PyTorch has it, never silently wrong."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.programs import FLOAT, INTEGER, Function, assert_same, check, compiled

# torch says this of its own code, when a program is copied or decomposed.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


def read_after(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x + 1
    z = y * 2
    y.add_(z)
    return y, z


def old_view_after(x: Tensor) -> Tensor:
    y = x * 2
    row = y[0]
    y.mul_(3)
    return row + 1


def through_views(x: Tensor) -> Tensor:
    y = x.clone()
    y[0] = 7.0
    y[:, 1].mul_(5)
    y.t()[2].add_(1)
    return y + 1


def through_reshape(x: Tensor) -> Tensor:
    y = x * 1.5
    y.view(-1)[1:3].zero_()
    return y


def through_dropout(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x + 1
    z = nn.functional.dropout(y, 0.5, training=False)
    z.neg_()
    return y, z


def through_pieces(x: Tensor) -> Tensor:
    y = x + 0
    for part in y.chunk(2, 1):
        part.add_(part.sum())
    return y


def in_order(x: Tensor) -> Tensor:
    y = x.exp()
    y += x
    y *= 2
    y.clamp_(-1, 3)
    return y


def with_out(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    torch.add(x, 2, out=y)
    return y * 3


def by_index(x: Tensor) -> Tensor:
    y = x.clone()
    y[1, 2:4] = x[0, :2]
    return y


def beside_a_grid(x: Tensor) -> Tensor:
    down, right = torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij")
    y = x + torch.atleast_2d(down)
    y[:, 0::2].clamp_(0, 1)
    return y * right


PROGRAMS = [
    read_after, old_view_after, through_views, through_reshape, through_dropout, through_pieces,
    in_order, with_out, by_index, beside_a_grid,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_writes_in_place_and_through_views_are_right(program: Any) -> None:
    torch.manual_seed(1)
    check(Function(program), (torch.randn(3, 4),), (torch.randn(3, 4),), refused=None)


def test_in_place_activations_alone_need_no_new_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def traced(_: Any) -> None:
        raise AssertionError("the program was traced again")

    monkeypatch.setattr("tosaic.front.torchapi.functional", traced)
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(inplace=True), nn.Hardtanh(inplace=True))
    check(net, (torch.randn(1, 3, 4, 4),))
    check(Function(in_order), (torch.randn(3, 4),))


def test_a_write_that_pytorch_keeps_does_not_change_what_tosa_reads() -> None:
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        z = y + 1
        return torch.special.bessel_j0(z), y.erfinv_()

    check(Function(forward), (torch.rand(3, 4) / 4,), refused=None)


class Running(nn.Module):
    """A counter, an average that moves, and a window of the last inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("window", torch.zeros(3, 4), persistent=False)
        self.register_buffer("fixed", torch.randn(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.count += 1
        self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)
        self.window = torch.cat([self.window[1:], x[:1]])
        return x - self.average + self.fixed, self.count, self.window.sum(0)


def test_state_is_kept_between_runs_and_the_model_is_left_alone() -> None:
    net = Running()
    before = copy.deepcopy(net.state_dict())
    inputs = [(torch.randn(2, 4),) for _ in range(4)]
    art = check(net, *inputs, refused=["aten.add.Tensor"])
    assert int(art.state["count"]) == 4
    art.reset()
    assert int(art.state["count"]) == 0
    fresh = tosaic.compile(net, inputs[0], target=FLOAT)
    fresh.run(*inputs[0])
    assert_same(net.state_dict(), before)


def test_the_state_of_a_graph_is_an_input_and_an_output_more() -> None:
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("average", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            self.average.mul_(0.75).add_(x.mean(0), alpha=0.25)
            return x - self.average

    art = compiled(Average(), (torch.randn(2, 4),))
    names = [v.name for v in art.graph.inputs]
    assert names == ["b_average", "x"] or names == ["x", "b_average"]
    assert len(art.graph.outputs) == 2


def test_quantized_programs_keep_state_too() -> None:
    class Memory(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("last", torch.zeros(2, 4))

        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(self.linear(x) + self.last * 0.5)
            self.last.copy_(y)
            return y

    torch.manual_seed(3)
    net = Memory().eval()
    before = copy.deepcopy(net.state_dict())
    data = [(torch.randn(2, 4),) for _ in range(16)]
    art = compiled(net, data[0], INTEGER, calibration=data)
    assert_same(net.state_dict(), before)
    assert_same(art.state["last"], torch.zeros(2, 4))
    for x in data[:6]:
        with torch.no_grad():
            expected = net(*x)
        got = art.run(*x)
        assert (got - expected).abs().max() < 0.06
        assert expected.abs().max() > 0.3
    assert art.report.ops["CONV2D"] == 1


def test_an_input_that_the_program_writes_to_is_written_to() -> None:
    def forward(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        return x * 2

    x, y = torch.randn(2, 3), torch.randn(2, 3)
    art = compiled(Function(forward), (x.clone(), y))
    given = x.clone()
    result = art.run(given, y)
    assert_same(given, x + y)
    assert_same(result, (x + y) * 2)


class Spread(nn.Module):
    """Writes of another shape and another type than what is there: copy_ broadcasts and casts."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(2, 4))
        self.register_buffer("count", torch.zeros(4, dtype=torch.int32))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        made = self.rows.sum(0) + self.count * x + y.mean(0)
        self.rows.copy_(x * 0.25)
        self.count.copy_(x * 8)
        y.copy_(x)
        return made


@pytest.mark.parametrize("target", ["TOSA-1.0+FP", "TOSA-1.0+INT+FP"])
def test_a_write_keeps_the_shape_and_the_type_of_what_is_there(target: str) -> None:
    steps = [(torch.rand(4), torch.rand(2, 4)) for _ in range(3)]
    check(Spread(), *steps, target=target, refused=None)


def test_an_integer_that_is_written_is_read_as_an_integer() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x: Tensor) -> Tensor:
            self.count.copy_(x.abs().max() * 2)
            return self.count * 2

    steps = [(torch.tensor([[value, 0.3]]),) for value in (1.7, -4.2, 0.4)]
    check(Counted(), *steps, target="TOSA-1.0+FP", refused=None)


def test_a_number_that_is_written_to_all_elements_is_read_as_all_of_them() -> None:
    class Filled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("level", torch.zeros(2, 3))

        def forward(self, x: Tensor) -> Tensor:
            self.level.copy_(x.mean())
            return self.level * 2

    steps = [(torch.tensor([[value, 0.3]]),) for value in (1.7, -4.2, 0.4)]
    check(Filled(), *steps, target="TOSA-1.0+FP", refused=None)


def test_a_state_of_one_element_that_is_written_from_a_number_is_calibrated() -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("level", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.level.copy_(x.mean())
            return x + self.level

    data = [(torch.rand(4),) for _ in range(4)]
    art = tosaic.compile(Held(), data[0], target="TOSA-1.0+INT", calibration=data)
    wanted = data[1][0] + data[1][0].mean()
    assert (art.run(*data[1]) - wanted).abs().max() < 0.05


def test_what_is_overwritten_has_no_part_in_the_range_of_what_is_written() -> None:
    small = 0.01 * torch.rand(5)

    class Over(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            made = x * 100
            made.copy_(x * small)
            return made.flip(0)

    data = [(torch.rand(5),) for _ in range(4)]
    art = tosaic.compile(Over(), data[0], target="TOSA-1.0+INT", calibration=data)
    (quant,) = (v.quant for v in art.graph.outputs)
    assert quant is not None
    assert quant.one_scale < 1e-4
