"""What nearly every network here is made of."""

from torch import nn


def conv_bn(
    cin: int,
    cout: int,
    kernel: int = 3,
    stride: int = 1,
    *,
    groups: int = 1,
    dilation: int = 1,
    act: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """A convolution that keeps the size at stride 1, its batch norm and its activation."""
    pad = dilation * (kernel - 1) // 2
    conv = nn.Conv2d(cin, cout, kernel, stride, pad, dilation, groups, bias=False)
    layers: list[nn.Module] = [conv, nn.BatchNorm2d(cout)]
    return nn.Sequential(*layers, *([act()] if act else []))
