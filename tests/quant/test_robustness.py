"""Networks and numbers at the edge: handled, close to float, and exact on the reference model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tosaic
from judges.reference import run_reference
from tosaic.pipeline.artifact import Artifact
from tosaic.quant import quantize

TARGETS = {"int8": "TOSA-1.0+INT", "a16w8": "TOSA-1.0+INT+int16"}
SHAPE = (1, 3, 8, 8)


class Net(nn.Module):
    """A forward function with the layers it uses."""

    def __init__(self, call: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.call, self.layers = call, nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Any:
        return self.call(x, *self.layers)


def data(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def conv(inputs: int = 3, outputs: int = 8, kind: type = nn.Conv2d, **options: Any) -> Any:
    torch.manual_seed(7)
    return kind(inputs, outputs, 3, **{"padding": 1, **options})


def changed(layer: Any, change: Callable[[Any], object]) -> Any:
    with torch.no_grad():
        change(layer)
    return layer


def norm(kind: type, channels: int) -> Any:
    layer = kind(channels)
    layer.running_mean, layer.running_var = data(channels) * 0.3, data(channels, seed=1).abs() + 0.5
    return changed(layer, lambda n: (n.weight.copy_(data(channels, seed=2)), n.bias.add_(0.5)))


def levels(art: Artifact, x: Tensor) -> np.ndarray:
    (value,) = art.graph.inputs
    assert value.quant is not None
    steps = np.rint(x.double().numpy() / value.quant.scale) + value.quant.zero_point
    return np.clip(steps, *value.dtype.range).astype(value.dtype.array)


def check(net: nn.Module, scheme: str, shape: tuple[int, ...], size: float = 1.0) -> Artifact:
    """Lower whole, compare with the reference model bit for bit and with float."""
    x = data(*shape) * size
    calibration = [x, *(data(*shape, seed=s) * size for s in range(1, 16))]
    art = tosaic.compile(net.eval(), (x,), target=TARGETS[scheme], scheme=scheme,
                         calibration=calibration)  # fmt: skip
    assert art.report.refused == []
    given = levels(art, x)
    mine, theirs = tosaic.load(art.bytes).run(given), run_reference(art.bytes, [given])
    for ours, answer in zip(mine, theirs, strict=True):
        assert np.array_equal(ours, answer)
        assert len(np.unique(answer)) > 12
    with torch.no_grad():
        want, got = net(x), art.run(x)
    for real, near in zip(*((r,) if isinstance(r, Tensor) else r for r in (want, got))):
        error = (real - near).double().square().sum()
        assert float(10 * torch.log10(real.double().square().sum() / error)) > 30
    return art


def zero(layer: Any) -> None:
    layer.weight[2].zero_()


def lift(layer: Any) -> None:
    """A bias that 32 bits do not hold beside the products of its channel."""
    layer.weight[1].mul_(1e-9)
    layer.bias[1].add_(20)


def below(x: Tensor, first: Any) -> Tensor:
    return F.pad(F.relu(first(x)), (1, 1), value=-4.0)


def infinite(x: Tensor, first: Any) -> Tensor:
    return F.max_pool2d(F.pad(first(x), (1, 1, 1, 1), value=-math.inf), 2)


def parts(x: Tensor, first: Any) -> Any:
    return first(x).chunk(4, 1)[1] * 2, first(x).split([2, 6], 1)[1], first(x).unbind(1)[3]


def mixed(x: Tensor, first: Any) -> Tensor:
    return torch.cat([first(x).split([2, 6], 1)[1], F.relu(x), torch.tanh(x)], 1)


def apply(x: Tensor, *layers: Any) -> Any:
    for layer in layers:
        x = layer(x)
    return x


UP = nn.ConvTranspose2d
EDGES: dict[str, tuple[nn.Module, tuple[int, ...], float]] = {
    "zero channel": (Net(apply, changed(conv(), zero)), SHAPE, 1),
    "huge bias": (Net(apply, changed(conv(), lift)), SHAPE, 1),
    "shared layer": (Net(lambda x, c: c(c(x) * 50), conv(3, 3)), SHAPE, 1),
    "tiny values": (Net(lambda x, c: F.relu(c(x) * 1e-5), conv(bias=False)), SHAPE, 1e-3),
    "huge values": (Net(apply, conv()), SHAPE, 1e30),
    "grouped transposed": (Net(apply, conv(6, 6, UP, stride=2, groups=3)), (1, 6, 5, 5), 1),
    "norm after relu": (
        Net(apply, conv(), nn.ReLU(), norm(nn.BatchNorm2d, 8), conv(8, 4)), SHAPE, 1,
    ),
    "norm alone": (Net(apply, norm(nn.BatchNorm1d, 8), nn.ReLU()), (6, 8), 1),
    "norm of tokens": (Net(apply, nn.Linear(6, 8), norm(nn.BatchNorm1d, 5)), (2, 5, 6), 1),
    "norm in 3-D": (Net(apply, norm(nn.BatchNorm3d, 4)), (1, 4, 3, 5, 6), 1),
    "norm of a transposed one": (
        Net(apply, conv(4, 6, UP, stride=2, groups=2), norm(nn.BatchNorm2d, 6), nn.ReLU()),
        (1, 4, 6, 6), 1,
    ),
    "padding below the range": (Net(below, conv()), SHAPE, 1),
    "padding beyond limits": (Net(lambda x: F.pad(x.sigmoid(), (1, 1), value=3.0)), SHAPE, 1),
    "padding by infinity": (Net(infinite, conv()), SHAPE, 1),
    "the same twice": (Net(lambda x, c: torch.cat([x, x, c(x)], 1), conv()), SHAPE, 1),
    "limits beside": (Net(lambda x, c: torch.cat([x.sigmoid(), c(x) * 3], 1), conv()), SHAPE, 1),
    "parts": (Net(parts, conv()), SHAPE, 1),
    "parts joined": (Net(mixed, conv()), SHAPE, 1),
    "stack": (Net(lambda x: torch.stack([x, F.avg_pool2d(x, 3, 1, 1)])), SHAPE, 1),
}  # fmt: skip


@pytest.mark.parametrize("scheme", TARGETS)
@pytest.mark.parametrize("name", EDGES)
def test_what_is_at_the_edge_lowers_close_to_float_and_exact(name: str, scheme: str) -> None:
    net, shape, size = EDGES[name]
    check(net, scheme, shape, size)


def test_no_weights_at_all_leave_the_bias() -> None:
    layer = changed(conv(), lambda c: c.weight.zero_())
    art = tosaic.compile(layer, (data(*SHAPE),), calibration=[data(*SHAPE, seed=1)])
    assert torch.allclose(art.run(data(*SHAPE)), layer(data(*SHAPE)), atol=0.002)


@pytest.mark.parametrize("value", [0.0, 5.0, -3.0, 1e-20, 1e30])
@pytest.mark.parametrize("scheme", TARGETS)
def test_a_range_of_one_point_is_met(value: float, scheme: str) -> None:
    net = Net(lambda x: (torch.zeros_like(x) + value) * 2 + x * 0)
    x = torch.full((2, 8), value)
    art = tosaic.compile(net, (x,), target=TARGETS[scheme], scheme=scheme,
                         calibration=[data(2, 8, seed=s) for s in range(3)])  # fmt: skip
    assert torch.allclose(art.run(x), net(x), rtol=0.01, atol=1e-8)


def test_a_bias_beyond_32_bits_has_48_with_int16_activations() -> None:
    layer = changed(conv(), lambda c: (c.weight.mul_(2e-3), c.bias.add_(50)))
    art = check(Net(lambda x, c: c(x), layer), "a16w8", SHAPE)
    (op,) = (op for op in art.graph.ops if op.name == "CONV2D")
    bias = op.ins[2]
    assert bias.dtype.name == "i48"
    assert bias.const is not None
    assert int(np.abs(bias.const.array).min()) > 2**31
    program = quantize(layer, (data(*SHAPE),), scheme="a16w8", calibration=[data(*SHAPE, seed=1)])
    scale = next(t for n, t in program.named_buffers() if "weight_scale" in n)
    assert torch.allclose(scale, layer.weight.detach().flatten(1).abs().amax(1) / 127)


def test_a_bias_that_does_not_fit_widens_the_scale_of_its_channel_alone() -> None:
    layer = changed(conv(), lambda c: (c.weight[1].mul_(1e-6), c.bias[1].add_(1e4)))
    program = quantize(layer, (data(*SHAPE),), calibration=[data(*SHAPE, seed=1)])
    found = dict(program.named_buffers())
    scale, bias = (next(t for n, t in found.items() if part in n)
                   for part in ("weight_scale", "bias_levels"))  # fmt: skip
    plain = layer.weight.detach().flatten(1).abs().amax(1) / 127
    assert scale[1] > 10 * plain[1]
    assert torch.allclose(torch.cat([scale[:1], scale[2:]]), torch.cat([plain[:1], plain[2:]]))
    assert bias.dtype is torch.int32
    assert 2**29 < int(bias[1].abs()) <= 2**30


def test_biases_give_back_what_rounding_weights_takes() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(16, 8, 3, bias=False), nn.Flatten()).eval()
    calibration = [data(4, 16, 8, 8, seed=s).relu() for s in range(8)]
    program = quantize(net, (calibration[0],), scheme="a16w8", calibration=calibration)
    with torch.no_grad():
        x = torch.cat([data(4, 16, 8, 8, seed=s).relu() for s in range(20, 28)])
        shift = (program(x) - net(x)).reshape(32, 8, -1).mean((0, 2))
        (weight,) = net.parameters()
        step = weight.flatten(1).abs().amax(1) / 127
        error = (weight / step.view(-1, 1, 1, 1)).round() * step.view(-1, 1, 1, 1) - weight
        without = (error.sum((2, 3)) * x.mean((0, 2, 3))).sum(1)
    assert float(shift.abs().mean()) < 0.1 * float(without.abs().mean())


def test_a_range_fixed_by_the_function_does_not_depend_on_data() -> None:
    net = Net(lambda x: (torch.sigmoid(x), torch.tanh(x), torch.sigmoid(x).flatten(1)))
    program = quantize(net, (data(2, 3, 4) * 0.01,), calibration=[data(2, 3, 4) * 0.01])
    found = {tuple(n.args[1:3]) for n in program.graph.nodes
             if "quantize_per_tensor" in str(n.target)}  # fmt: skip
    assert {(1 / 256, -128), (1 / 128, 0)} < found
    assert len(found) == 3


def test_an_average_pool_works_in_the_parameters_of_its_input() -> None:
    art = check(Net(lambda x, c: F.avg_pool2d(c(x), 2), conv()), "int8", SHAPE)
    assert art.report.ops["AVG_POOL2D"] == 1
    assert art.report.ops["RESCALE"] == 1
