"""O-Net, the last stage of MTCNN (Zhang et al. 2016): is it a face, where, and its landmarks.

The weights are those of facenet-pytorch (MIT). They were trained on pictures whose rows and
columns are exchanged, hence the permutation before the first linear layer.
"""

from torch import Tensor, nn

from .wheels import load


def stage(cin: int, cout: int, kernel: int, pool: int | None) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(cin, cout, kernel), nn.PReLU(cout)]
    return [*layers, nn.MaxPool2d(pool, 2, ceil_mode=True)] if pool else layers


class ONet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *stage(3, 32, 3, pool=3),
            *stage(32, 64, 3, pool=3),
            *stage(64, 64, 3, pool=2),
            *stage(64, 128, 2, pool=None),
        )
        self.hidden = nn.Sequential(nn.Linear(1152, 256), nn.PReLU(256))
        self.face = nn.Linear(256, 2)
        self.box = nn.Linear(256, 4)
        self.landmarks = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.hidden(self.features(x).permute(0, 3, 2, 1).flatten(1))
        return self.box(y), self.landmarks(y), self.face(y).softmax(1)


def onet() -> nn.Module:
    """As it was trained."""
    return load(ONet(), "facenet-pytorch", "facenet_pytorch/data/onet.pt")
