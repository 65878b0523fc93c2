"""Cross-layer equalization and affine calls in the layers behind them change no result in float."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tosaic
from tosaic.passes.importer import import_model
from tosaic.quant.flow import float_module
from tosaic.quant.quantizer import TosaicQuantizer


def _uneven(net: nn.Module, example: Tensor, spread: float = 2.0) -> nn.Module:
    """Batch norms with statistics of their inputs, gains of channels far apart."""
    draw = torch.Generator().manual_seed(1)
    for part in net.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm)):
            if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
                part.momentum = 1.0
            if part.weight is None:
                continue
            count = part.weight.numel()
            part.weight.data = torch.exp(spread * torch.randn(count, generator=draw))
            part.bias.data = torch.randn(count, generator=draw) * part.weight.data
    with torch.no_grad():
        net.train()(example)
    return net.eval()


def _float(net: nn.Module, example: Tensor) -> torch.fx.GraphModule:
    return float_module(import_model(net, (example,)), TosaicQuantizer("int8"))


def _weights(module: torch.fx.GraphModule) -> list[Tensor]:
    held = {str(n.target) for n in module.graph.find_nodes(op="get_attr") if n.users}
    return [module.get_parameter(name) for name in sorted(held) if name.endswith("weight")]


class Branches(nn.Module):
    """One norm that several layers read, one of them turned."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.one, self.two = nn.LayerNorm(12), nn.Linear(12, 8), nn.Linear(12, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return self.one(y) * self.two(y)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(F.relu(self.layer(x)))


NETS = {
    "depthwise": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, groups=16), nn.BatchNorm2d(32), nn.LeakyReLU(0.1),
            nn.MaxPool2d(2), nn.ZeroPad2d(1), nn.Conv2d(32, 8, 3), nn.BatchNorm2d(8), nn.PReLU(8),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5),
        ),
        (4, 3, 16, 16),
    ),
    "transposed": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.ReLU(),
            nn.ConvTranspose2d(12, 6, 2, 2, groups=3), nn.BatchNorm2d(6), nn.ReLU(),
            nn.ConvTranspose2d(6, 4, 2, 2), nn.Upsample(scale_factor=2), nn.Conv2d(4, 3, 1),
        ),
        (4, 3, 8, 8),
    ),
    "rows": (
        lambda: nn.Sequential(
            nn.Conv1d(4, 16, 3), nn.BatchNorm1d(16), nn.ReLU(),
            nn.Conv1d(16, 8, 3, groups=4), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(),
            nn.Linear(8 * 12, 4),
        ),
        (4, 4, 16),
    ),
    "branches": (Branches, (4, 7, 12)),
    "twice": (Twice, (4, 8)),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_an_equalized_program_computes_the_same(name: str) -> None:
    torch.manual_seed(0)
    make, shape = NETS[name]
    example = torch.randn(shape)
    net = _uneven(make(), example)
    kept = [p.clone() for p in net.parameters()]
    made = _float(net, example)
    x = torch.randn(shape)
    with torch.no_grad():
        real, got = net(x), made(x)
    got = got[0] if isinstance(got, (tuple, list)) else got
    assert torch.allclose(got, real, rtol=1e-4, atol=1e-4 * float(real.abs().max()))
    assert all(torch.equal(a, b) for a, b in zip(kept, net.parameters(), strict=True))


def test_weights_of_a_layer_that_is_called_twice_stay() -> None:
    torch.manual_seed(0)
    net, example = Twice().eval(), torch.randn(2, 8)
    net.layer.weight.data[0] *= 1000
    assert any(torch.equal(w, net.layer.weight) for w in _weights(_float(net, example)))


def _ratio(net: nn.Module, example: Tensor, target: str, scheme: str) -> float:
    data = [(row,) for row in torch.randn(32, *example.shape[1:]).split(1)]
    made = tosaic.compile(net, data[0], target=target, scheme=scheme, calibration=data[:16])
    with torch.no_grad():
        real = torch.cat([net(*x) for x in data[16:]])
    error = torch.cat([made.run(*x) for x in data[16:]]) - real
    return float(10 * torch.log10(real.square().sum() / error.square().sum()))


def test_channels_a_thousandfold_apart_keep_their_steps_before_a_depthwise_layer() -> None:
    torch.manual_seed(0)
    example = torch.randn(8, 3, 16, 16)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=16),
        nn.BatchNorm2d(16, affine=False),
    )  # fmt: skip
    assert _ratio(_uneven(net, example), example, "TOSA-1.0+INT", "int8") > 25


def test_factors_and_offsets_of_channels_are_part_of_the_layer_behind_them() -> None:
    torch.manual_seed(0)
    factor, offset = torch.rand(8, 1, 1) + 0.5, torch.randn(8, 1, 1)

    class Net(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.layer = nn.Conv2d(8, 4, size, padding=size // 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(F.hardswish(x) * factor + offset)

    example = torch.randn(2, 8, 6, 6)
    for size, layers in ((1, 1), (3, 2)):
        net = Net(size).eval()
        made = _float(net, example)
        names = [str(n.target) for n in made.graph.nodes if n.op == "call_function"]
        assert sum("conv2d" in name for name in names) == layers
        got = made(example)
        got = got[0] if isinstance(got, (tuple, list)) else got
        assert torch.allclose(got, net(example), atol=1e-5)


class Spectrum(nn.Module):
    """Two layers behind magnitudes, or behind the input itself, which are far apart."""

    def __init__(self, of_input: bool) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(3)
        self.of_input, self.basis = of_input, nn.Conv1d(1, 32, 16, 8, bias=False)
        self.layers = nn.Sequential(nn.Conv1d(16, 16, 1), nn.ReLU(), nn.Conv1d(16, 8, 1))
        gains = torch.exp(1.5 * torch.randn(16, 1, 1, generator=draw))
        self.layers[0].weight.data *= gains

    def forward(self, x: Tensor) -> Tensor:
        if not self.of_input:
            re, im = self.basis(x).chunk(2, dim=1)
            x = (re * re + im * im).sqrt()
        y: Tensor = self.layers(x)
        return y


@pytest.mark.parametrize("of_input", [True, False])
def test_channels_of_unknown_power_are_left_alone(of_input: bool) -> None:
    torch.manual_seed(0)
    net = Spectrum(of_input).eval()
    example = torch.randn(1, 16, 9) if of_input else torch.randn(1, 1, 128)
    given = net.layers[0].weight.detach()
    is_kept = any(torch.equal(w, given) for w in _weights(_float(net, example)))
    assert is_kept is not of_input
