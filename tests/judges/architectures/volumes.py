"""Videos, point sets, graphs and poses: several frames, neighbours, joints."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def conv3(cin: int, cout: int, kernel: tuple[int, ...], stride: int = 1) -> nn.Sequential:
    padding = tuple(k // 2 for k in kernel)
    return nn.Sequential(
        nn.Conv3d(cin, cout, kernel, stride, padding, bias=False), nn.BatchNorm3d(cout), nn.ReLU()
    )


def r2plus1d() -> nn.Module:
    """R(2+1)D: planes, then time."""
    return nn.Sequential(
        conv3(3, 8, (1, 3, 3)), conv3(8, 8, (3, 1, 1)), nn.MaxPool3d((1, 2, 2)),
        conv3(8, 12, (1, 3, 3), 2), conv3(12, 12, (3, 1, 1)), nn.AdaptiveAvgPool3d(1),
        nn.Flatten(), nn.Linear(12, 5),
    )  # fmt: skip


class VNet(nn.Module):
    """A U-Net over volumes, with PReLU and transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.down = nn.Conv3d(1, 4, 3, padding=1), nn.Conv3d(4, 8, 2, 2)
        self.middle = nn.Conv3d(8, 8, 3, padding=1)
        self.act, self.head = nn.PReLU(8), nn.Conv3d(8, 2, 1)
        self.up = nn.Conv3d(8, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.elu(self.enter(x))
        deep = self.act(self.middle(self.down(wide)))
        back = self.up(deep.repeat_interleave(2, 2).repeat_interleave(2, 3).repeat_interleave(2, 4))
        return self.head(torch.cat([wide, back], 1)).softmax(1)


class ShiftedFrames(nn.Module):
    """TSM: an eighth of the channels moves a frame on, another one back."""

    def __init__(self, frames: int = 4) -> None:
        super().__init__()
        self.frames = frames
        self.stem, self.conv = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, 6)

    def shift(self, x: Tensor) -> Tensor:
        count, channels, height, width = x.shape
        y = x.view(count // self.frames, self.frames, channels, height, width)
        fold = channels // 8
        out = torch.zeros_like(y)
        out[:, :-1, :fold] = y[:, 1:, :fold]
        out[:, 1:, fold : 2 * fold] = y[:, :-1, fold : 2 * fold]
        out[:, :, 2 * fold :] = y[:, :, 2 * fold :]
        return out.view(count, channels, height, width)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.stem(x.flatten(0, 1)))
        y = y + torch.relu(self.conv(self.shift(y)))
        return self.head(y.mean((2, 3))).view(-1, self.frames, 6).mean(1)


