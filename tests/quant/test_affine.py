"""What is written out behind a layer becomes part of it: operators as few as with a module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tosaic
from tosaic.passes.importer import import_model
from tosaic.quant.flow import float_module
from tosaic.quant.quantizer import TosaicQuantizer

GENERATOR = torch.Generator().manual_seed(5)
MEAN, SPREAD, SCALE, SHIFT = (torch.rand(8, generator=GENERATOR) + 0.5 for _ in range(4))


class Net(nn.Module):
    """A convolution, what a function makes of it, and another one."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Conv2d(3, 8, 3, bias=False), nn.Conv2d(8, 4, 1)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.between(self.first(x)))


def along(values: Tensor) -> Tensor:
    return values.reshape(1, -1, 1, 1)


def norm(x: Tensor) -> Tensor:
    return torch.relu(F.batch_norm(x, MEAN, SPREAD, SCALE, SHIFT))


def frozen(x: Tensor) -> Tensor:
    """As detectors and segmenters have batch norms that are not trained."""
    factor = along(SCALE) * (along(SPREAD) + 1e-5).rsqrt()
    return torch.relu(x * factor + (along(SHIFT) - along(MEAN) * factor))


def written(x: Tensor) -> Tensor:
    y = torch.divide(torch.subtract(x, along(MEAN)), torch.sqrt(along(SPREAD) + 1e-5))
    return torch.relu(torch.add(y.mul_(along(SCALE)), along(SHIFT)).to(torch.float32))


def behind(x: Tensor) -> Tensor:
    """With channels behind the others, as frameworks have it that came from elsewhere."""
    y = x.permute(0, 2, 3, 1)
    y = (y - MEAN) * torch.rsqrt(SPREAD + 1e-5) * SCALE + SHIFT
    return torch.relu(y).permute(0, 3, 1, 2)


def data(*shape: int) -> list[tuple[Tensor]]:
    return [(torch.randn(shape, generator=GENERATOR),) for _ in range(4)]


def operators(net: nn.Module, inputs: list[tuple[Tensor]]) -> Counter[str]:
    """Those of the quantized network, which is close to the float one."""
    made = tosaic.compile(net.eval(), inputs[0], calibration=inputs)
    with torch.no_grad():
        real = torch.cat([net(*each) for each in inputs])
    got = torch.cat([made.run(*each) for each in inputs])
    assert 10 * torch.log10(real.square().sum() / (got - real).square().sum()) > 30
    return Counter(op.name for op in made.graph.ops)


def test_a_norm_that_is_written_out_is_part_of_the_layer() -> None:
    images = data(1, 3, 10, 10)
    expected = operators(Net(norm), images)
    assert expected["CONV2D"] == 2
    for between in (frozen, written, behind):
        assert operators(Net(between), images) == expected, between.__name__


def test_pictures_that_are_normed_are_a_layer() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.first = nn.Conv2d(8, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.first((x - along(MEAN)).contiguous().clone() / along(SPREAD))

    found = operators(Normed(), data(1, 8, 10, 10))
    assert found["DEPTHWISE_CONV2D"] == 1
    assert not {"ADD", "SUB", "MUL"} & found.keys()


def test_parts_with_channels_behind_are_joined_where_they_were() -> None:
    def joined(x: Tensor) -> Tensor:
        y = x.permute(0, 2, 3, 1)
        y = torch.cat([torch.relu(y), torch.sigmoid(y)], 3)
        return torch.tanh(y).permute(0, 3, 1, 2)[:, 4:12]

    def plain(x: Tensor) -> Tensor:
        return torch.tanh(torch.cat([torch.relu(x), torch.sigmoid(x)], 1))[:, 4:12]

    images = data(1, 3, 10, 10)
    found, expected = operators(Net(joined), images), operators(Net(plain), images)
    assert found.pop("TRANSPOSE") <= expected.pop("TRANSPOSE")
    assert found == expected


def test_a_norm_before_a_layer_is_one_with_its_activation() -> None:
    """With channels behind the others, a transposition would stand between them."""

    class First(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = F.max_pool2d(x, 2).permute(0, 2, 3, 1)
            return torch.relu((y - MEAN) * SCALE + SHIFT)

    source = import_model(First().eval(), data(1, 8, 12, 12)[0])
    nodes = float_module(source, TosaicQuantizer("int8")).graph.nodes
    names = [str(node.target) for node in nodes if node.op == "call_function"]
    pool, *between, layer, activation, turn = names
    assert pool.startswith("aten.max_pool2d")
    assert set(between) <= {"aten.permute.default"}
    assert (layer, activation) == ("aten.conv2d.default", "aten.relu.default")
    assert turn == "aten.permute.default"


def test_what_others_read_or_has_no_number_for_each_channel_stays() -> None:
    images, places = data(1, 3, 10, 10), torch.rand(8, 8, generator=GENERATOR) + 0.5
    assert operators(Net(lambda x: x * places), images)["MUL"] == 1
    both = operators(Net(lambda x: x * along(SCALE) + x.flip(3)), images)
    assert both["ADD"] == 1
    assert both != operators(Net(lambda x: x + x.flip(3)), images)


def test_a_scale_and_a_bias_behind_a_product_with_a_matrix_are_part_of_it() -> None:
    class Layer(nn.Module):
        def __init__(self, linear: bool) -> None:
            super().__init__()
            torch.manual_seed(2)
            self.weight = nn.Parameter(torch.randn(6, 8))
            self.linear = linear

        def forward(self, x: Tensor) -> Tensor:
            if self.linear:
                return F.linear(x, (self.weight * SCALE).T, SHIFT)
            return torch.matmul(x, self.weight) * SCALE + SHIFT

    rows = data(2, 5, 6)
    assert operators(Layer(linear=False), rows) == operators(Layer(linear=True), rows)


def test_a_product_by_the_names_of_axes_with_weights_is_a_layer() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(4)
            self.weight = nn.Parameter(torch.randn(6, 2, 8))

        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("btd,dhk->bthk", x, self.weight)

    found = operators(Heads(), data(1, 5, 6))
    assert found["CONV2D"] == 1
    assert not found["MATMUL"]


def test_the_layer_of_somebody_else_is_left_as_it_was() -> None:
    net, images = Net(frozen), data(1, 3, 10, 10)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    tosaic.compile(net.eval(), images[0], calibration=images)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
