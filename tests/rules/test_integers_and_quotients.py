"""Plain int32 beside constants, integers as real numbers, and quotients of int16."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.programs import FLOAT, INTEGER, Function, check, compiled
from judges.rules import run_both
from tosaic.ir.graph import Quant
from tosaic.lowering.alternatives.mask import compared
from tosaic.lowering.builder import Lowering
from tosaic.rules._quotient import quotient
from tosaic.spec import dtypes as d
from tosaic.targets.ethosu.target import ETHOS_U

ENDS = np.array([-(2**31), -(2**31) + 1, -5, -1, 0, 1, 4, 5, 6, 2**31 - 2, 2**31 - 1], np.int32)
NUMPY = {"==": np.equal, ">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}


@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize("name", NUMPY)
def test_any_int32_is_compared_with_a_constant_without_bool(name: str, is_left: bool) -> None:
    device = ETHOS_U["ethos-u55-128"]
    for number in (0, 5, -(2**31) + 1, 2**31 - 2):
        b = Lowering.of(device)
        sides = [b.input(d.I32, ENDS.shape, "x"), b.const([number], d.I32)]
        numbers = [ENDS, np.int32(number)]
        if is_left:
            sides.reverse()
            numbers.reverse()
        b.output(compared(b, name, *sides))
        ours, theirs = run_both(b.graph, [ENDS])
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(ours.astype(bool), NUMPY[name](*numbers))


def test_integers_are_compared_where_the_target_has_floats_alone() -> None:
    def forward(place: Tensor) -> Tensor:
        return torch.where(torch.arange(8) <= place, 1.0, -1.0)

    places = [(torch.tensor([n]),) for n in (0, 3, 7, -9, 2**31 - 1)]
    check(Function(forward), *places, target=FLOAT)


@pytest.mark.parametrize("target", [INTEGER, "ethos-u55-128"])
def test_integers_become_quantized_numbers(target: str) -> None:
    def forward(count: Tensor, x: Tensor) -> Tensor:
        return count.to(torch.float32) * x

    torch.manual_seed(1)
    data = [(torch.randint(-40, 90, (3, 20)), torch.randn(3, 20)) for _ in range(8)]
    art = compiled(Function(forward), data[0], target, calibration=data)
    assert not art.report.refused, art.report
    for count, x in data[:3]:
        real = forward(count, x)
        assert (art.run(count, x) - real).abs().max() < 0.02 * real.abs().max()


@pytest.mark.parametrize("reach", [0.5, 40.0, 3000.0])
def test_quotients_of_int16_are_near_whatever_the_divisor(reach: float) -> None:
    """Divisors of 1 to 32767 steps; what is beyond the result's range saturates."""
    random = np.random.default_rng(2)
    size = 4000
    y = (2.0 ** random.uniform(0, 15, size) * random.choice([-1, 1], size)).round()
    x = random.integers(-32767, 32768, size) // random.choice([1, 50, 3000], size)
    y = np.clip(y, -32767, 32767)
    b = Lowering("TOSA-1.0+INT+int16")
    wanted = Quant(reach / 32767)
    b.wanted = wanted, d.I16
    values = [
        b.with_quant(b.input(d.I16, (size,), name), Quant(scale))
        for name, scale in (("x", 0.02), ("y", 0.01))
    ]
    b.output(b.requantize(quotient(b, *values), wanted, d.I16))
    ours, theirs = run_both(b.graph, [x.astype(np.int16), y.astype(np.int16)])
    np.testing.assert_array_equal(ours, theirs)
    real = np.clip(2 * x / y / (reach / 32767), -32768, 32767)
    assert len(np.unique(ours)) > 500
    assert np.abs(ours - real).max() < 1.0


class Summed(nn.Module):
    """A norm behind a sum, one element of which is far from the others, and a dropout."""

    def __init__(self, far: float) -> None:
        super().__init__()
        self.linear, self.norm, self.dropout = nn.Linear(32, 32), nn.LayerNorm(32), nn.Dropout()
        self.linear.bias.data[3] = far

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.dropout(self.linear(x)))


@pytest.mark.parametrize(("far", "kind"), [(0.0, d.I8), (100.0, d.I16)])
def test_a_sum_with_a_far_element_has_16_bits_before_its_norm(far: float, kind: d.DType) -> None:
    torch.manual_seed(3)
    net = Summed(far).eval()
    data = [(torch.randn(1, 12, 32),) for _ in range(8)]
    art = tosaic.compile(net, data[0], target="TOSA-1.0+INT+int16", scheme="int8", calibration=data)
    sums = {
        use.outs[0].dtype
        for op in art.graph.ops if op.name == "ADD" and op.loc.node == "aten.add.Tensor"
        for use in art.graph.uses()[op.outs[0]]
    }  # fmt: skip
    assert sums == {kind}
    real = net(*data[0]).detach()
    others = torch.arange(32) != 3
    error = (art.run(*data[0]) - real)[..., others]
    assert error.abs().max() < 0.1 * real[..., others].abs().max()
