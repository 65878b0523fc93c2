"""MobileNetV2 and ResNet-18 as plain modules, with batch-norm statistics that mean something.

A network's structure is written once, as `walk(x, by)`: `by` says what a convolution, a sum or a
pool is. Eager execution, calibration and quantization are three answers to that.
"""

import copy
from collections.abc import Iterator
from typing import Literal, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from zoo.pictures import images, settle

T = TypeVar("T")
Activation = Literal["none", "relu", "relu6"]
IMAGE = 224


class Walker(Protocol[T]):
    """What a network asks of whoever walks through it."""

    def conv(self, x: T, layer: "ConvBN") -> T: ...
    def add(self, x: T, y: T, act: Activation) -> T: ...
    def max_pool(self, x: T, kernel: int, stride: int, pad: int) -> T: ...
    def average(self, x: T) -> T: ...
    def linear(self, x: T, layer: nn.Linear) -> T: ...


def activate(x: Tensor, act: Activation) -> Tensor:
    if act == "none":
        return x
    return functional.relu(x) if act == "relu" else functional.relu6(x)


class Eager:
    """PyTorch's own answer."""

    def conv(self, x: Tensor, layer: "ConvBN") -> Tensor:
        return activate(cast(Tensor, layer.bn(layer.conv(x))), layer.act)

    def add(self, x: Tensor, y: Tensor, act: Activation) -> Tensor:
        return activate(x + y, act)

    def max_pool(self, x: Tensor, kernel: int, stride: int, pad: int) -> Tensor:
        return functional.max_pool2d(x, kernel, stride, pad)

    def average(self, x: Tensor) -> Tensor:
        return functional.adaptive_avg_pool2d(x, 1)

    def linear(self, x: Tensor, layer: nn.Linear) -> Tensor:
        return functional.linear(x.flatten(1), layer.weight, layer.bias)


class ConvBN(nn.Module):
    """A convolution, its batch norm and its activation; the weights' owner, not an executor."""

    def __init__(
        self, cin: int, cout: int, kernel: int, stride: int, act: Activation, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            cin, cout, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False
        )
        self.bn: nn.Module = nn.BatchNorm2d(cout)
        self.act: Activation = act


class Network(nn.Module):
    name: str

    def walk(self, x: T, by: Walker[T]) -> T:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.walk(x, Eager())


class InvertedResidual(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = cin * expand
        layers = [ConvBN(cin, hidden, 1, 1, "relu6")] if expand != 1 else []
        layers.append(ConvBN(hidden, hidden, 3, stride, "relu6", groups=hidden))
        layers.append(ConvBN(hidden, cout, 1, 1, "none"))
        self.layers = nn.ModuleList(layers)
        self.residual = stride == 1 and cin == cout

    def walk(self, x: T, by: Walker[T]) -> T:
        y = x
        for layer in self.layers:
            y = by.conv(y, cast(ConvBN, layer))
        return by.add(x, y, "none") if self.residual else y


class MobileNetV2(Network):
    """Sandler et al. 2018, width 1.0, 3.5 million parameters."""

    name = "mobilenet_v2"
    BLOCKS = (
        # expansion, channels, repeats, stride of the first
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBN(3, 32, 3, 2, "relu6")
        blocks, channels = [], 32
        for expand, cout, repeats, first in self.BLOCKS:
            for index in range(repeats):
                blocks.append(InvertedResidual(channels, cout, first if index == 0 else 1, expand))
                channels = cout
        self.blocks = nn.ModuleList(blocks)
        self.head = ConvBN(channels, 1280, 1, 1, "relu6")
        self.classifier = nn.Linear(1280, 1000)

    def walk(self, x: T, by: Walker[T]) -> T:
        x = by.conv(x, self.stem)
        for block in self.blocks:
            x = cast(InvertedResidual, block).walk(x, by)
        return by.linear(by.average(by.conv(x, self.head)), self.classifier)


class BasicBlock(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.first = ConvBN(cin, cout, 3, stride, "relu")
        self.second = ConvBN(cout, cout, 3, 1, "none")
        self.shortcut = None if cin == cout else ConvBN(cin, cout, 1, stride, "none")

    def walk(self, x: T, by: Walker[T]) -> T:
        y = by.conv(by.conv(x, self.first), self.second)
        return by.add(x if self.shortcut is None else by.conv(x, self.shortcut), y, "relu")


class ResNet18(Network):
    """He et al. 2015, 11.7 million parameters."""

    name = "resnet18"

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBN(3, 64, 7, 2, "relu")
        blocks, channels = [], 64
        for cout in (64, 128, 256, 512):
            blocks += [
                BasicBlock(channels, cout, 1 if cout == 64 else 2),
                BasicBlock(cout, cout, 1),
            ]
            channels = cout
        self.blocks = nn.ModuleList(blocks)
        self.classifier = nn.Linear(512, 1000)

    def walk(self, x: T, by: Walker[T]) -> T:
        x = by.max_pool(by.conv(x, self.stem), 3, 2, 1)
        for block in self.blocks:
            x = cast(BasicBlock, block).walk(x, by)
        return by.linear(by.average(x), self.classifier)


NETWORKS: dict[str, type[Network]] = {net.name: net for net in (MobileNetV2, ResNet18)}


def batches(count: int, size: int, seed: int) -> Iterator[Tensor]:
    yield from (images(size, seed + index, IMAGE) for index in range(count))


def settled(name: str, seed: int = 0) -> Network:
    """The network with seeded weights and the batch-norm statistics of seeded pictures."""
    torch.manual_seed(seed)
    net = NETWORKS[name]()
    settle(net, batches(3, 8, seed=1000 + seed), shift=0.0)
    return net


def folded(net: Network) -> Network:
    """A copy whose batch norms are folded into the convolutions: the stricter fp32 opponent."""
    net = copy.deepcopy(net).eval()
    for module in net.modules():
        if isinstance(module, ConvBN) and isinstance(module.bn, nn.BatchNorm2d):
            module.conv = nn.utils.fusion.fuse_conv_bn_eval(module.conv, module.bn)
            module.bn = nn.Identity()
    return net
