"""A small YOLOv5-style detector: CSP blocks with SiLU, pooling pyramid, two scales, decoded boxes.

It gives the boxes (x, y, width, height in pixels) and the scores (objectness and classes) of
every cell and anchor; suppression of overlaps is left to the application.
"""

import torch
from torch import Tensor, nn

from .layers import conv_bn

ANCHORS = (((10, 14), (23, 27), (37, 58)), ((48, 44), (70, 62), (85, 90)))
STRIDES = (8, 16)


class CSP(nn.Module):
    """Half of the channels pass a residual bottleneck, the other half pass by."""

    def __init__(self, cin: int, cout: int, shortcut: bool = True) -> None:
        super().__init__()
        half = cout // 2
        self.through = conv_bn(cin, half, 1, act=nn.SiLU)
        self.beside = conv_bn(cin, half, 1, act=nn.SiLU)
        self.inner = nn.Sequential(
            conv_bn(half, half, 1, act=nn.SiLU), conv_bn(half, half, 3, act=nn.SiLU)
        )
        self.join = conv_bn(cout, cout, 1, act=nn.SiLU)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = self.through(x)
        y = y + self.inner(y) if self.shortcut else self.inner(y)
        joined: Tensor = self.join(torch.cat([y, self.beside(x)], 1))
        return joined


class Pyramid(nn.Module):
    """Spatial pyramid pooling: three max pools in a row, all of them kept."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze = conv_bn(channels, channels // 2, 1, act=nn.SiLU)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.join = conv_bn(2 * channels, channels, 1, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        pooled = [self.squeeze(x)]
        for _ in range(3):
            pooled.append(self.pool(pooled[-1]))
        y: Tensor = self.join(torch.cat(pooled, 1))
        return y


class Detect(nn.Module):
    """One scale's head: anchors' boxes in pixels, and scores."""

    grid: Tensor
    anchors: Tensor

    def __init__(self, cin: int, classes: int, scale: int, image: int) -> None:
        super().__init__()
        self.stride, self.outputs = STRIDES[scale], 5 + classes
        cells = torch.arange(image // self.stride, dtype=torch.float32)
        y, x = torch.meshgrid(cells, cells, indexing="ij")
        anchors = torch.tensor(ANCHORS[scale], dtype=torch.float32)
        self.register_buffer("grid", torch.stack([x, y]).view(1, 1, 2, -1) - 0.5)
        self.register_buffer("anchors", anchors.view(1, -1, 2, 1))
        self.conv = nn.Conv2d(cin, len(anchors) * self.outputs, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.sigmoid(self.conv(x).view(x.shape[0], -1, self.outputs, x.shape[2] * x.shape[3]))
        place, size, scores = y.split([2, 2, self.outputs - 4], 2)
        place = (place * 2 + self.grid) * self.stride
        size = (size * 2) ** 2 * self.anchors
        boxes = torch.cat([place, size], 2).transpose(2, 3).flatten(1, 2)
        return boxes, scores.transpose(2, 3).flatten(1, 2)


class YOLO(nn.Module):
    def __init__(self, classes: int = 5, width: int = 16, image: int = 96) -> None:
        super().__init__()
        self.shallow = nn.Sequential(
            conv_bn(3, width, 3, 2, act=nn.SiLU),
            conv_bn(width, 2 * width, 3, 2, act=nn.SiLU),
            CSP(2 * width, 2 * width),
            conv_bn(2 * width, 4 * width, 3, 2, act=nn.SiLU),
            CSP(4 * width, 4 * width),
        )
        self.deep = nn.Sequential(
            conv_bn(4 * width, 8 * width, 3, 2, act=nn.SiLU),
            CSP(8 * width, 8 * width),
            Pyramid(8 * width),
            conv_bn(8 * width, 4 * width, 1, act=nn.SiLU),
        )
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.fine = CSP(8 * width, 4 * width, shortcut=False)
        self.down = conv_bn(4 * width, 4 * width, 3, 2, act=nn.SiLU)
        self.coarse = CSP(8 * width, 8 * width, shortcut=False)
        self.heads = nn.ModuleList(
            [Detect(4 * width, classes, 0, image), Detect(8 * width, classes, 1, image)]
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shallow = self.shallow(x)
        deep = self.deep(shallow)
        fine = self.fine(torch.cat([self.up(deep), shallow], 1))
        coarse = self.coarse(torch.cat([self.down(fine), deep], 1))
        found = [head(y) for head, y in zip(self.heads, (fine, coarse))]
        return torch.cat([b for b, _ in found], 1), torch.cat([s for _, s in found], 1)