class ConvLstm(nn.Module):
    """A recurrence whose gates are convolutions."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.width = width
        self.gates, self.head = (
            nn.Conv2d(1 + width, 4 * width, 3, padding=1),
            nn.Conv2d(width, 1, 1),
        )

    def forward(self, frames: Tensor) -> Tensor:
        batch, count, _, height, width = frames.shape
        h = frames.new_zeros(batch, self.width, height, width)
        c = torch.zeros_like(h)
        for step in range(count):
            i, f, o, g = self.gates(torch.cat([frames[:, step], h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return self.head(h)


class SkeletonGraph(nn.Module):
    """ST-GCN: joints by an adjacency matrix, then time."""

    def __init__(self, joints: int = 9) -> None:
        super().__init__()
        near = torch.rand(3, joints, joints) < 0.3
        self.register_buffer("adjacency", near / near.sum(-1, keepdim=True).clamp(min=1))
        self.importance = nn.Parameter(torch.rand(3, joints, joints))
        self.spread, self.time = nn.Conv2d(3, 24, 1), nn.Conv2d(8, 8, (5, 1), padding=(2, 0))
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.spread(x).unflatten(1, (3, 8))
        y = torch.einsum("nkctv,kvw->nctw", y, self.adjacency * self.importance)
        y = torch.relu(self.norm(self.time(torch.relu(y))))
        return self.head(y.mean((2, 3)))


class GraphAttention(nn.Module):
    """GAT: scores of pairs, those that are no neighbours masked."""

    def __init__(self, nodes: int = 12, width: int = 8) -> None:
        super().__init__()
        self.register_buffer("edges", (torch.rand(nodes, nodes) < 0.4) | torch.eye(nodes).bool())
        self.w, self.left, self.right = (
            nn.Linear(5, width),
            nn.Linear(width, 1),
            nn.Linear(width, 1),
        )
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.w(x)
        scores = F.leaky_relu(self.left(h) + self.right(h).transpose(1, 2), 0.2)
        weights = scores.masked_fill(~self.edges, -1e9).softmax(-1)
        return self.head(F.elu(weights @ h)).log_softmax(-1)


class MessagePassing(nn.Module):
    """A graph network over an edge list: gather, a layer, sums by index."""

    def __init__(self, nodes: int = 10, edges: int = 24) -> None:
        super().__init__()
        self.register_buffer("source", torch.randint(0, nodes, (edges,)))
        self.register_buffer("target", torch.randint(0, nodes, (edges,)))
        self.message, self.update = nn.Linear(12, 8), nn.GRUCell(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            pairs = torch.cat([x[self.source], x[self.target]], -1)
            sums = torch.zeros(x.shape[0], 8).index_add(0, self.target, F.gelu(self.message(pairs)))
            x = self.update(sums, x)
        return x


class PoseHeatmaps(nn.Module):
    """Joints as the expected place under a softmax of each map, with their certainty."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1), nn.Hardswish(), nn.Conv2d(12, 5, 1))
        self.up = nn.ConvTranspose2d(5, 5, 4, 2, 1, groups=5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        maps = self.up(self.body(x))
        p = maps.flatten(2).softmax(-1).view_as(maps)
        rows, columns = (torch.linspace(0, 1, n) for n in maps.shape[2:])
        place = torch.stack([(p.sum(2) * columns).sum(-1), (p.sum(3) * rows).sum(-1)], -1)
        return place, maps.amax((2, 3)).sigmoid()


class LiftedPose(nn.Module):
    """2-D joints to 3-D: centred, scaled by their own spread, residual layers."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.mid, self.leave = nn.Linear(34, 32), nn.Linear(32, 32), nn.Linear(32, 51)
        self.norm = nn.BatchNorm1d(32)

    def forward(self, joints: Tensor) -> Tensor:
        y = joints - joints[:, :1]
        y = y / (y.norm(dim=-1).amax(1)[:, None, None] + 1e-3)
        y = torch.relu(self.enter(y.flatten(1)))
        y = y + torch.relu(self.norm(self.mid(y)))
        return self.leave(y).view(-1, 17, 3)


class Homography(nn.Module):
    """A small network gives an affine transform, which samples the image anew."""

    def __init__(self) -> None:
        super().__init__()
        self.locate = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(16, 6))
        self.conv = nn.Conv2d(1, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        eye = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])
        theta = eye + 0.2 * torch.tanh(self.locate(x)).view(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return self.conv(F.grid_sample(x, grid, align_corners=False))


class PillarNet(nn.Module):
    """PointPillars: points of a pillar by a shared layer and their maximum, put onto a map."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(7, 8, bias=False), nn.BatchNorm1d(8)
        self.register_buffer("places", torch.randperm(64)[:10])
        self.conv = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, points: Tensor) -> Tensor:
        centre = points[..., :3].mean(1, keepdim=True)
        features = self.layer(torch.cat([points, points[..., :3] - centre], -1))
        features = torch.relu(self.norm(features.transpose(1, 2))).amax(-1)
        canvas = torch.zeros(64, 8).index_copy(0, self.places, features)
        return self.conv(canvas.t().reshape(1, 8, 8, 8))


CASES = {
    "R(2+1)D": (r2plus1d, ((1, 3, 4, 12, 12),)), "V-Net": (VNet, ((1, 1, 4, 8, 8),)),
    "TSM": (ShiftedFrames, ((1, 4, 3, 12, 12),)), "ConvLSTM": (ConvLstm, ((1, 4, 1, 8, 8),)),
    "ST-GCN": (SkeletonGraph, ((1, 3, 10, 9),)), "GAT": (GraphAttention, ((1, 12, 5),)),
    "message passing": (MessagePassing, ((10, 6),)),
    "soft heat maps": (PoseHeatmaps, ((1, 3, 16, 16),)),
    "pose lifting": (LiftedPose, ((2, 17, 2),)),
    "spatial transformer": (Homography, ((1, 1, 16, 16),)),
    "PointPillars": (PillarNet, ((10, 6, 4),)),
}  # fmt: skip
