"""ResNet-18 (He et al. 2015): residual sums, a strided stem with a max pool."""

from torch import Tensor, nn

from .layers import conv_bn


class BasicBlock(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.first = conv_bn(cin, cout, 3, stride)
        self.second = conv_bn(cout, cout, 3, act=None)
        same = cin == cout and stride == 1
        self.shortcut = nn.Identity() if same else conv_bn(cin, cout, 1, stride, act=None)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(self.second(self.first(x)) + self.shortcut(x))
        return y


class ResNet18(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        blocks, channels = [], 64
        for cout in (64, 128, 256, 512):
            stride = 1 if cout == 64 else 2
            blocks += [BasicBlock(channels, cout, stride), BasicBlock(cout, cout, 1)]
            channels = cout
        self.stem = nn.Sequential(conv_bn(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = self.pool(self.blocks(self.stem(x)))
        logits: Tensor = self.classifier(y.flatten(1))
        return logits
