"""Functions of single numbers that are written as several calls are rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.programs import agrees_with_reference, compiled
from tosaic.front import torchapi
from tosaic.front.calls import QUANTIZE

Function = Callable[[Tensor], Tensor]
FUNCTIONS: dict[str, Function] = {
    "gelu": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "soft cap": lambda x: 3 * torch.tanh(x / 3),
    "quick gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "hardswish": lambda x: x * torch.clamp(x + 3, 0, 6) / 6,
    "mish": lambda x: x * torch.tanh(nn.functional.softplus(x)),
    "elu": lambda x: torch.where(x > 0, x, torch.exp(x) - 1),
    "erf": lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))),
    "with a parameter": lambda x: torch.relu(x * torch.tensor([0.7]) - 0.1).square(),
}


class Written(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def data(count: int) -> list[tuple[Tensor]]:
    random = torch.Generator().manual_seed(0)
    return [(2 * torch.randn(4, 64, generator=random),) for _ in range(count)]


@pytest.mark.parametrize("target", ["TOSA-1.0+INT", "ethos-u55-128"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_written_function_is_its_real_result_rounded_once(name: str, target: str) -> None:
    inputs, model = data(6), Written(FUNCTIONS[name])
    art = compiled(model, inputs[0], target, calibration=inputs[:4])
    calls = [n for n in art.program.calls if torchapi.target_name(n) == QUANTIZE]
    (_, s, z, *_), (_, scale, zero, *_) = (node.args for node in calls)
    for (x,) in inputs[4:]:
        given = ((x.double() / s).round() + z).clamp(-128, 127)
        steps = FUNCTIONS[name]((given - z) * s).double() / scale + zero
        assert len(steps.round().unique()) > 16
        made = art.run(x).double() / scale + zero
        assert float((made - steps.clamp(-128, 127)).abs().max()) < 0.501
    if target == "TOSA-1.0+INT":
        assert [op.name for op in art.graph.ops if op.name != "CONST"] == ["TABLE"]
        agrees_with_reference(art.graph)


def test_a_value_that_others_read_is_rounded_for_them() -> None:
    model = Written(lambda x: torch.cat([(y := x * 2), torch.tanh(y)]))
    inputs = data(16)  # values enough for a range without room
    art = compiled(model, inputs[0], "TOSA-1.0+INT", calibration=inputs)
    assert not art.report.refused
    real, made = model(*inputs[0]), art.run(*inputs[0])
    most = max(float(model(*x).abs().max()) for x in inputs)
    step = 2 * most / 255  # of the sum, and as much of what is doubled
    assert float((made - real).abs().max()) < 1.05 * step


class _NormOfConstants(nn.Module):
    """A layer norm as converters write it: each number in a buffer of one element."""

    def __init__(self, is_trained: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 8)
        self.register_parameter("two", nn.Parameter(torch.tensor([2.0]), is_trained))
        self.register_buffer("eps", torch.tensor(1e-5))
        self.weight, self.bias = nn.Parameter(torch.rand(32) + 0.5), nn.Parameter(torch.randn(32))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        centred = y - y.mean(-1, keepdim=True)
        spread = torch.sqrt(torch.pow(centred, self.two).mean(-1, keepdim=True) + self.eps)
        return self.last(centred / spread * self.weight + self.bias)


@pytest.mark.parametrize("is_trained", [False, True])
def test_norms_of_constants_of_one_element_are_norms(is_trained: bool) -> None:
    """But for those that are trained, which stay tensors."""
    torch.manual_seed(0)
    net, data = _NormOfConstants(is_trained).eval(), [(torch.randn(1, 10, 16),) for _ in range(8)]
    quantized = tosaic.quantize(net, data[0], calibration=data)
    names = [str(n.target) for n in quantized.graph.nodes if n.op == "call_function"]
    assert ("aten.layer_norm.default" in names) is not is_trained
    with torch.no_grad():
        real, got = (torch.cat([f(*x) for x in data]).double() for f in (net, quantized))
    assert float(real.square().sum() / (got - real).square().sum()) > 10**2.5
