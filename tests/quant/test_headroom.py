"""Ranges of 16 bits hold for inputs that calibration has not seen, and cut off nothing it has."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

import tosaic
from tosaic.quant.headroom import room_for_unseen
from tosaic.quant.observer import RangeObserver
from tosaic.quant.observer_range import room_of_table
from tosaic.quant.statistics import Statistics

STEPS = 65534


def _seen(loudness: list[float]) -> Statistics:
    made = Statistics()
    noise = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    for factor in loudness:
        made.see(noise * factor)
        made.close()
    return made


def test_few_inputs_leave_more_room_than_many_and_uneven_ones_more_than_even_ones() -> None:
    even = [1 + 0.01 * (i % 5) for i in range(64)]
    uneven = [math.exp(0.5 * math.sin(i)) for i in range(64)]
    two_even, all_even, eight_uneven, all_uneven = (
        room_for_unseen(_seen(peaks), STEPS) for peaks in (even[:2], even, uneven[:8], uneven)
    )
    assert two_even > all_even
    assert eight_uneven > all_uneven > all_even


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_the_largest_of_a_hundred_unseen_inputs_seldom_exceeds_a_range(count: int) -> None:
    exceeded = 0
    for seed in range(100):
        draw = torch.Generator().manual_seed(seed)
        peaks = (0.5 * torch.randn(count + 100, generator=draw)).exp().tolist()
        seen = Statistics()
        for peak in peaks[:count]:
            seen.see(torch.tensor([peak, -0.2]))
            seen.close()
        exceeded += max(peaks[count:]) > room_for_unseen(seen, STEPS) * max(peaks[:count])
    assert exceeded <= 10


def test_small_values_beside_large_ones_keep_their_steps() -> None:
    far = Statistics()
    values = torch.full((100_000,), 1e-4)
    values[0] = 1.0
    far.see(values)
    far.close()
    assert room_for_unseen(far, STEPS) < room_for_unseen(_seen([1.0]), STEPS)


@pytest.mark.parametrize("seed", range(4))
def test_sixteen_bits_cut_off_nothing_that_was_seen(seed: int) -> None:
    observer = RangeObserver(
        dtype=torch.int16, quant_min=-32767, quant_max=32767, qscheme=torch.per_tensor_symmetric
    )
    values = torch.randn(1000, generator=torch.Generator().manual_seed(seed)) ** 5
    observer(values)
    scale, _ = observer.calculate_qparams()
    assert float(scale) * 32767 >= float(values.abs().max())


def _highest(reader: Callable[[torch.Tensor], torch.Tensor] | None) -> float:
    observer = RangeObserver(
        dtype=torch.int16, quant_min=-32767, quant_max=32767, qscheme=torch.per_tensor_symmetric
    )
    observer.reader = reader
    observer(torch.randn(4000, generator=torch.Generator().manual_seed(0)) * 3)
    observer.seen.close()
    return float(observer.calculate_qparams()[0]) * 32767


def test_a_range_leaves_no_more_room_than_a_table_of_its_reader_can_draw() -> None:
    assert _highest(torch.sin) < _highest(None)
    assert _highest(lambda x: x * 0.5) == _highest(None)


def test_gelu_behind_two_calibration_inputs_keeps_forty_decibels_in_sixteen_bits() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 8)).eval()
    net[0].weight.data *= 8
    data = [torch.randn(1, 16) for _ in range(2)]
    made = tosaic.compile(
        net, (data[0],), target="TOSA-1.0+INT+int16", scheme="a16w8", calibration=data
    )
    inputs = torch.randn(64, 16)
    real = net(inputs).detach()
    error = (made.run(inputs) - real).square().sum()
    assert 10 * torch.log10(real.square().sum() / error) > 40


def test_stored_calibration_keeps_the_peaks_of_single_inputs(tmp_path) -> None:
    torch.manual_seed(0)
    net, data = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), [torch.randn(1, 8) * s for s in (1, 3)]
    stored = tosaic.calibrate(net, (data[0],), calibration=data)
    stored.save(tmp_path / "net.json")
    again = type(stored).load(tmp_path / "net.json")
    assert {len(seen.peaks) for seen in again.tensors.values()} == {2}
    made = [
        tosaic.compile(net, (data[0],), target="TOSA-1.0+INT+int16", scheme="a16w8", calibration=c)
        for c in (data, again)
    ]
    assert made[0].bytes == made[1].bytes


def test_two_calibration_inputs_are_enough_for_louder_ones_in_sixteen_bits() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval()
    data = [torch.randn(1, 16) for _ in range(2)]
    made = tosaic.compile(
        net, (data[0],), target="TOSA-1.0+INT+int16", scheme="a16w8", calibration=data
    )
    loud = torch.randn(1, 16) * 2
    real = net(loud).detach()
    error = (made.run(loud) - real).square().sum()
    assert 10 * torch.log10(real.square().sum() / error) > 35


def test_tables_leave_more_room_after_few_inputs() -> None:
    """What saturates is worse than the lines between their nodes."""
    rooms = [
        room_of_table(_seen([1.0] * count), 8.0, nn.functional.hardswish) for count in (1, 2, 8, 64)
    ]
    assert rooms == sorted(rooms, reverse=True)
    assert rooms[0] > rooms[1] > rooms[3]


def test_sixteen_bits_leave_no_room_beyond_what_a_result_can_be() -> None:
    x = torch.randn(8, generator=torch.Generator().manual_seed(0))
    for net, most in ((nn.ReLU6(), 6.0), (_Angle(), math.pi)):
        made = tosaic.compile(
            net, (x + 5,), target="TOSA-1.0+INT+int16", scheme="a16w8", calibration=[(x + 5,)]
        )
        (result,) = made.partition.graphs[0].outputs
        assert result.quant.one_scale * 32767 == pytest.approx(most, rel=1e-4)


class _Angle(nn.Module):
    def forward(self, x):
        return torch.atan2(x, 4 - x)


def test_an_angle_of_a_small_and_a_large_number_keeps_sixty_decibels_in_sixteen_bits() -> None:
    """The small one is a hundredth of the other: one step for both would leave 37."""

    class Net(nn.Module):
        def forward(self, y, x):
            return torch.atan2(y, x + 3)

    draw = torch.Generator().manual_seed(0)
    data = [
        (torch.randn(3, 40, generator=draw) * 0.02, torch.rand(3, 40, generator=draw))
        for _ in range(4)
    ]
    made = tosaic.compile(
        Net(), data[0], target="TOSA-1.0+INT+int16", scheme="a16w8", calibration=data
    )
    real = Net()(*data[0])
    error = (made.run(*data[0]) - real).square().sum()
    assert 10 * torch.log10(real.square().sum() / error) > 60
