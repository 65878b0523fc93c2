"""Calls that read 8 bits and give 16, or the other way: borders of parts with 16 bits."""

import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.spec.dtypes import I8, I16


class Gated(nn.Module):
    """Two layers, their product and their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(4, 16, 3, padding=1), nn.Conv2d(4, 16, 1)
        self.last = nn.Conv2d(16, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        a, b = torch.relu(self.left(x)), self.right(x)
        return self.last(a * b + a)


@pytest.fixture(scope="module")
def data() -> list[Tensor]:
    return list(torch.randn(8, 4, 12, 16, generator=torch.Generator().manual_seed(3)).split(1))


@pytest.fixture(scope="module")
def net() -> Gated:
    torch.manual_seed(1)
    return Gated().eval()


def _compiled(net, data, target, **nodes):
    scheme = tosaic.Schemes("int8", nodes=nodes)
    return tosaic.compile(net, (data[0],), target=target, scheme=scheme, calibration=data)


def _decibels(made, net, data) -> float:
    real = torch.cat([net(x).detach() for x in data])
    got = torch.cat([made.run(x, engine="tosa") for x in data])
    return float(10 * torch.log10(real.square().sum() / (got - real).square().sum()))


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256", "TOSA-1.0+INT+int16"])
def test_a_layer_reads_8_bits_and_gives_16(net, data, target) -> None:
    made = _compiled(net, data, target, conv2d_2="int8_to_int16")
    (graph,) = made.partition.graphs
    layer = [op for op in graph.walk() if op.name == "CONV2D"][-1]
    assert layer.ins[0].dtype is I8
    assert graph.outputs[0].dtype is I16
    plain = _compiled(net, data, target)
    assert _decibels(made, net, data) > _decibels(plain, net, data)


def test_a_layer_reads_16_bits_and_gives_8(net, data) -> None:
    wide = dict.fromkeys(("conv2d", "relu", "conv2d_1", "mul", "add"), "a16w8")
    made = _compiled(net, data, "ethos-u55-128", **wide, conv2d_2="int16_to_int8")
    (graph,) = made.partition.graphs
    layer = [op for op in graph.walk() if op.name == "CONV2D"][-1]
    assert layer.ins[0].dtype is I16
    assert graph.outputs[0].dtype is I8


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_operands_of_two_widths_meet_in_16_bits_on_an_npu(net, data, target) -> None:
    """The stream equals TOSA, which compile checks; a product of int32 takes several operations."""
    mixed = dict.fromkeys(("conv2d", "relu", "mul"), "a16w8")
    made = _compiled(net, data, target, **mixed)
    (graph,) = made.partition.graphs
    (product,) = [op for op in graph.walk() if op.name == "MUL"]
    assert {v.dtype for v in product.ins[:2]} == {I16}
    for x in data[:3]:
        assert torch.equal(made.run(x), made.run(x, engine="tosa"))
