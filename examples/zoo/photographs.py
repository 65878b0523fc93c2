"""Photographs that come with scikit-image, cut at random: what networks for pictures see."""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "immunohistochemistry", "retina", "rocket")
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as is usual


@cache
def _photograph(name: str) -> Tensor:
    """[1, 3, height, width] from 0 to 1."""
    from skimage import data

    pixels = torch.from_numpy(getattr(data, name)()).permute(2, 0, 1)
    return pixels[None].float() / 255


@cache
def _portraits() -> Tensor:
    """A hundred faces of Labeled Faces in the Wild, and a hundred cuts that are none."""
    from skimage import data

    gray = torch.from_numpy(data.lfw_subset()).float()
    return gray[:, None].expand(-1, 3, -1, -1)


def _cut(
    picture: Tensor, side: tuple[int, int], size: tuple[int, int], make: torch.Generator
) -> Tensor:
    """A part of a picture at random, in another size, half of the time mirrored."""
    top, left = (
        int(torch.randint(picture.shape[2 + i] - side[i] + 1, (), generator=make)) for i in (0, 1)
    )
    part = picture[:, :, top : top + side[0], left : left + side[1]]
    part = F.interpolate(part, size, mode="bilinear", align_corners=False, antialias=True)
    return part.flip(3) if torch.rand((), generator=make) < 0.5 else part


def photographs(count: int, seed: int, size: tuple[int, int]) -> Tensor:
    """Cuts of 1/4 to all of a photograph's height, normalised."""
    make = torch.Generator().manual_seed(seed)
    cuts = []
    for _ in range(count):
        name = PHOTOGRAPHS[int(torch.randint(len(PHOTOGRAPHS), (), generator=make))]
        picture = _photograph(name)
        height = picture.shape[2] * (0.25 + 0.75 * float(torch.rand((), generator=make)))
        width = min(int(height * size[1] / size[0]), picture.shape[3])
        cuts.append(_cut(picture, (int(height), width), size, make))
    mean, deviation = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, DEVIATION))
    return (torch.cat(cuts) - mean) / deviation


def faces(count: int, seed: int) -> Tensor:
    """48×48 from −1 to 1: a portrait, no face, a face in colour, and half a face, in turn."""
    make = torch.Generator().manual_seed(seed)
    colour = _photograph("astronaut")[:, :, 60:200, 150:290]
    cuts = []
    for index in range(count):
        person, other = (int(torch.randint(100, (), generator=make)) for _ in range(2))
        portrait, none = (_portraits()[i : i + 1] for i in (person, 100 + other))
        share = 0.3 + 0.4 * float(torch.rand((), generator=make))
        half = share * portrait + (1 - share) * none
        picture = (portrait, none, colour, half)[index % 4]
        side = round(picture.shape[2] * (0.85 + 0.15 * float(torch.rand((), generator=make))))
        cuts.append(_cut(picture, (side, side), (48, 48), make))
    return (torch.cat(cuts) - 0.5) * 2
