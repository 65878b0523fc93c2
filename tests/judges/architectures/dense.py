"""Maps from pictures: segmentation, detection, restoration, optical flow, points."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from judges.architectures.pictures import PICTURE, conv_bn


def double(cin: int, cout: int) -> nn.Sequential:
    return nn.Sequential(conv_bn(cin, cout, 3), nn.ReLU(), conv_bn(cout, cout, 3), nn.ReLU())


class AttentionUNet(nn.Module):
    """Skips that a gate weighs; transposed convolutions upwards."""

    def __init__(self) -> None:
        super().__init__()
        self.d1, self.d2, self.mid = double(3, 8), double(8, 16), double(16, 32)
        self.u2, self.u1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 3, 2, 1, 1)
        self.g, self.s, self.psi = conv_bn(16, 8), conv_bn(16, 8), conv_bn(8, 1)
        self.c2, self.c1, self.out = double(32, 16), double(16, 8), nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.d1(x)
        two = self.d2(F.max_pool2d(one, 2))
        up = self.u2(self.mid(F.max_pool2d(two, 2)))
        two = two * torch.sigmoid(self.psi(F.relu(self.g(up) + self.s(two))))
        up = self.u1(self.c2(torch.cat([two, up], 1)))
        return self.out(self.c1(torch.cat([one, up], 1)))


class UNetPlus(nn.Module):
    """U-Net++: dense skips with bilinear steps upwards, and deep supervision."""

    def __init__(self) -> None:
        super().__init__()
        self.x00, self.x10, self.x20 = double(3, 8), double(8, 12), double(12, 16)
        self.x01, self.x11, self.x02 = double(20, 8), double(28, 12), double(28, 8)
        self.h1, self.h2 = nn.Conv2d(8, 2, 1), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def up(t: Tensor) -> Tensor:
            return F.interpolate(t, scale_factor=2.0, mode="bilinear", align_corners=True)

        x00 = self.x00(x)
        x10 = self.x10(F.avg_pool2d(x00, 2))
        x20 = self.x20(F.avg_pool2d(x10, 2))
        x01 = self.x01(torch.cat([x00, up(x10)], 1))
        x11 = self.x11(torch.cat([x10, up(x20)], 1))
        x02 = self.x02(torch.cat([x00, x01, up(x11)], 1))
        return self.h1(x01), self.h2(x02)


class HRNet(nn.Module):
    """Branches of several resolutions that exchange at the end of a stage."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 8, 3, 2), nn.ReLU())
        self.t2, self.t3 = conv_bn(8, 12, 3, 2), conv_bn(12, 16, 3, 2)
        self.b1, self.b2, self.b3 = double(8, 8), double(12, 12), double(16, 16)
        self.paths = nn.ModuleDict({
            "21": conv_bn(12, 8), "31": conv_bn(16, 8), "12": conv_bn(8, 12, 3, 2),
            "32": conv_bn(16, 12),
            "13": nn.Sequential(conv_bn(8, 8, 3, 2), nn.ReLU(), conv_bn(8, 16, 3, 2)),
            "23": conv_bn(12, 16, 3, 2),
        })  # fmt: skip
        self.out = nn.Conv2d(36, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = F.relu(self.t2(x))
        z = F.relu(self.t3(y))
        x, y, z = self.b1(x), self.b2(y), self.b3(z)
        to = self.paths
        a = F.relu(
            x
            + F.interpolate(to["21"](y), scale_factor=2)
            + F.interpolate(to["31"](z), scale_factor=4)
        )
        b = F.relu(to["12"](x) + y + F.interpolate(to["32"](z), scale_factor=2))
        c = F.relu(to["13"](x) + to["23"](y) + z)
        size = a.shape[2:]
        rest = [F.interpolate(t, size=size, mode="bilinear", align_corners=False) for t in (b, c)]
        return self.out(torch.cat([a, *rest], 1))


class BiFPN(nn.Module):
    """Fast normalised fusion of levels with learned weights, up and down."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.p3, self.p4, self.p5 = (
            conv_bn(3, width, 3, 2),
            conv_bn(width, width, 3, 2),
            conv_bn(width, width, 3, 2),
        )
        self.w = nn.Parameter(torch.rand(3, 3))
        self.convs = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, 1, 1, groups=width), conv_bn(width, width))
            for _ in range(4)
        )
        self.box, self.cls = nn.Conv2d(width, 4, 1), nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        p3 = F.silu(self.p3(x))
        p4 = F.silu(self.p4(p3))
        p5 = F.silu(self.p5(p4))
        w = F.relu(self.w)
        w = w / (w.sum(1, keepdim=True) + 1e-4)
        t4 = self.convs[0](F.silu(w[0, 0] * p4 + w[0, 1] * F.interpolate(p5, scale_factor=2)))
        o3 = self.convs[1](F.silu(w[1, 0] * p3 + w[1, 1] * F.interpolate(t4, scale_factor=2)))
        o4 = self.convs[2](
            F.silu(w[2, 0] * p4 + w[2, 1] * t4 + w[2, 2] * F.max_pool2d(o3, 3, 2, 1))
        )
        o5 = self.convs[3](F.silu(p5 + F.max_pool2d(o4, 3, 2, 1)))
        boxes = [self.box(t).permute(0, 2, 3, 1).reshape(1, -1, 4) for t in (o3, o4, o5)]
        scores = [self.cls(t).permute(0, 2, 3, 1).reshape(1, -1, 3) for t in (o3, o4, o5)]
        return torch.cat(boxes, 1), torch.cat(scores, 1).sigmoid()


class Fomo(nn.Module):
    """A heat map of objects, its softmax and where it is highest."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_bn(1, 8, 3, 2),
            nn.ReLU6(),
            conv_bn(8, 8, 3, 2, 8),
            nn.ReLU6(),
            conv_bn(8, 24),
            nn.ReLU6(),
        )
        self.head = nn.Conv2d(24, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.head(self.body(x)).softmax(1)
        return scores, scores.argmax(1)


class CenterNet(nn.Module):
    """Peaks of a heat map by a max pool that equals it; sizes and offsets beside."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_bn(3, 16, 3, 2), nn.ReLU(), conv_bn(16, 32, 3, 2), nn.ReLU())
        self.up = nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False)
        self.hm, self.wh = nn.Conv2d(16, 2, 1), nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = F.relu(self.up(self.body(x)))
        heat = self.hm(y).sigmoid()
        peaks = heat * (F.max_pool2d(heat, 3, 1, 1) == heat).float()
        score, place = peaks.flatten(2).amax(1).topk(4)
        wh = self.wh(y).flatten(2)
        return score, wh.gather(2, place[:, None].expand(-1, 4, -1)), place


class SimpleGate(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=1)
        return a * b


class NAFNet(nn.Module):
    """Restoration without activations: gates, simplified channel attention, pixel shuffle."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.intro, self.end = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 12, 3, 1, 1)
        self.n1, self.n2 = nn.GroupNorm(1, width), nn.GroupNorm(1, width)
        self.c1, self.c2 = (
            nn.Conv2d(width, 2 * width, 1),
            nn.Conv2d(2 * width, 2 * width, 3, 1, 1, groups=2 * width),
        )
        self.sca, self.c3 = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.c4, self.c5 = nn.Conv2d(width, 2 * width, 1), nn.Conv2d(width, width, 1)
        self.gate, self.down, self.up = SimpleGate(), nn.PixelUnshuffle(2), nn.PixelShuffle(2)
        self.beta = nn.Parameter(torch.rand(1, width, 1, 1))
        self.mix = nn.Conv2d(12, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.intro(self.mix(self.down(x)))
        z = self.gate(self.c2(self.c1(self.n1(y))))
        y = y + self.c3(z * self.sca(z.mean((2, 3), keepdim=True))) * self.beta
        y = y + self.c5(self.gate(self.c4(self.n2(y)))) * self.beta
        return x + self.up(self.end(y))


class Espcn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 5, 1, 2),
            nn.Tanh(),
            nn.Conv2d(16, 8, 3, 1, 1),
            nn.Tanh(),
            nn.Conv2d(8, 9, 3, 1, 1),
            nn.PixelShuffle(3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).clamp(0, 1) + F.interpolate(
            x, scale_factor=3, mode="bilinear", align_corners=False
        )


class Correlation(nn.Module):
    """RAFT-like: all pairs of features, pooled in levels, looked up by shifts; a GRU of maps."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv_bn(3, width, 3, 2), nn.ReLU(), conv_bn(width, width, 3, 2)
        )
        self.z, self.r, self.q = (nn.Conv2d(width + 9, width, 3, 1, 1) for _ in range(3))
        self.flow = nn.Conv2d(width, 2, 3, 1, 1)

    def forward(self, one: Tensor, two: Tensor) -> Tensor:
        f, g = self.features(one), self.features(two)
        padded = F.pad(g, (1, 1, 1, 1))
        h, w = f.shape[2:]
        shifts = [
            (f * padded[:, :, i : i + h, j : j + w]).mean(1) for i in range(3) for j in range(3)
        ]
        volume = torch.stack(shifts, 1) / f.shape[1] ** 0.5
        state = torch.tanh(f)
        for _ in range(2):
            both = torch.cat([state, volume], 1)
            z, r = torch.sigmoid(self.z(both)), torch.sigmoid(self.r(both))
            q = torch.tanh(self.q(torch.cat([r * state, volume], 1)))
            state = (1 - z) * state + z * q
        pairs = torch.matmul(f.flatten(2).transpose(1, 2), g.flatten(2)).softmax(-1)
        return F.interpolate(self.flow(state), scale_factor=4, mode="nearest") + pairs.mean()


class PointNet(nn.Module):
    """A transform of its own for each cloud, and a maximum over the points."""

    def __init__(self) -> None:
        super().__init__()
        self.t = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.t_fc = nn.Linear(16, 9)
        self.body = nn.Sequential(
            nn.Conv1d(3, 16, 1),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Conv1d(16, 32, 1),
            nn.BatchNorm1d(32),
            nn.ReLU(),
        )
        self.fc = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 5))

    def forward(self, x: Tensor) -> Tensor:
        m = self.t_fc(self.t(x).max(2)[0]).view(-1, 3, 3) + torch.eye(3)
        x = torch.bmm(x.transpose(2, 1), m).transpose(2, 1)
        return F.log_softmax(self.fc(torch.max(self.body(x), 2)[0]), -1)


class EdgeConv(nn.Module):
    """DGCNN: neighbours by distance, features of edges, a maximum over neighbours."""

    def __init__(self, k: int = 4) -> None:
        super().__init__()
        self.k = k
        self.conv = nn.Sequential(nn.Conv2d(6, 16, 1), nn.BatchNorm2d(16), nn.LeakyReLU(0.2))
        self.fc = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        inner = -2 * torch.matmul(x.transpose(2, 1), x)
        square = (x**2).sum(1, keepdim=True)
        index = (-square - inner - square.transpose(2, 1)).topk(self.k, dim=-1)[1]
        points = x.transpose(2, 1)[0]
        near = points[index[0].reshape(-1)].view(1, -1, self.k, 3)
        centre = points[None, :, None].expand(-1, -1, self.k, -1)
        edges = torch.cat([near - centre, centre], 3).permute(0, 3, 1, 2)
        return self.fc(self.conv(edges).amax(-1).mean(-1))


class DeepSets(nn.Module):
    """Permutation equivariant layers, with a mask of which elements there are."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma, self.lam, self.rho = (
            nn.Linear(8, 24),
            nn.Linear(8, 24, bias=False),
            nn.Linear(24, 3),
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        m = mask.unsqueeze(-1)
        mean = (x * m).sum(1, keepdim=True) / m.sum(1, keepdim=True).clamp(min=1.0)
        y = F.elu(self.gamma(x) - self.lam(mean))
        y = y.masked_fill(m < 0.5, -4.0)
        return self.rho(y.max(dim=1).values)


class Bisenet(nn.Module):
    """Two paths, attention refinement, pyramid pooling of odd sizes, and a bilinear end."""

    def __init__(self) -> None:
        super().__init__()
        self.spatial = nn.Sequential(
            conv_bn(3, 8, 7, 2), nn.ReLU(), conv_bn(8, 16, 3, 2), nn.ReLU()
        )
        self.context = nn.Sequential(
            conv_bn(3, 8, 3, 2),
            nn.ReLU(),
            conv_bn(8, 12, 3, 2),
            nn.ReLU(),
            conv_bn(12, 16, 3, 2),
            nn.ReLU(),
        )
        self.arm = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv_bn(16, 16), nn.Sigmoid())
        self.pools = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(s), conv_bn(16, 4), nn.ReLU()) for s in (1, 2, 3)
        )
        self.fuse = conv_bn(44, 8)

    def forward(self, x: Tensor) -> Tensor:
        s, c = self.spatial(x), self.context(x)
        c = c * self.arm(c)
        up = [
            F.interpolate(p(c), c.shape[2:], mode="bilinear", align_corners=True)
            for p in self.pools
        ]
        c = F.interpolate(torch.cat([c, *up], 1), s.shape[2:], mode="nearest")
        return F.interpolate(
            F.relu(self.fuse(torch.cat([s, c], 1))),
            x.shape[2:],
            mode="bilinear",
            align_corners=False,
        )


CASES = {
    "attention U-Net": (AttentionUNet, (PICTURE,)), "U-Net++": (UNetPlus, (PICTURE,)),
    "HRNet": (HRNet, (PICTURE,)), "BiFPN": (BiFPN, (PICTURE,)), "FOMO": (Fomo, ((1, 1, 32, 32),)),
    "CenterNet": (CenterNet, (PICTURE,)), "NAFNet": (NAFNet, (PICTURE,)),
    "ESPCN": (Espcn, ((1, 1, 17, 21),)), "RAFT": (Correlation, (PICTURE, PICTURE)),
    "PointNet": (PointNet, ((1, 3, 40),)), "DGCNN": (EdgeConv, ((1, 3, 24),)),
    "Deep Sets": (DeepSets, ((1, 10, 8), (1, 10))), "BiSeNet": (Bisenet, (PICTURE,)),
}  # fmt: skip
