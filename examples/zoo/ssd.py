"""A single-shot detector (Liu et al. 2016) with its boxes decoded, without sorting.

Offsets become boxes by the anchors, scores below a threshold become 0 and their boxes empty. What
is left for the application is to drop overlapping boxes.
"""

import torch
from torch import Tensor, nn

from .layers import conv_bn

IMAGE, STRIDES, SIZES = 96, (8, 16), ((0.15, 0.25), (0.35, 0.6))
SHAPES = (1.0, 0.5, 2.0)  # width over height
SPREAD = (0.1, 0.2)  # what offsets of places and sizes are divided by in training


def anchors() -> Tensor:
    """Centre and size of every anchor, in parts of the picture."""
    found = []
    for stride, sizes in zip(STRIDES, SIZES):
        places = (torch.arange(IMAGE // stride) + 0.5) * stride / IMAGE
        y, x = torch.meshgrid(places, places, indexing="ij")
        sides = [(size * shape**0.5, size / shape**0.5) for size in sizes for shape in SHAPES]
        boxes = [torch.stack([x, y, x * 0 + w, y * 0 + h], -1) for w, h in sides]
        found.append(torch.stack(boxes, 2).reshape(-1, 4))
    return torch.cat(found)


class SSD(nn.Module):
    anchors: Tensor

    def __init__(self, classes: int = 6, width: int = 16, threshold: float = 0.4) -> None:
        super().__init__()
        self.classes, self.threshold = classes, threshold
        self.fine = nn.Sequential(
            conv_bn(3, width, 3, 2),
            conv_bn(width, 2 * width, 3, 2),
            conv_bn(2 * width, 4 * width, 3, 2),
        )
        deep = 4 * width
        self.coarse = nn.Sequential(conv_bn(deep, deep, 3, 2), conv_bn(deep, deep))
        each = len(SIZES[0]) * len(SHAPES)
        self.heads = nn.ModuleList(
            nn.Conv2d(deep, each * (4 + classes), 3, padding=1) for _ in STRIDES
        )
        self.register_buffer("anchors", anchors())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Corners of boxes in parts of the picture, and scores of classes."""
        fine = self.fine(x)
        maps = [head(y) for head, y in zip(self.heads, (fine, self.coarse(fine)))]
        flat = [y.permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4 + self.classes) for y in maps]
        offsets, logits = torch.cat(flat, 1).split([4, self.classes], 2)
        places, sizes = self.anchors.split(2, 1)
        centre = offsets[..., :2] * SPREAD[0] * sizes + places
        half = torch.exp(offsets[..., 2:] * SPREAD[1]) * sizes / 2
        boxes = torch.cat([centre - half, centre + half], 2).clamp(0, 1)
        scores = torch.sigmoid(logits)
        scores = torch.where(scores > self.threshold, scores, 0.0)
        is_found = scores.amax(2, keepdim=True) > 0
        return torch.where(is_found, boxes, 0.0), scores


def ssd() -> nn.Module:
    return SSD()
