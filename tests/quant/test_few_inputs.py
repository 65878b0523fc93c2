"""Ranges of 8 bits after few calibration inputs: room for unseen ones, within what can be."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tosaic
from tosaic.quant.headroom import room_after
from tosaic.quant.observer import RangeObserver
from tosaic.quant.statistics import Statistics


def _after(inputs: int, rows: int = 1) -> float:
    seen = Statistics()
    for _ in range(inputs):
        seen.see(torch.linspace(-1, 1, 100))
        seen.close(rows)
    return room_after(seen)


def _after_values(values: torch.Tensor, inputs: int = 32) -> float:
    seen = Statistics()
    for part in values.chunk(inputs):
        seen.see(part)
        seen.close()
    return room_after(seen)


@pytest.mark.parametrize("seed", range(4))
def test_few_values_leave_room_in_many_inputs_too(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    few, more, many = (_after_values(torch.randn(n, generator=g)) for n in (96, 512, 50_000))
    assert 1.2 < few <= 2
    assert 1.1 <= more < few
    assert many == 1


def test_values_that_have_an_end_leave_less_room_than_normal_ones() -> None:
    g = torch.Generator().manual_seed(0)
    normal, places = torch.randn(256, generator=g), torch.rand(256, generator=g) * 2 - 1
    assert _after_values(places) == 1 < _after_values(normal)
    assert _after_values(normal + 100) < _after_values(normal)  # the mean needs none
    assert _after_values(torch.full((256,), 3.0)) == 1


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(20, 20), nn.Linear(20, 20), nn.Linear(20, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + F.gelu(self.first(x))
        return self.last(x + torch.tanh(self.second(x)))


@pytest.mark.parametrize("build", [
    _Residual,
    lambda: nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(),
                          nn.Linear(32, 5)),
])  # fmt: skip
def test_small_tensors_hold_unseen_inputs_after_sixteen(build) -> None:
    """The middle of five networks and data sets: what saturates would cost it 6 to 10 dB."""
    found = []
    for seed in range(5):
        torch.manual_seed(seed)
        net, data = build().eval(), [torch.randn(1, 20) for _ in range(64)]
        made = tosaic.compile(
            net, (data[0],), target="TOSA-1.0+INT", scheme="int8", calibration=data[:16]
        )
        real, got = (torch.cat([f(x).detach() for x in data[16:]]) for f in (net, made.run))
        found.append(10 * torch.log10(real.square().sum() / (got - real).square().sum()))
    assert sorted(found)[2] > 29


def test_room_falls_with_the_number_of_inputs_and_many_leave_none() -> None:
    rooms = [_after(count) for count in (1, 2, 4, 8, 16)]
    assert rooms == sorted(rooms, reverse=True)
    assert rooms[0] > 1.5
    assert rooms[-1] == 1


def test_rows_of_a_batch_count_as_inputs() -> None:
    assert _after(1, rows=8) == _after(8)
    assert _after(2, rows=200) == 1


def _ends(net: nn.Module, data: list[torch.Tensor]) -> list[tuple[float, float]]:
    """The ranges of all 8-bit values of a quantized program."""
    made = tosaic.quantize(net.eval(), (data[0],), scheme="int8", calibration=data)
    found = []
    for node in made.graph.nodes:
        if "quantize_per_tensor" in str(node.target) and "dequantize" not in str(node.target):
            scale, zero_point, low, high = node.args[1:5]
            found.append(((low - zero_point) * scale, (high - zero_point) * scale))
    return found


class _Bounded(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.layer, self.function = nn.Conv2d(2, 4, 1), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.layer(x))


@pytest.mark.parametrize(
    ("function", "low", "high"),
    [
        (F.relu6, 0.0, 6.0),
        (lambda x: torch.clamp(x, -0.5, 2.0), -0.5, 2.0),
        (F.hardswish, -0.375, math.inf),
        (F.silu, -0.2785, math.inf),
    ],
)
def test_room_ends_where_no_result_can_be(function, low: float, high: float) -> None:
    torch.manual_seed(0)
    ends = _ends(_Bounded(function), [torch.randn(1, 2, 8, 8) * 20])[-1]
    step = (ends[1] - ends[0]) / 255
    assert ends[0] >= low - 1.01 * step
    assert ends[1] <= high + 1.01 * step


def test_a_constant_needs_no_room() -> None:
    class Plus(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("place", torch.linspace(-1, 1, 64).reshape(1, 64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.maximum(torch.tanh(x), self.place)

    ends = _ends(Plus(), [torch.randn(1, 64)])
    assert any(abs(high - 1) < 0.02 and abs(low + 1) < 0.02 for low, high in ends)


@pytest.mark.parametrize("seed", range(4))
def test_one_input_is_enough_for_others_that_are_half_as_loud_again(seed: int) -> None:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    data = torch.randn(1, 16)
    made = tosaic.compile(net, (data,), target="TOSA-1.0+INT", scheme="int8", calibration=[data])
    loud = data * 1.5
    real = net(loud).detach()
    error = (made.run(loud) - real).square().sum()
    assert 10 * torch.log10(real.square().sum() / error) > 28


def test_what_was_seen_stays_inside() -> None:
    observer = RangeObserver(
        dtype=torch.int8, quant_min=-128, quant_max=127, qscheme=torch.per_tensor_affine
    )
    observer.bounds = 0.0, 6.0
    values = torch.linspace(0, 6, 1000)
    observer(values)
    observer.seen.close()
    scale, zero_point = observer.calculate_qparams()
    assert float(scale) * (127 - int(zero_point)) == pytest.approx(6, rel=0.01)


def test_a_padding_beyond_the_bounds_of_what_is_padded_is_in_the_range() -> None:
    torch.manual_seed(0)
    ends = _ends(
        _Bounded(lambda x: F.pad(F.relu(x), (1, 1), value=-3.0)), [torch.randn(1, 2, 8, 8)]
    )[-1]
    assert ends[0] < -2.9


def test_an_observer_that_does_not_know_where_inputs_end_leaves_no_room() -> None:
    observer = RangeObserver(
        dtype=torch.int8, quant_min=-128, quant_max=127, qscheme=torch.per_tensor_affine
    )
    for _ in range(4):  # as prepare_pt2e calls it
        observer(torch.linspace(-1, 1, 1000))
    scale, _ = observer.calculate_qparams()
    assert float(scale) == pytest.approx(2 / 255, rel=0.01)


def test_stored_calibration_keeps_the_rows_of_batches(tmp_path) -> None:
    torch.manual_seed(0)
    net, data = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), [torch.randn(32, 8)]
    stored = tosaic.calibrate(net, (data[0],), calibration=data)
    stored.save(tmp_path / "net.json")
    again = type(stored).load(tmp_path / "net.json")
    made = [
        tosaic.compile(net, (data[0],), target="TOSA-1.0+INT", scheme="int8", calibration=c)
        for c in (data, again)
    ]
    assert made[0].bytes == made[1].bytes


@pytest.mark.parametrize(("most", "end"), [(0.9, 1.0), (1.0, 1.0), (250.0, 255.0), (3.0, None)])
def test_inputs_that_are_pixels_or_samples_end_where_those_do(most: float, end: float) -> None:
    torch.manual_seed(0)
    ends = _ends(nn.Conv2d(2, 4, 1), [torch.rand(1, 2, 8, 8).clamp(max=0.99) * most / 0.99])[0]
    assert ends[0] == 0
    assert ends[1] == pytest.approx(end, rel=0.01) if end else ends[1] > 1.5 * most
