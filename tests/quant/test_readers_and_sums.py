"""Ranges suit who reads a value, and sums take accumulators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

import tosaic
from judges.programs import Function
from judges.reference import run_reference
from tosaic.front import torchapi
from tosaic.ir.traits import Traits
from tosaic.lowering.target import Target
from tosaic.quant import TosaicQuantizer
from tosaic.quant.observer import RangeObserver
from tosaic.spec.env import Env

torch.manual_seed(0)


class Applied(nn.Module):
    """A function of a layer's result."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(4, 4), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x))


class Block(nn.Module):
    """Residuals: a layer beside its input, two layers, and a difference with a factor."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(channels, channels, 3, padding=1) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        a, b, c, d = self.layers
        y = torch.relu(x + a(x))
        y = b(y) + c(y)
        return torch.sub(y, d(y), alpha=0.3)


def readers(function: Callable[[Tensor], Tensor]) -> list[bool]:
    """Of each observed activation whether one function of single numbers reads it."""
    module = torchapi.module_of(torchapi.export(Applied(function), (torch.randn(2, 4),)))
    prepared = prepare_pt2e(module, TosaicQuantizer())
    return [m.reader is not None for m in prepared.modules() if isinstance(m, RangeObserver)]


def test_a_reader_has_its_constants_where_they_are_observed() -> None:
    least = torch.tensor(0.5)
    module = Applied(lambda x: torch.maximum(x, least))
    exported = torchapi.module_of(torchapi.export(module, (torch.randn(2, 4),)))
    prepared = prepare_pt2e(exported, TosaicQuantizer())
    found = [m.reader for m in prepared.modules() if isinstance(m, RangeObserver) and m.reader]
    values = torch.linspace(-1, 1, 9, dtype=torch.float64)
    assert [r for r in found if torch.equal(r(values), values.clamp(min=0.5))]


@pytest.mark.parametrize(
    "function",
    [torch.tanh, F.hardswish, F.silu, F.gelu, F.logsigmoid, lambda x: F.leaky_relu(x, 0.1),
     lambda x: torch.tanh(x.reshape(4, 2).t())],
)  # fmt: skip
def test_the_function_that_alone_reads_a_value_is_found(
    function: Callable[[Tensor], Tensor],
) -> None:
    assert any(readers(function))


@pytest.mark.parametrize(
    "function",
    [lambda x: x.softmax(1), lambda x: x.mean(1), lambda x: torch.tanh(x) * x.mean(1, True),
     lambda x: x @ x.t(), lambda x: x.reshape(2, 2, 2)],
)  # fmt: skip
def test_other_readers_are_none(function: Callable[[Tensor], Tensor]) -> None:
    assert not any(readers(function)[:2])


def observed(values: Tensor, reader: Any = None) -> tuple[float, float, RangeObserver]:
    observer = RangeObserver(
        dtype=torch.int8, quant_min=-128, quant_max=127, qscheme=torch.per_tensor_affine
    )
    observer.reader = reader
    observer(values)
    scale, zero = (float(v) for v in observer.calculate_qparams())
    return (-128 - zero) * scale, (127 - zero) * scale, observer


def test_a_range_ends_where_its_reader_no_longer_changes() -> None:
    values = 5 * torch.randn(50000, generator=torch.Generator().manual_seed(1))
    low, high, observer = observed(values, F.hardswish)
    assert -3.6 < low < -2.9
    assert high > 12
    assert observer.clipped() < 0.01  # a third of the values lies beyond, and changes nothing
    low, high, _ = observed(values, torch.tanh)
    assert -6 < low < -2
    assert 2 < high < 6


@pytest.mark.parametrize("function", [torch.tanh, F.hardswish, F.silu, F.elu, torch.exp])
def test_what_the_reader_gives_is_nearer(function: Callable[[Tensor], Tensor]) -> None:
    values = 4 * torch.randn(20000, generator=torch.Generator().manual_seed(2))
    errors = []
    for reader in (None, function):
        *_, observer = observed(values, reader)
        scale, zero = observer.calculate_qparams()
        rounded = torch.fake_quantize_per_tensor_affine(values, scale, zero.int(), -128, 127)
        errors.append(float((function(rounded) - function(values)).square().mean()))
    assert errors[1] <= errors[0]


@pytest.mark.parametrize("function", [torch.log, torch.sqrt, torch.reciprocal, torch.floor])
def test_poles_and_jumps_leave_a_range(function: Callable[[Tensor], Tensor]) -> None:
    values = torch.rand(5000, generator=torch.Generator().manual_seed(3)) * 3 + 0.5
    low, high, observer = observed(values, function)
    assert 3 < high < 4
    assert -0.1 < low <= 0
    assert observer.clipped() < 0.05


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_sums_take_accumulators_and_equal_the_reference_model(scheme: str) -> None:
    target = "TOSA-1.0+INT" + ("+int16" if scheme == "a16w8" else "")
    net, data = Block().eval(), [(torch.randn(1, 8, 9, 7) * 3,) for _ in range(6)]
    art = tosaic.compile(net, data[0], target=target, scheme=scheme, calibration=data)
    if scheme == "int8":  # four layers, two operands that are none, three results
        assert art.report.ops["RESCALE"] == 4 + 2 + 3
    quant = art.graph.inputs[0].quant
    kind = torch.int8 if scheme == "int8" else torch.int16
    steps = torch.round(data[1][0] / quant.scale) + quant.zero_point
    ends = torch.iinfo(kind)
    for levels in (steps, torch.full_like(steps, ends.max), torch.full_like(steps, ends.min + 1)):
        given = levels.clamp(ends.min + 1, ends.max).to(kind).numpy()
        (ours,) = tosaic.load(art.bytes).run(given)
        (theirs,) = run_reference(art.bytes, [given])
        assert (ours == theirs).all()
    with torch.no_grad():
        real, got = net(*data[1]), art.run(*data[1])
    assert len(got.unique()) > 80
    assert float((got - real).square().mean() / real.square().mean()) < 5e-4


def test_sums_that_do_not_ride_round_each_layer() -> None:
    counts = []
    for ride in (True, False):
        module = torchapi.module_of(torchapi.export(Block().eval(), (torch.randn(1, 8, 9, 7),)))
        target = Target("some", Env.parse("TOSA-1.0+INT"), traits=Traits(fuses_sums=ride))
        prepared = prepare_pt2e(module, TosaicQuantizer(target=target))
        counts.append(sum(isinstance(m, RangeObserver) for m in prepared.modules()))
    assert counts[1] == counts[0] + 4


def test_zeros_do_not_coarsen_a_sum() -> None:
    """A constant of zeros has no scale of its own: in int16 the sum has the precision of x."""
    zeros, data = torch.zeros(7), [(0.01 * torch.randn(6, 7),) for _ in range(64)]
    for function in (lambda x: x + zeros, lambda x: torch.add(x, zeros + 1, alpha=0)):
        net = Function(function)
        art = tosaic.compile(
            net, data[0], target="TOSA-1.0+INT+int16", scheme="a16w8", calibration=data
        )
        real = torch.cat([x for (x,) in data])
        noise = (torch.cat([art.run(x) for (x,) in data]) - real).square().sum()
        assert float(10 * torch.log10(real.square().sum() / noise)) > 84
