"""Networks as users have them, a page each: `build("resnet18")`.

Weights, statistics and pictures are seeded; nothing is downloaded, and nothing here knows Tosaic.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .autoencoder import Autoencoder
from .deeplab import DeepLab
from .ds_cnn import DSCNN
from .mobilenet_v2 import MobileNetV2
from .mobilenet_v3_small import MobileNetV3Small
from .pictures import images, settle
from .resnet18 import ResNet18
from .squeezenet import SqueezeNet
from .super_resolution import SuperResolution
from .unet import UNet
from .yolo import YOLO

__all__ = ["ZOO", "Entry", "build", "samples"]


@dataclass(frozen=True, slots=True)
class Entry:
    """How a network is made, and the shape of its one input."""

    make: Callable[[], nn.Module]
    shape: tuple[int, int, int, int]


ZOO: dict[str, Entry] = {
    "autoencoder": Entry(Autoencoder, (1, 3, 64, 64)),
    "deeplab": Entry(DeepLab, (1, 3, 96, 96)),
    "ds_cnn": Entry(DSCNN, (1, 1, 49, 10)),
    "mobilenet_v2": Entry(MobileNetV2, (1, 3, 96, 96)),
    "mobilenet_v3_small": Entry(MobileNetV3Small, (1, 3, 96, 96)),
    "resnet18": Entry(ResNet18, (1, 3, 64, 64)),
    "squeezenet": Entry(SqueezeNet, (1, 3, 96, 96)),
    "super_resolution": Entry(SuperResolution, (1, 3, 32, 32)),
    "unet": Entry(UNet, (1, 3, 64, 64)),
    "yolo": Entry(YOLO, (1, 3, 96, 96)),
}


def samples(name: str, count: int, seed: int) -> list[Tensor]:
    """Seeded inputs of a network, one picture each."""
    _, channels, *size = ZOO[name].shape
    return list(images(count, seed, (size[0], size[1]), channels).split(1))


def build(name: str, seed: int = 0) -> tuple[nn.Module, tuple[Tensor], list[tuple[Tensor]]]:
    """A network that is alive, an example input, and inputs for calibration."""
    torch.manual_seed(seed)
    net = ZOO[name].make()
    settle(net, (torch.cat(samples(name, 32, 1000 + seed + index)) for index in range(3)))
    (example,) = samples(name, 1, 9000 + seed)
    return net, (example,), [(picture,) for picture in samples(name, 16, 2000 + seed)]
