"""MobileNetV3-small (Howard et al. 2019): squeeze-and-excitation, hard swish, 5×5 depthwise."""

from torch import Tensor, nn

from .layers import conv_bn

BLOCKS: tuple[tuple[int, int, int, bool, type[nn.Module], int], ...] = (
    # kernel, hidden, channels, excited, activation, stride
    (3, 16, 16, True, nn.ReLU, 2),
    (3, 72, 24, False, nn.ReLU, 2),
    (3, 88, 24, False, nn.ReLU, 1),
    (5, 96, 40, True, nn.Hardswish, 2),
    (5, 240, 40, True, nn.Hardswish, 1),
    (5, 240, 40, True, nn.Hardswish, 1),
    (5, 120, 48, True, nn.Hardswish, 1),
    (5, 144, 48, True, nn.Hardswish, 1),
    (5, 288, 96, True, nn.Hardswish, 2),
    (5, 576, 96, True, nn.Hardswish, 1),
    (5, 576, 96, True, nn.Hardswish, 1),
)


class Excite(nn.Module):
    """Each channel times a gate that the whole picture decides."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = max(8, (channels // 4 + 4) // 8 * 8)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.ReLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        gate: Tensor = self.gate(x)
        return x * gate


class Block(nn.Module):
    def __init__(
        self,
        cin: int,
        kernel: int,
        hidden: int,
        cout: int,
        excited: bool,
        act: type[nn.Module],
        stride: int,
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            conv_bn(cin, hidden, 1, act=act) if hidden != cin else nn.Identity(),
            conv_bn(hidden, hidden, kernel, stride, groups=hidden, act=act),
            Excite(hidden) if excited else nn.Identity(),
            conv_bn(hidden, cout, 1, act=None),
        )
        self.residual = stride == 1 and cin == cout

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.residual else y


class MobileNetV3Small(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        inputs = (16, *(row[2] for row in BLOCKS))
        blocks = [Block(cin, *row) for cin, row in zip(inputs, BLOCKS)]
        self.stem = conv_bn(3, 16, 3, 2, act=nn.Hardswish)
        self.blocks = nn.Sequential(*blocks, conv_bn(96, 576, 1, act=nn.Hardswish))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.pool(self.blocks(self.stem(x)))
        logits: Tensor = self.classifier(y.flatten(1))
        return logits
