"""Seeded inputs with structure, and the weights and statistics that make a network alive."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional


def images(count: int, seed: int, size: int | tuple[int, int] = 224, channels: int = 3) -> Tensor:
    """Random pictures with structure: shapes, finer texture, a little noise, their own contrast."""
    make = torch.Generator().manual_seed(seed)

    def noise(side: int | tuple[int, int]) -> Tensor:
        sides = (side, side) if isinstance(side, int) else side
        plane = torch.randn(count, channels, *sides, generator=make)
        return functional.interpolate(plane, size, mode="bilinear", align_corners=False)

    mixed = noise(4) + 0.7 * noise(14) + 0.4 * noise(56) + 0.2 * noise(size)
    contrast = 0.4 + torch.rand(count, 1, 1, 1, generator=make)
    brightness = 0.5 * torch.randn(count, channels, 1, 1, generator=make)
    return (mixed * contrast + brightness).clamp(-2.5, 2.5)


@torch.no_grad()
def settle(net: nn.Module, batches: Iterable[Tensor], shift: float = 0.7) -> None:
    """Weights from torch's current seed, and the batch-norm statistics of the given pictures.

    A freshly initialised MobileNet answers about 1e-9 everywhere; with statistics from a pass in
    training mode each layer's activations have a healthy range. Batch norms shift their results
    to where activations are mostly linear: without it random layers amplify any noise, and the
    deep networks, unlike trained ones, would keep little of their input in int8.
    """
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.6, 1.4)
            nn.init.normal_(module.bias, shift, 0.3)
            module.momentum = None  # a plain mean over the batches
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0.0, 0.1)
            nn.init.normal_(module.bias, 0.0, 0.1)
    net.train()
    for batch in batches:
        net(batch)
    net.eval()
