"""MobileNetV2 (Sandler et al. 2018), width 1.0: inverted residuals, depthwise, ReLU6."""

from torch import Tensor, nn

from .layers import conv_bn

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


class InvertedResidual(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = cin * expand
        self.expand = conv_bn(cin, hidden, 1, act=nn.ReLU6) if expand != 1 else nn.Identity()
        self.depthwise = conv_bn(hidden, hidden, 3, stride, groups=hidden, act=nn.ReLU6)
        self.project = conv_bn(hidden, cout, 1, act=None)
        self.residual = stride == 1 and cin == cout

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        blocks, channels = [], 32
        for expand, cout, repeats, first in BLOCKS:
            for index in range(repeats):
                blocks.append(InvertedResidual(channels, cout, first if index == 0 else 1, expand))
                channels = cout
        self.stem = conv_bn(3, 32, 3, 2, act=nn.ReLU6)
        self.blocks = nn.Sequential(*blocks)
        self.head = conv_bn(channels, 1280, 1, act=nn.ReLU6)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x: Tensor) -> Tensor:
        y = self.head(self.blocks(self.stem(x)))
        logits: Tensor = self.classifier(self.pool(y).flatten(1))
        return logits
