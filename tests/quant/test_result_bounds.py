"""Ranges with room for unseen inputs end where intervals of their operands say that values do."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

import tosaic
from tosaic.quant import calibrate

WIDE = "TOSA-1.0+INT+int16"
Quantized = list[tuple[str, float, float]]  # the call, the largest value, and what its range holds


class _Net(nn.Module):
    """A layer, and what a function makes of its result and of places that it knows."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.function = nn.Conv2d(3, 4, 3, padding=1), function
        self.register_buffer("places", torch.linspace(0, 30, 64).reshape(1, 1, 8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x), self.places)


class _Reach(fx.Interpreter):
    """Runs a quantized program and looks at what is quantized, which nothing cuts off here."""

    found: Quantized

    def run_node(self, n: fx.Node):
        name = str(n.target)
        if n.op == "call_function" and "quantize_per_tensor" in name and "dequant" not in name:
            x, (scale, zero, low, high) = self.env[n.args[0]], n.args[1:5]
            ends = (zero - low) * scale, (high - zero) * scale
            self.found.append((n.args[0].name, float(x.abs().max()), max(ends)))
        return super().run_node(n)


def _reach(net: nn.Module, data: list[Tensor], given: Tensor) -> dict[str, tuple[float, float]]:
    made = tosaic.quantize(net.eval(), (data[0],), scheme="a16w8", calibration=data)
    run = _Reach(made)
    run.found = []
    run.run(given)
    return {name: (most, end) for name, most, end in run.found}


_FORMS = {
    "add": lambda y, p: y * 0.5 + p,
    "sub": lambda y, p: p - y,
    "mul": lambda y, p: y * torch.sigmoid(y),
    "div": lambda y, p: y / (p + 2),
    "exp": lambda y, p: torch.exp(y.clamp(max=1)) * 2 - 1,
    "cat": lambda y, p: torch.cat([torch.tanh(y), F.hardswish(y) + 3], 1),
    "pool": lambda y, p: F.avg_pool2d(F.relu(y), 2, padding=1),
    "mean": lambda y, p: (F.relu(y) + 20).mean((2, 3)),
    "maximum": lambda y, p: torch.maximum(y, p) * 2,
    "moved": lambda y, p: F.pad(y.flip(2).permute(0, 2, 3, 1), (1, 1)) - 7,
    "layer": lambda y, p: F.conv2d(torch.sigmoid(y), torch.ones(2, 4, 1, 1) / 8) + 4,
    "gates": lambda y, p: torch.sigmoid(y) * torch.tanh(y) + torch.sigmoid(-y) * 3,
}


@pytest.mark.parametrize("form", _FORMS)
def test_no_value_exceeds_a_range_that_its_operands_have_ended(form: str, monkeypatch) -> None:
    """Inputs a hundred times as loud saturate where they would without intervals, and nowhere else.

    Roundings of operands are on top.
    """
    torch.manual_seed(0)
    data = [torch.randn(1, 3, 8, 8) for _ in range(2)]
    net, loud = _Net(_FORMS[form]), 100 * torch.randn(1, 3, 8, 8)
    ended = _reach(net, data, loud)
    monkeypatch.setattr(calibrate, "tell_bounds", lambda part: None)
    usual = _reach(net, data, loud)
    assert ended.keys() == usual.keys()
    tighter = [name for name, (_, end) in ended.items() if end < usual[name][1]]
    for name in tighter:
        most, end = ended[name]
        assert most <= end * (1 + 4 / 32767), name
    assert tighter or form in ("mul", "div", "moved", "pool")


@pytest.mark.parametrize(
    ("form", "most"),
    [("add", 40.0), ("exp", 4.5), ("mean", 35.0), ("gates", 4.01), ("layer", 4.51)],
)
def test_places_and_gates_need_no_room(form: str, most: float) -> None:
    torch.manual_seed(0)
    data = [torch.randn(1, 3, 8, 8) for _ in range(2)]
    found = _reach(_Net(_FORMS[form]), data, data[0])
    *_, (_, end) = found.values()
    assert end <= most


def test_boxes_after_two_inputs_are_as_fine_as_after_many() -> None:
    torch.manual_seed(0)
    net = _Net(lambda y, p: torch.cat([y * 2 + p, torch.exp(y.clamp(max=2)) * 4], 1)).eval()
    data = [torch.randn(1, 3, 8, 8) for _ in range(48)]
    real = torch.cat([net(x) for x in data[32:]]).detach()

    def decibels(count: int) -> float:
        made = tosaic.compile(
            net, (data[0],), target=WIDE, scheme="a16w8", calibration=data[:count]
        )
        error = (torch.cat([made.run(x) for x in data[32:]]) - real).square().sum()
        return float(10 * torch.log10(real.square().sum() / error))

    assert decibels(2) > decibels(32) - 3


def _first_end(net: nn.Module, data: list[Tensor]) -> float:
    return next(iter(_reach(net, data, data[0]).values()))[1]


@pytest.mark.parametrize(("loud", "end"), [(0.1, 0.4), (0.3, 1.0), (0.9, 1.0), (2e3, 1.6e4)])
def test_a_signal_ends_at_full_scale_if_that_is_near(loud: float, end: float) -> None:
    torch.manual_seed(0)
    net = nn.Conv1d(1, 4, 16, 8).eval()
    data = [(torch.randn(1, 1, 1024) * loud / 3).clamp(-loud, loud) for _ in range(2)]
    most = max(float(x.abs().max()) for x in data)
    assert _first_end(net, data) == pytest.approx(end, rel=0.05 if end == 1 else 2)
    assert _first_end(net, data) >= most


def test_features_that_a_layer_mixes_are_no_signal() -> None:
    torch.manual_seed(0)
    data = [torch.randn(1, 512) / 6 for _ in range(2)]
    assert _first_end(nn.Linear(512, 4), data) > 2


def test_parts_of_a_spectrum_hold_inputs_eight_times_as_loud() -> None:
    """A square is then 64 times as large; 32 bits have room for it."""

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            angles = torch.arange(128) * torch.arange(1, 25)[:, None] * math.pi / 32
            bases = torch.cat([angles.cos(), angles.sin()]) * torch.hann_window(128) / 64
            self.register_buffer("bases", bases[:, None])

        def forward(self, x: Tensor) -> Tensor:
            both = F.conv1d(x, self.bases, stride=64)
            return (both[:, :24] ** 2 + both[:, 24:] ** 2).pow(0.25)

    g = torch.Generator().manual_seed(0)
    time = torch.arange(640) / 64
    sounds = [
        torch.sin(2 * math.pi * time * (4 + 20 * torch.rand(1, generator=g)))[None, None]
        for _ in range(10)
    ]
    net = Root().eval()
    made = tosaic.compile(
        net, (sounds[0],), target=WIDE, scheme="a16w8", calibration=[x * 3 for x in sounds[:2]]
    )  # fmt: skip
    loud = [x * 20 for x in sounds[2:]]
    real = torch.cat([net(x) for x in loud])
    error = (torch.cat([made.run(x) for x in loud]) - real).square().sum()
    assert 10 * torch.log10(real.square().sum() / error) > 45
